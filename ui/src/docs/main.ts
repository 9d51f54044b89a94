// The API reference at /docs: Swagger UI over the server's own description, offline. The browser sends the session
// cookie with the calls that are tried; the header proves their page.
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";
import { nonceStyles } from "@/lib/nonce";
import "./docs.css";

nonceStyles();
// A reader who asks for nothing else begins with the sandboxes.
if (!location.hash) history.replaceState(null, "", "#/sandboxes");

SwaggerUI({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  validatorUrl: null,
  // The links of paths would stand inside of buttons.
  plugins: [
    {
      wrapComponents: {
        DeepLink:
          (_, { React }) =>
          ({ text }) =>
            React.createElement("span", {}, text),
      },
    },
  ],
  requestInterceptor: (request) => {
    request.headers["X-Atoll-Console"] = "1";
    return request;
  },
});
