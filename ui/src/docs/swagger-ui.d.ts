declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  interface Options {
    url: string;
    dom_id: string;
    deepLinking: boolean;
    docExpansion: "none" | "list" | "full";
    filter: boolean;
    validatorUrl: null;
    requestInterceptor: (request: { headers: Record<string, string> }) => unknown;
  }
  export default function SwaggerUI(options: Options): unknown;
}
