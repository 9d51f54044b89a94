//! What is checked on every route before anything else. Where no key is needed, a web page in the user's own
//! browser could reach the server, so the host and origin must be this machine's.

use crate::{Access, Failure, HttpContext, OriginCheck, origin::RequestOrigin};
use atoll_types::{Error, ErrorCode};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// The policy of what is no page: a browser that shows it runs nothing of it, and gives it no origin.
const NO_PAGE: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// A front says so of a request that it passes on to a server inside a sandbox: the path is that server's to
/// read.
#[derive(Debug, Clone, Copy)]
pub struct PassedOn {
    /// Whether the path has a token in it, of whatever worth. It is the token that lets in a page below it,
    /// whose origin is none.
    pub by_token: bool,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|v| v.to_str().unwrap_or("?"))
}

/// Whether the browser says that another site's page sends the request. It does so for requests without an
/// origin, too; following a link to a page of this server is fine.
fn is_cross_site(request: &Request) -> bool {
    let headers = request.headers();
    let link = text(headers, "sec-fetch-mode") == Some("navigate")
        && request.method() == Method::GET
        && !request.uri().path().starts_with("/api/");
    !link && !matches!(text(headers, "sec-fetch-site"), None | Some("same-origin" | "none"))
}

/// Says why a request may not pass on a server without keys.
fn check_open(origins: &OriginCheck, request: &Request, passed_on: Option<PassedOn>) -> Result<(), Failure> {
    let asked = RequestOrigin::read(request.uri(), request.headers())?;
    let refused = |why: &str| Failure::from(Error::new(ErrorCode::PermissionDenied, why));
    if passed_on.is_some_and(|passed_on| passed_on.by_token) && asked.is_local() {
        return Ok(());
    }
    origins.check(&asked).map_err(|why| refused(&why))?;
    if is_cross_site(request) {
        return Err(refused("without keys no other site's page may ask"));
    }
    Ok(())
}

/// Refuses a request with a repeated header, before anything else reads it.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    match RequestOrigin::read(request.uri(), request.headers()) {
        Ok(_) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

/// Refuses requests from pages of other origins, and says how answers may be used.
pub(crate) async fn check(State(context): State<HttpContext>, request: Request, next: Next) -> Response {
    let passed_on = request.extensions().get::<PassedOn>().copied();
    if context.access == Access::Open
        && let Err(failure) = check_open(&context.origins, &request, passed_on)
    {
        return failure.into_response();
    }
    let path = percent_encoding::percent_decode_str(request.uri().path());
    if passed_on.is_none() && path.decode_utf8().is_err() {
        let message = "the path is not UTF-8 where it is percent-encoded";
        return Failure::in_path(Error::new(ErrorCode::InvalidArgument, message)).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A browser that is signed in may be led to any address here, and what is there may come from inside a sandbox.
    if passed_on.is_none() {
        headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NO_PAGE));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn what_another_sites_page_asks_is_refused_without_an_origin_too() {
        let origins = OriginCheck::new(Access::Open, true, &[], &[]);
        let asked = |path: &str, site: &str, mode: &str, by_token: bool| {
            let builder = Request::builder().uri(path).header("host", "localhost:7300");
            let builder = builder.header("sec-fetch-site", site).header("sec-fetch-mode", mode);
            let passed_on = by_token.then_some(PassedOn { by_token });
            check_open(&origins, &builder.body(Body::empty()).unwrap(), passed_on).is_ok()
        };
        let api = "/api/v1/sandboxes";
        assert!(asked(api, "same-origin", "cors", false) && asked(api, "none", "navigate", false));
        assert!(asked("/docs", "cross-site", "navigate", false));
        for (path, site, mode) in [
            (api, "cross-site", "no-cors"),
            (api, "same-site", "no-cors"),
            (api, "cross-site", "navigate"),
            ("/api/v1/sandboxes/x/ports/80/", "cross-site", "no-cors"),
        ] {
            assert!(!asked(path, site, mode, false), "{path} {site} {mode}");
        }
        assert!(asked("/api/v1/sandboxes/x/ports/80~t/", "cross-site", "cors", true), "its token is checked");
    }
}
