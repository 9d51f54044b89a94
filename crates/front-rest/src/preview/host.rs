//! Previews by a name of their own: `{port}-{id}.<domain>`. Each is an origin of its own, so the page
//! may do what pages do. Nothing else is served below that domain, and the API never is.

use super::{
    access::{self, Granted, port_number},
    headers::PreviewLocation,
    path::passed_on,
    proxy::{Exchange, exchange},
};
use crate::App;
use atoll_core::TokenUse;
use atoll_http::Failure;
use atoll_types::{Error, ErrorCode, SandboxId, time::now_ms};
use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header,
        uri::{Authority, PathAndQuery},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// The parameter that carries a token once; a cookie has it from then on.
const PARAMETER: &str = "atoll_token";
/// The cookie, where TLS lets it be one that no other host can set.
const COOKIE: &str = "__Host-atoll-preview";
const COOKIE_LOCAL: &str = "atoll-preview";

/// The domain below which previews have names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(String);

impl FromStr for Domain {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.to_ascii_lowercase();
        let plain = |label: &str| {
            let inner = label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
        };
        if name.len() > 190 || !name.split('.').all(plain) {
            let message = "expected a domain such as preview.example.com, without a port";
            return Err(Error::invalid("preview.domain", message));
        }
        Ok(Self(name))
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a host stands for.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// Not ours.
    Other,
    /// Below the domain, and nothing.
    Nothing,
    Port(u16, Uuid),
}

impl Domain {
    fn is_local(&self) -> bool {
        self.0 == "localhost"
    }

    fn cookie(&self) -> &'static str {
        if self.is_local() { COOKIE_LOCAL } else { COOKIE }
    }

    fn meaning(&self, host: &str) -> Meaning {
        let host = host.to_ascii_lowercase();
        // Everything after the first colon is a port; a name has no colon.
        let name = host.split(':').next().unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(name);
        // This machine's own name stays the API's.
        if name == self.0 {
            return if self.is_local() { Meaning::Other } else { Meaning::Nothing };
        }
        let Some(label) = name.strip_suffix(&self.0).and_then(|rest| rest.strip_suffix('.')) else {
            return Meaning::Other;
        };
        let port = label.split_once('-').and_then(|(port, id)| Some((port_number(port)?, id)));
        match port.and_then(|(port, id)| Some((port, Uuid::try_parse(id).ok()?))) {
            Some((port, id)) => Meaning::Port(port, id),
            None => Meaning::Nothing,
        }
    }

    /// Whether a client that asked by this host reaches the domain's names: those below `localhost` are each
    /// machine's own.
    pub(super) fn is_reached_from(&self, host: &str) -> bool {
        let name = host.parse::<Authority>().map(|a| a.host().to_ascii_lowercase()).unwrap_or_default();
        let here = matches!(name.as_str(), "localhost" | "127.0.0.1" | "[::1]");
        !self.is_local() || here || name.ends_with(".localhost")
    }

    /// The address of a sandbox's port, on the same scheme and port as the request.
    pub(super) fn url(&self, scheme: &str, host: &str, port: u16, id: SandboxId) -> String {
        let number = host.rsplit_once(':').map(|(_, n)| n).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
        let number = number.map(|n| format!(":{n}")).unwrap_or_default();
        format!("{scheme}://{port}-{}.{}{number}", id.uuid().simple(), self.0)
    }
}

/// Serves what is asked by a name below the domain, and lets nothing of it near the API.
pub(crate) async fn route(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if let Some(passed_on) = passed_on(request.uri().path()) {
        request.extensions_mut().insert(passed_on);
    }
    let Some(domain) = app.preview.domain.clone() else { return next.run(request).await };
    let named = request.headers().get_all(header::HOST).iter().map(|v| v.to_str().unwrap_or_default());
    let hosts: Vec<&str> = named.chain(request.uri().authority().map(|a| a.as_str())).collect();
    let meanings: Vec<Meaning> = hosts.iter().map(|host| domain.meaning(host)).collect();
    match meanings.as_slice() {
        all if all.iter().all(|m| *m == Meaning::Other) => next.run(request).await,
        // By two names it could be meant for two places.
        [Meaning::Port(port, id), rest @ ..] if rest.iter().all(|m| *m == Meaning::Port(*port, *id)) => {
            let (port, id) = (*port, SandboxId::from_uuid(*id));
            serve(&app, &domain, port, id, request).await.unwrap_or_else(IntoResponse::into_response)
        }
        _ => {
            Failure::from(Error::new(ErrorCode::NotFound, "there is no preview of this name")).into_response()
        }
    }
}

