//! The cookie of a signed-in browser, and what a request that comes with it must prove.
//!
//! A browser adds a cookie to whatever request reaches this host, whichever page sends it. `SameSite=Strict` keeps other
//! sites from it, but pages of other ports of this host are of the same site. So a request by cookie must come from a page
//! of this very origin: the browser says so in `Sec-Fetch-Site`, and whatever changes something, or opens a socket, must
//! name this origin in `Origin`. What changes something also carries [`PROOF`], a header that a page of another origin
//! cannot send without asking this server first, and it never agrees.

use crate::{Failure, FrontName, HttpContext, listen::OverTls, origin::RequestOrigin};
use atoll_core::Keys;
use atoll_types::{Error, ErrorCode};
use axum::{
    body::Body,
    extract::{FromRequestParts, Request},
    http::{header, request::Parts},
    middleware::Next,
    response::Response,
};
use futures_util::StreamExt;
use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

/// The front of requests by cookie, as the audit trail names it.
pub(crate) const CONSOLE: FrontName = FrontName("console");

/// The header of requests that change something.
const PROOF: &str = "x-atoll-console";

/// The cookie over TLS: browsers take it from no other host.
const COOKIE: &str = "__Host-atoll-session";
/// The cookie without TLS.
const COOKIE_PLAIN: &str = "atoll-session";

/// A cookie for the browser to keep or to forget.
pub struct SessionCookie;

impl SessionCookie {
    /// The value of `Set-Cookie` that keeps a session for so many seconds; 0 forgets it.
    #[must_use]
    pub fn set(asked: &RequestOrigin, secret: &str, seconds: i64) -> String {
        let (name, secure) = if asked.is_tls() { (COOKIE, "; Secure") } else { (COOKIE_PLAIN, "") };
        format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }
}

/// The secret of the session in a request's cookies.
pub struct PresentedSession(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for PresentedSession {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(presented_session(parts).map(str::to_owned)))
    }
}

/// The session in a request's cookies. Over TLS only the cookie counts that no other host can have set: the plain one could
/// have been planted, and would sign the browser in as another.
pub(crate) fn presented_session(parts: &Parts) -> Option<&str> {
    let lines = || parts.headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let find = |wanted: &str| {
        let mut pairs =
            lines().flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
    };
    let plain = || if is_over_tls(parts) { None } else { find(COOKIE_PLAIN) };
    find(COOKIE).or_else(plain).filter(|secret| !secret.is_empty())
}

/// Whether a request is known to come over TLS. TLS may end at a proxy, which says so or leaves it to the browser: browsers
/// send `Sec-Fetch-Site` only over TLS and to this machine. A client that lies here only loses its session.
pub(crate) fn is_over_tls(parts: &Parts) -> bool {
    let proxy = parts.headers.get("x-forwarded-proto");
    let Ok(asked) = RequestOrigin::read(&parts.uri, &parts.headers) else { return false };
    parts.extensions.get::<OverTls>().is_some()
        || asked.is_tls()
        || proxy.is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"))
        || (parts.headers.contains_key("sec-fetch-site") && !asked.is_loopback() && !asked.is_plain())
}

/// The session that a request came with, once it is known to be valid.
#[derive(Clone)]
pub struct BrowserSession {
    keys: Keys,
    secret: Arc<str>,
}

impl BrowserSession {
    pub(crate) fn new(context: &HttpContext, secret: &str) -> Self {
        Self { keys: context.core.keys.clone(), secret: secret.into() }
    }

    /// Returns when it has ended.
    pub async fn ended(&self) {
        self.keys.session_ended(&self.secret).await;
    }
}

/// The session of a request, for the layers around what authenticates it.
#[derive(Clone, Default)]
pub(crate) struct SessionSlot(Arc<OnceLock<BrowserSession>>);

impl SessionSlot {
    pub(crate) fn set(&self, session: BrowserSession) {
        self.0.get_or_init(|| session);
    }
}

/// Ends an answer of events with the session of the browser that reads it.
pub(crate) async fn end_streams(mut request: Request, next: Next) -> Response {
    let slot = SessionSlot::default();
    request.extensions_mut().insert(slot.clone());
    let response = next.run(request).await;
    let Some(session) = slot.0.get().cloned() else { return response };
    let kind = response.headers().get(header::CONTENT_TYPE);
    if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"text/event-stream")) {
        return response;
    }
    let ended = Box::pin(async move { session.ended().await });
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(ended)))
}

