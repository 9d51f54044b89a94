// The Content-Security-Policy lets a style element in only with the nonce of the page. The terminal and some
// components make style elements without one, so every element of that kind is given it here.

const own = document.querySelector<HTMLMetaElement>('meta[property="csp-nonce"]');

/** The nonce of this page; empty in development, where the policy is not sent. */
export const nonce: string = own?.nonce ?? "";

export function nonceStyles(): void {
  const create = document.createElement.bind(document);
  document.createElement = (name: string, options?: ElementCreationOptions) => {
    const element = create(name, options);
    if (nonce && name.toLowerCase() === "style") element.nonce = nonce;
    return element;
  };
}