async fn serve(
    app: &App,
    domain: &Domain,
    port: u16,
    id: SandboxId,
    request: Request,
) -> Result<Response, Failure> {
    if request.method() == Method::CONNECT || !request.uri().path().starts_with('/') {
        return Err(Error::new(ErrorCode::Unsupported, "a preview is no proxy").into());
    }
    let (token, query) = split_query(request.uri().query());
    let path = request.uri().path();
    if let Some(token) = token.as_deref().filter(|_| is_page_load(&request)) {
        let granted = access::by_token(app, token, id, port).await?;
        return Ok(welcome(domain, token, &granted, path, query.as_deref()));
    }
    let granted = grant(app, domain, request.headers(), token.as_deref(), id, port).await?;
    let query = query.map(|q| format!("?{q}")).unwrap_or_default();
    let target = PathAndQuery::try_from(format!("{path}{query}"))
        .map_err(|_| Failure::in_path(Error::invalid("path", "this path cannot be passed on")))?;
    let place = PreviewLocation::Host { secure: !domain.is_local() };
    exchange(app, Exchange { granted, place, target }, request).await
}

async fn grant(
    app: &App,
    domain: &Domain,
    headers: &HeaderMap,
    token: Option<&str>,
    id: SandboxId,
    port: u16,
) -> Result<Granted, Failure> {
    if let Some(token) = token.or_else(|| access::token_header(headers)) {
        return access::by_token(app, token, id, port).await;
    }
    // One that has expired is as good as none.
    for value in cookies(headers).filter_map(|(name, value)| (name == domain.cookie()).then_some(value)) {
        match access::by_token(app, value, id, port).await {
            Err(failure) if failure.is_unauthorized() => {}
            other => return other,
        }
    }
    access::by_key(app, headers, id, port).await
}

/// Whether a browser loads a page, which keeps cookies and would show the token in its address. A program
/// gets its answer at once.
fn is_page_load(request: &Request) -> bool {
    let accepted = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    matches!(*request.method(), Method::GET | Method::HEAD)
        && accepted.is_some_and(|kinds| kinds.contains("text/html"))
}

/// The token out of a query, and the rest of it as it was.
fn split_query(query: Option<&str>) -> (Option<String>, Option<String>) {
    let Some(query) = query else { return (None, None) };
    let mut token = None;
    let mut rest = Vec::new();
    for part in query.split('&') {
        match part.strip_prefix(PARAMETER).and_then(|p| p.strip_prefix('=')) {
            Some(value) => token = Some(value.to_owned()),
            None => rest.push(part),
        }
    }
    (token, (!rest.is_empty()).then(|| rest.join("&")))
}