/// Refuses a request by cookie that no page of this server sends.
pub(crate) fn prove_own_page(parts: &Parts) -> Result<(), Failure> {
    let refused = |why: &str| Failure::from(Error::new(ErrorCode::PermissionDenied, why));
    let site = parts.headers.get("sec-fetch-site").map(|value| value.to_str().unwrap_or("?"));
    if !matches!(site, None | Some("same-origin" | "none")) {
        return Err(refused("a session is for pages of this server; others send a key"));
    }
    let asked = RequestOrigin::read(&parts.uri, &parts.headers)?;
    let upgrades = parts.headers.contains_key(header::UPGRADE);
    if parts.method.is_safe() && !upgrades {
        return Ok(());
    }
    if !asked.names_own_page() {
        return Err(refused("with a session, the page that sends a change must be of this server"));
    }
    if !upgrades && !parts.headers.contains_key(PROOF) {
        return Err(refused("with a session, a change needs the header X-Atoll-Console"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn proven(method: &str, headers: &[(&str, &str)]) -> bool {
        let builder =
            Request::builder().method(method).uri("/api/v1/sandboxes").header("host", "atoll.example:7300");
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        prove_own_page(&builder.body(()).unwrap().into_parts().0).is_ok()
    }

    const OWN: (&str, &str) = ("origin", "http://atoll.example:7300");
    const PROVEN: (&str, &str) = ("x-atoll-console", "1");

    #[test]
    fn a_page_of_this_server_may_read_and_change() {
        assert!(proven("GET", &[]) && proven("GET", &[("sec-fetch-site", "same-origin")]));
        assert!(proven("GET", &[("sec-fetch-site", "none")]), "an address that a person typed");
        assert!(
            proven("POST", &[OWN, PROVEN])
                && proven("DELETE", &[OWN, PROVEN, ("sec-fetch-site", "same-origin")])
        );
        assert!(proven("GET", &[OWN, ("upgrade", "websocket")]));
    }

    #[test]
    fn other_pages_and_programs_may_not() {
        for site in ["cross-site", "same-site", "?"] {
            assert!(!proven("GET", &[("sec-fetch-site", site)]), "{site}");
            assert!(!proven("POST", &[OWN, PROVEN, ("sec-fetch-site", site)]), "{site}");
        }
        assert!(!proven("POST", &[OWN]) && !proven("POST", &[PROVEN]) && !proven("PATCH", &[]));
        for origin in ["http://atoll.example:3000", "http://evil.example", "null"] {
            assert!(!proven("POST", &[("origin", origin), PROVEN]), "{origin}");
            assert!(!proven("GET", &[("origin", origin), ("upgrade", "websocket")]), "{origin}");
        }
        assert!(!proven("GET", &[("upgrade", "websocket")]), "a socket without an origin");
    }

    #[test]
    fn over_tls_only_the_cookie_counts_that_no_other_host_can_set() {
        let of = |cookies: &str, host: &str, headers: &[(&str, &str)]| {
            let builder =
                Request::builder().uri("/ui/session").header("host", host).header("cookie", cookies);
            let builder =
                headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
            presented_session(&builder.body(()).unwrap().into_parts().0).map(str::to_owned)
        };
        let site = ("sec-fetch-site", "same-origin");
        for (host, headers, is_tls) in [
            ("atoll.example", &[("origin", "https://atoll.example")][..], true),
            ("atoll.example", &[("x-forwarded-proto", "HTTPS")], true),
            ("atoll.example", &[site], true),
            ("atoll.example", &[site, ("origin", "http://atoll.example")], false),
            ("atoll.example", &[], false),
            ("127.0.0.1:7300", &[site], false),
            ("127.1.2.3:7300", &[site], false),
            ("my.localhost:7300", &[site], false),
        ] {
            let planted = of("a=1; atoll-session=planted", host, headers);
            assert_eq!(planted.is_none(), is_tls, "{host} {headers:?}");
            let both = of("atoll-session=planted; __Host-atoll-session=own", host, headers);
            assert_eq!(both.as_deref(), Some("own"), "{host} {headers:?}");
        }
        assert_eq!(of("xatoll-session=plain; atoll-session=", "127.0.0.1", &[]), None);
        let request = Request::builder().header("cookie", "atoll-session=planted").extension(OverTls);
        assert_eq!(presented_session(&request.body(()).unwrap().into_parts().0), None);
    }
}
