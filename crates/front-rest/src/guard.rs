//! What is checked on every route before anything else. Where no key is asked for, a web page in the
//! user's own browser could reach the server, so the host and origin must be this machine's.

use crate::{Access, App, error::Failure};
use atoll_types::{Error, ErrorCode};
use axum::{
    extract::{Request, State},
    http::{HeaderValue, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};

fn is_local(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    matches!(authority.host(), "localhost" | "127.0.0.1" | "[::1]")
}

fn may_pass(request: &Request) -> bool {
    let headers = request.headers();
    let text = |name| headers.get(name).map(|v: &HeaderValue| v.to_str().unwrap_or("?"));
    let host = text(header::HOST).or_else(|| request.uri().authority().map(Authority::as_str));
    let origin_is_ours = match text(header::ORIGIN) {
        None => true,
        Some(origin) => origin.split_once("://").is_some_and(|(_, host)| is_local(host)),
    };
    host.is_some_and(is_local) && origin_is_ours
}

/// Refuses what a foreign page sends, and says how answers may be used.
pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.access == Access::Open && !may_pass(&request) {
        let message = "without keys only this machine may ask, by the name localhost or 127.0.0.1";
        return Failure::from(Error::new(ErrorCode::PermissionDenied, message)).into_response();
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
    fn only_this_machine_by_its_own_names() {
        assert!(may_pass(&request("127.0.0.1:7300", None)));
        assert!(may_pass(&request("localhost:7300", Some("http://localhost:7300"))));
        assert!(may_pass(&request("[::1]:7300", None)));
        for (host, origin) in [
            ("attacker.example", None),
            ("127.0.0.1.attacker.example:7300", None),
            ("localhost:7300", Some("https://attacker.example")),
            ("localhost:7300", Some("null")),
            ("", None),
        ] {
            assert!(!may_pass(&request(host, origin)), "{host} {origin:?}");
        }
    }
}
