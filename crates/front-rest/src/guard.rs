//! What is checked on every route before anything else. Where no key is asked for, a web page in the
//! user's own browser could reach the server, so the host and origin must be this machine's.

use crate::{Access, App, error::Failure, preview};
use atoll_types::{Error, ErrorCode};
use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method,
        header::{self, AsHeaderName},
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]")
}

fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name).map(|v| v.to_str().unwrap_or("?"))
}

/// Whether the browser says that another site's page asks. It does so for requests without an origin,
/// too; following a link to a page of ours is fine.
fn is_cross_site(request: &Request) -> bool {
    let headers = request.headers();
    let link = text(headers, "sec-fetch-mode") == Some("navigate")
        && request.method() == Method::GET
        && !request.uri().path().starts_with("/api/");
    !link && !matches!(text(headers, "sec-fetch-site"), None | Some("same-origin" | "none"))
}

/// Whether the server is asked by a name of this machine.
pub(crate) fn has_local_host(request: &Request) -> bool {
    let host = text(request.headers(), header::HOST);
    host.or_else(|| request.uri().authority().map(Authority::as_str)).is_some_and(is_local)
}

fn may_pass(request: &Request) -> bool {
    let headers = request.headers();
    // It is the token that lets in a page below it, whose origin is none.
    let ours = preview::is_tokened(request.uri().path()) || (is_own_page(headers) && !is_cross_site(request));
    has_local_host(request) && ours
}

/// Whether a page may open a WebSocket here. Browsers let any page try, with whatever key it has or has
/// been given, so a page must come from this server itself. Programs send no origin.
pub(crate) fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name| headers.get_all(name).iter().map(|v: &HeaderValue| v.to_str().unwrap_or("?"));
    let mut hosts = text(header::HOST);
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    text(header::ORIGIN).all(|origin| is_same_place(origin, host))
}

fn is_same_place(origin: &str, host: &str) -> bool {
    let (usual, theirs) = match origin.split_once("://") {
        Some(("http", rest)) => (80, rest),
        Some(("https", rest)) => (443, rest),
        _ => return false,
    };
    let (Ok(theirs), Ok(ours)) = (theirs.parse::<Authority>(), host.parse::<Authority>()) else {
        return false;
    };
    // TLS may end at a proxy, so where no port is named it is that of the page.
    let port = |authority: &Authority| authority.port_u16().unwrap_or(usual);
    theirs.host().eq_ignore_ascii_case(ours.host()) && port(&theirs) == port(&ours)
}

/// Whether a path can be read as text. What a preview passes on is the app's, as it was sent.
fn is_text(path: &str) -> bool {
    percent_encoding::percent_decode_str(path).decode_utf8().is_ok() || preview::is_app_path(path)
}

/// Refuses what a foreign page sends, and says how answers may be used.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.access == Access::Open && !may_pass(&request) {
        let message = "without keys only this machine may ask, by the name localhost or 127.0.0.1";
        return Failure::from(Error::new(ErrorCode::PermissionDenied, message)).into_response();
    }
    if !is_text(request.uri().path()) {
        let message = "the path is not UTF-8 where it is percent-encoded";
        return Failure::in_path(Error::new(ErrorCode::InvalidArgument, message)).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(host: &str, origin: Option<&str>) -> Request {
        let mut builder = Request::builder().uri("/health").header("host", host);
        if let Some(origin) = origin {
            builder = builder.header("origin", origin);
        }
        builder.body(Body::empty()).unwrap()
    }

    #[test]
    fn a_page_of_this_server_may_open_a_socket() {
        let may = |host, origin| is_own_page(request(host, Some(origin)).headers());
        assert!(
            may("atoll.example", "https://atoll.example") && may("atoll.example", "http://atoll.example:80")
        );
        assert!(
            may("10.0.0.7:7300", "http://10.0.0.7:7300") && may("Atoll.example:443", "https://atoll.example")
        );
        assert!(is_own_page(request("atoll.example", None).headers()));
        for (host, origin) in [
            ("atoll.example", "https://attacker.example"),
            ("atoll.example", "https://atoll.example.attacker.example"),
            ("atoll.example", "https://atoll.example:8443"),
            ("127.0.0.1:7300", "http://127.0.0.1:3000"),
            ("atoll.example", "null"),
            ("atoll.example", "file://"),
            ("atoll.example", ""),
            ("", "https://atoll.example"),
        ] {
            assert!(!may(host, origin), "{host} {origin}");
        }
    }

    #[test]
    fn what_another_sites_page_asks_is_refused_without_an_origin_too() {
        let asked = |path: &str, site: &str, mode: &str| {
            let builder = Request::builder().uri(path).header("host", "localhost:7300");
            let builder = builder.header("sec-fetch-site", site).header("sec-fetch-mode", mode);
            may_pass(&builder.body(Body::empty()).unwrap())
        };
        let api = "/api/v1/sandboxes";
        assert!(asked(api, "same-origin", "cors") && asked(api, "none", "navigate"));
        assert!(asked("/docs", "cross-site", "navigate"));
        for (path, site, mode) in [
            (api, "cross-site", "no-cors"),
            (api, "same-site", "no-cors"),
            (api, "cross-site", "navigate"),
            ("/api/v1/sandboxes/x/ports/80/", "cross-site", "no-cors"),
        ] {
            assert!(!asked(path, site, mode), "{path} {site} {mode}");
        }
        assert!(asked("/api/v1/sandboxes/x/ports/80~t/", "cross-site", "cors"), "its token is checked");
    }

    #[test]
    fn only_this_machine_by_its_own_names() {
        assert!(may_pass(&request("127.0.0.1:7300", None)));
        assert!(may_pass(&request("localhost:7300", Some("http://localhost:7300"))));
        assert!(may_pass(&request("[::1]:7300", None)));
        for (host, origin) in [
            ("attacker.example", None),
            ("127.0.0.1.attacker.example:7300", None),
            ("localhost:7300", Some("https://attacker.example")),
            ("localhost:7300", Some("null")),
            // Another server of this machine.
            ("localhost:7300", Some("http://localhost:8080")),
            ("localhost:7300", Some("http://127.0.0.1:7300")),
            ("", None),
        ] {
            assert!(!may_pass(&request(host, origin)), "{host} {origin:?}");
        }
    }
}
