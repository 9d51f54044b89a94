declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  type Component = (props: { text: string }) => unknown;
  type Wrap = (
    original: Component,
    system: { React: { createElement: (kind: string, props: object, text: string) => unknown } },
  ) => Component;
  interface Options {
    url: string;
    dom_id: string;
    deepLinking: boolean;
    docExpansion: "none" | "list" | "full";
    filter: boolean;
    validatorUrl: null;
    plugins: { wrapComponents: Record<string, Wrap> }[];
    requestInterceptor: (request: { headers: Record<string, string> }) => unknown;
  }
  export default function SwaggerUI(options: Options): unknown;
}
