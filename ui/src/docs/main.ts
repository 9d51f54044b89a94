// The API reference at /docs: Swagger UI over the server's own description, offline. The browser sends the session
// cookie with the calls that are tried; the header proves their page.
import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";
import { nonceStyles } from "@/lib/nonce";
import "./docs.css";

nonceStyles();

SwaggerUI({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    request.headers["X-Atoll-Console"] = "1";
    return request;
  },
});