/// Keeps the token in a cookie and sends the browser to the same address without it.
fn welcome(domain: &Domain, token: &str, granted: &Granted, path: &str, query: Option<&str>) -> Response {
    let secure = if domain.is_local() { "" } else { "; Secure" };
    let until = granted.token.as_ref().map_or(0, TokenUse::expires_at);
    let age = (until - now_ms()).max(0) / 1000;
    let cookie =
        format!("{}={token}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}", domain.cookie());
    // Two slashes would lead to another host.
    let path = path.trim_start_matches(['/', '\\']);
    let query = query.map(|q| format!("?{q}")).unwrap_or_default();
    let headers = [
        (header::LOCATION, format!("/{path}{query}")),
        (header::SET_COOKIE, cookie),
        (header::CACHE_CONTROL, "no-store".into()),
        (header::REFERRER_POLICY, "no-referrer".into()),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|v| v.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='))
}

fn is_ours(name: &str) -> bool {
    [COOKIE, COOKIE_LOCAL].iter().any(|ours| ours.eq_ignore_ascii_case(name.trim()))
}

/// Takes our cookie from a request; the others are the app's.
pub(super) fn remove_our_cookie(headers: &mut HeaderMap) {
    let lines: Vec<HeaderValue> = headers.get_all(header::COOKIE).iter().cloned().collect();
    headers.remove(header::COOKIE);
    for line in lines {
        let parts = line.as_bytes().split(|b| *b == b';').map(<[u8]>::trim_ascii);
        let name = |part: &[u8]| {
            part.split(|b| *b == b'=').next().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
        };
        let kept: Vec<&[u8]> = parts.filter(|p| !p.is_empty() && !is_ours(&name(p))).collect();
        if let (false, Ok(value)) = (kept.is_empty(), HeaderValue::from_bytes(&kept.join(&b"; "[..]))) {
            headers.append(header::COOKIE, value);
        }
    }
}

/// Keeps an app's cookies its own: none for all previews of the domain, and none in place of ours.
pub(super) fn tame_cookies(headers: &mut HeaderMap) {
    let set: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    headers.remove(HeaderName::from_static("set-cookie2"));
    for value in set {
        let mut parts = value.as_bytes().split(|b| *b == b';');
        let pair = parts.next().unwrap_or_default();
        let name = pair.split(|b| *b == b'=').next().map(String::from_utf8_lossy).unwrap_or_default();
        if is_ours(&name) {
            continue;
        }
        let wide = |part: &&[u8]| {
            let name = part.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
            name.eq_ignore_ascii_case(b"domain")
        };
        let kept: Vec<&[u8]> = std::iter::once(pair).chain(parts.filter(|p| !wide(p))).collect();
        if let Ok(value) = HeaderValue::from_bytes(&kept.join(&b";"[..])) {
            headers.append(header::SET_COOKIE, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f2a11bc000040008000000000000001";

    #[test]
    fn names_mean_ports_or_nothing() {
        let domain: Domain = "preview.Example.com".parse().unwrap();
        let id = Uuid::try_parse(ID).unwrap();
        for name in [format!("8080-{ID}.preview.example.com"), format!("8080-{id}.PREVIEW.example.com.:7300")]
        {
            assert_eq!(domain.meaning(&name), Meaning::Port(8080, id), "{name}");
        }
        for name in [
            "preview.example.com",
            "x.preview.example.com",
            "80.preview.example.com:1",
            ".preview.example.com",
            &format!("0-{ID}.preview.example.com"),
            &format!("a.8080-{ID}.preview.example.com"),
            &format!("08-{ID}.preview.example.com"),
        ] {
            assert_eq!(domain.meaning(name), Meaning::Nothing, "{name}");
        }
        for name in ["example.com", "xpreview.example.com", "127.0.0.1:7300", "", "[::1]:7300", "localhost"] {
            assert_eq!(domain.meaning(name), Meaning::Other, "{name}");
        }
        assert_eq!("localhost".parse::<Domain>().unwrap().meaning("localhost:7300"), Meaning::Other);
        let local: Domain = "localhost".parse().unwrap();
        for host in ["localhost:7300", "127.0.0.1:80", "[::1]:7300", "x.localhost"] {
            assert!(local.is_reached_from(host), "{host}");
        }
        assert!(!local.is_reached_from("atoll.example") && !local.is_reached_from("10.0.0.7:7300"));
        assert!(domain.is_reached_from("atoll.example"));
        for wrong in ["", "a..b", "-a", "a b", "a:80", "a/b", ".a", "*.a"] {
            assert!(wrong.parse::<Domain>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_token_leaves_the_query_and_nothing_else_does() {
        let split = |q| split_query(Some(q));
        assert_eq!(split("atoll_token=t"), (Some("t".into()), None));
        assert_eq!(split("a=1&atoll_token=t&b=%20&&c"), (Some("t".into()), Some("a=1&b=%20&&c".into())));
        assert_eq!(split("xatoll_token=t"), (None, Some("xatoll_token=t".into())));
        assert_eq!(split_query(None), (None, None));
    }

    #[test]
    fn cookies_are_the_apps_or_ours() {
        let mut headers = HeaderMap::new();
        headers.append("cookie", HeaderValue::from_static("a=1; __Host-atoll-preview=t;b=2"));
        headers.append("cookie", HeaderValue::from_static("atoll-preview=t"));
        remove_our_cookie(&mut headers);
        assert_eq!(headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        for set in ["s=1; Domain=example.com; Path=/", "__Host-atoll-preview=x; Path=/", "t=1;domain = .x"] {
            headers.append("set-cookie", HeaderValue::from_static(set));
        }
        tame_cookies(&mut headers);
        assert_eq!(headers.get_all("set-cookie").iter().collect::<Vec<_>>(), ["s=1; Path=/", "t=1"]);
    }
}
