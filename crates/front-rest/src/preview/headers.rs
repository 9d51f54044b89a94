//! Which headers the proxy removes from requests and answers, and which it adds. Pure: from headers to
//! headers.

use super::{access::TOKEN, host};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header, uri::Authority};
use std::net::IpAddr;

/// What belongs to one connection and not to the message.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// The caller's credentials with us, and what others say about where a request came from.
const NOT_THE_APPS: &[&str] = &["x-api-key", "x-agentcop-key", TOKEN, "forwarded", "x-real-ip", "expect"];
/// What an answer may not decide, because it would hold for more than the preview.
const FOR_MORE_THAN_ITSELF: &[&str] = &[
    "alt-svc",
    "clear-site-data",
    "nel",
    "public-key-pins",
    "public-key-pins-report-only",
    "report-to",
    "reporting-endpoints",
    "strict-transport-security",
];
/// The same, where the preview shares its origin with the API.
const FOR_THE_ORIGIN: &[&str] = &["set-cookie", "set-cookie2", "service-worker-allowed"];
/// An origin of its own for every page: no cookies, no storage, no word to the API.
const SANDBOX: &str = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads";

/// Where a preview is, as the browser sees it.
#[derive(Debug, Clone)]
pub(super) enum PreviewLocation {
    /// Below the API's address.
    Path {
        /// All that comes before the app's own path, without a slash at its end.
        prefix: String,
        /// Whether that has a token in it, so that pages below it may ask.
        tokened: bool,
    },
    /// By a name of its own.
    Host {
        /// Whether browsers reach it by TLS.
        secure: bool,
    },
}

/// A request's headers on their way to the app.
pub(super) struct ForwardedHeaders<'a> {
    pub(super) place: &'a PreviewLocation,
    pub(super) port: u16,
    pub(super) peer: Option<IpAddr>,
    /// Whether `Authorization` is the app's own.
    pub(super) keep_authorization: bool,
    /// What the connection is to become.
    pub(super) upgrade: Option<HeaderValue>,
}

/// What a request's connection is to become, if the request asks for that as it must.
pub(super) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = tokens_of(headers, &header::CONNECTION).any(|t| t.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|v| asked && !v.is_empty()).cloned()
}

fn tokens_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).filter(|t| !t.is_empty())
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<String> = tokens_of(headers, &header::CONNECTION).map(str::to_owned).collect();
    for name in named.iter().map(String::as_str).chain(HOP_BY_HOP.iter().copied()) {
        headers.remove(name);
    }
}

/// Takes from a request what the app must not see and what belongs to this connection only.
pub(super) fn request(headers: &mut HeaderMap, onward: ForwardedHeaders<'_>) {
    let ForwardedHeaders { place, port, peer, keep_authorization, upgrade } = onward;
    let public = headers.get(header::HOST).cloned();
    remove_hop_by_hop(headers);
    let foreign: Vec<HeaderName> =
        headers.keys().filter(|n| n.as_str().starts_with("x-forwarded-")).cloned().collect();
    foreign.into_iter().for_each(|name| _ = headers.remove(name));
    NOT_THE_APPS.iter().for_each(|name| _ = headers.remove(*name));
    // The length is the body's own.
    headers.remove(header::CONTENT_LENGTH);
    if !keep_authorization {
        headers.remove(header::AUTHORIZATION);
    }
    let mut set = |name: &'static str, value: Option<HeaderValue>| {
        value.map(|value| headers.insert(HeaderName::from_static(name), value));
    };
    set("x-forwarded-for", peer.and_then(|ip| ip.to_canonical().to_string().parse().ok()));
    set("x-forwarded-host", public.clone());
    let local = HeaderValue::from_str(&format!("localhost:{port}")).ok();
    match place {
        PreviewLocation::Path { prefix, .. } => {
            set("x-forwarded-proto", Some(HeaderValue::from_static("http")));
            set("x-forwarded-prefix", prefix.parse().ok());
            set("host", local);
            // Both are the API's address and not the app's.
            headers.remove(header::COOKIE);
            headers.remove(header::REFERER);
            if headers.contains_key(header::ORIGIN)
                && let Ok(origin) = format!("http://localhost:{port}").parse()
            {
                headers.insert(header::ORIGIN, origin);
            }
        }
        PreviewLocation::Host { secure } => {
            set("x-forwarded-proto", Some(HeaderValue::from_static(if *secure { "https" } else { "http" })));
            // It may have been named as this connection's own.
            set("host", public);
            host::remove_our_cookie(headers);
        }
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
}

/// An answer's headers on their way to the caller.
pub(super) struct ReturnedHeaders<'a> {
    pub(super) place: &'a PreviewLocation,
    pub(super) method: &'a Method,
    pub(super) port: u16,
    /// The host that the caller asked.
    pub(super) public: Option<&'a str>,
}

/// Takes from an answer what it may not decide, and says how a browser must treat it.
pub(super) fn answer(headers: &mut HeaderMap, status: StatusCode, back: &ReturnedHeaders<'_>) {
    let ReturnedHeaders { place, method, port, public } = back;
    let upgrade = headers.get(header::UPGRADE).cloned().filter(|_| status == StatusCode::SWITCHING_PROTOCOLS);
    remove_hop_by_hop(headers);
    if **method != Method::HEAD && status != StatusCode::NOT_MODIFIED {
        // The length is the body's own.
        headers.remove(header::CONTENT_LENGTH);
    }
    FOR_MORE_THAN_ITSELF.iter().for_each(|name| _ = headers.remove(*name));
    match place {
        PreviewLocation::Path { prefix, tokened } => {
            FOR_THE_ORIGIN.iter().for_each(|name| _ = headers.remove(*name));
            let cors: Vec<HeaderName> =
                headers.keys().filter(|n| n.as_str().starts_with("access-control-")).cloned().collect();
            cors.into_iter().for_each(|name| _ = headers.remove(name));
            if *tokened {
                any_origin(headers);
            }
            for name in [header::LOCATION, header::CONTENT_LOCATION] {
                let moved = headers.get(&name).and_then(|v| v.to_str().ok());
                if let Some(Ok(value)) =
                    moved.and_then(|to| relocated(to, prefix, *port, *public)).map(|to| to.parse())
                {
                    headers.insert(name, value);
                }
            }
            headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
            headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        }
        PreviewLocation::Host { .. } => host::tame_cookies(headers),
    }
    if let Some(upgrade) = upgrade {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, upgrade);
    }
}

/// Lets a page whose origin is its own read the answer. A client with the token could anyway.
pub(super) fn any_origin(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
}

/// The headers that answer a browser's preflight; none where the request is no preflight.
pub(super) fn preflight(method: &Method, headers: &HeaderMap) -> Option<HeaderMap> {
    let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
    if method != Method::OPTIONS || !headers.contains_key(header::ORIGIN) {
        return None;
    }
    let mut answer = HeaderMap::new();
    any_origin(&mut answer);
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, wanted.clone());
    if let Some(names) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    Some(answer)
}

/// Where a redirect of the app leads, seen from outside. None: it stays as it is.
fn relocated(to: &str, prefix: &str, port: u16, public: Option<&str>) -> Option<String> {
    let is_below = |path: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    };
    let rooted = match to.strip_prefix('/') {
        // Another host, by the same scheme.
        Some(rest) if rest.starts_with(['/', '\\']) => return None,
        Some(_) => to.to_owned(),
        None => {
            let uri: Uri = to.parse().ok()?;
            let scheme = uri.scheme_str().filter(|s| matches!(*s, "http" | "https"))?;
            let authority = uri.authority()?;
            let own = is_the_apps(authority, port) || public == Some(authority.as_str());
            let rest = to.get(scheme.len() + 3 + authority.as_str().len()..).filter(|_| own)?;
            if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") }
        }
    };
    (!is_below(&rooted)).then(|| format!("{prefix}{rooted}"))
}

/// Whether an app means itself by this name.
fn is_the_apps(authority: &Authority, port: u16) -> bool {
    let local = matches!(authority.host(), "localhost" | "127.0.0.1" | "0.0.0.0" | "[::1]");
    local && authority.port_u16().unwrap_or(80) == port
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn path_place() -> PreviewLocation {
        PreviewLocation::Path { prefix: "/p/8080~t".into(), tokened: true }
    }

    fn sent(place: &PreviewLocation, keep_authorization: bool, pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = map(pairs);
        let upgrade = upgrade_of(&headers);
        let peer = Some("::ffff:10.1.2.3".parse().unwrap());
        request(&mut headers, ForwardedHeaders { place, port: 8080, peer, keep_authorization, upgrade });
        headers
    }

    #[test]
    fn nothing_of_the_caller_reaches_the_app() {
        let all = [
            ("host", "api.example:7300"),
            ("x-api-key", "k"),
            ("x-agentcop-key", "k"),
            ("x-atoll-preview-token", "t"),
            ("authorization", "Bearer k"),
            ("cookie", "console=1"),
            ("referer", "http://api.example/x"),
            ("origin", "null"),
            ("connection", "close, x-listed"),
            ("x-listed", "1"),
            ("keep-alive", "1"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("proxy-authorization", "Basic x"),
            ("expect", "100-continue"),
            ("forwarded", "for=1"),
            ("x-forwarded-for", "6.6.6.6"),
            ("x-forwarded-user", "root"),
            ("accept", "text/html"),
        ];
        let headers = sent(&path_place(), false, &all);
        let mut left: Vec<(&str, &str)> =
            headers.iter().map(|(n, v)| (n.as_str(), v.to_str().unwrap())).collect();
        left.sort_unstable();
        assert_eq!(
            left,
            [
                ("accept", "text/html"),
                ("host", "localhost:8080"),
                ("origin", "http://localhost:8080"),
                ("x-forwarded-for", "10.1.2.3"),
                ("x-forwarded-host", "api.example:7300"),
                ("x-forwarded-prefix", "/p/8080~t"),
                ("x-forwarded-proto", "http"),
            ]
        );
        let headers = sent(&PreviewLocation::Host { secure: true }, true, &all);
        assert_eq!(headers["authorization"], "Bearer k", "it is the app's own");
        assert_eq!(
            (headers["host"].as_bytes(), &headers["x-forwarded-proto"]),
            (&b"api.example:7300"[..], &HeaderValue::from_static("https"))
        );
        let hidden = sent(
            &PreviewLocation::Host { secure: true },
            true,
            &[("host", "h"), ("connection", "host, x-forwarded-for")],
        );
        assert_eq!(
            (&hidden["host"], &hidden["x-forwarded-for"]),
            (&"h".parse().unwrap(), &"10.1.2.3".parse().unwrap())
        );
        assert!(!headers.contains_key("x-api-key") && !headers.contains_key("x-forwarded-prefix"));
    }

    #[test]
    fn an_upgrade_is_one_only_when_both_headers_say_so() {
        let asked = [("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")];
        let headers = sent(&path_place(), false, &asked);
        assert_eq!(
            (&headers["connection"], &headers["upgrade"]),
            (&"upgrade".parse().unwrap(), &"websocket".parse().unwrap())
        );
        for half in [&asked[..1], &asked[1..]] {
            let headers = sent(&path_place(), false, half);
            assert!(!headers.contains_key("connection") && !headers.contains_key("upgrade"));
        }
    }

    #[test]
    fn an_answer_decides_about_itself_only() {
        let names = [
            "set-cookie",
            "clear-site-data",
            "service-worker-allowed",
            "strict-transport-security",
            "public-key-pins",
            "alt-svc",
            "nel",
            "report-to",
            "reporting-endpoints",
            "keep-alive",
            "access-control-allow-credentials",
            "x-listed",
        ];
        let mut pairs: Vec<(&str, &str)> = names.iter().map(|n| (*n, "x")).collect();
        pairs.extend([
            ("connection", "x-listed"),
            ("access-control-allow-origin", "http://evil"),
            ("content-security-policy", "default-src 'self'"),
            ("referrer-policy", "unsafe-url"),
            ("x-app", "kept"),
        ]);
        let mut headers = map(&pairs);
        let tokened = path_place();
        let back = |place| ReturnedHeaders { place, method: &Method::GET, port: 8080, public: None };
        answer(&mut headers, StatusCode::OK, &back(&tokened));
        names.iter().for_each(|name| assert!(!headers.contains_key(*name), "{name}"));
        assert_eq!(headers["access-control-allow-origin"], "*");
        assert_eq!(
            (headers["x-app"].as_bytes(), headers["referrer-policy"].as_bytes()),
            (&b"kept"[..], &b"no-referrer"[..])
        );
        let policies: Vec<_> = headers.get_all("content-security-policy").iter().collect();
        assert_eq!(policies, ["default-src 'self'", SANDBOX]);
        assert!(!SANDBOX.contains("same-origin"));
        let mut headers = map(&pairs);
        let keyed = PreviewLocation::Path { prefix: "/p/8080".into(), tokened: false };
        answer(&mut headers, StatusCode::OK, &back(&keyed));
        assert!(!headers.contains_key("access-control-allow-origin"));
    }

    #[test]
    fn redirects_stay_in_the_preview() {
        let to = |text: &str| relocated(text, "/p/80~t", 8080, Some("api:7300"));
        let below = |text: &str| Some(format!("/p/80~t{text}"));
        assert_eq!(to("/login?next=/"), below("/login?next=/"));
        assert_eq!(to("http://localhost:8080/a"), below("/a"));
        assert_eq!(to("http://127.0.0.1:8080"), below("/"));
        assert_eq!(to("http://localhost:8080?x"), below("/?x"));
        assert_eq!(to("https://api:7300/x"), below("/x"), "the host that the app was told of");
        for kept in [
            "login",
            "../x",
            "//evil/x",
            "/\\evil",
            "https://evil/x",
            "http://localhost:81/",
            "/p/80~t/x",
            "javascript:1",
            "",
            "http://localhost:8080@evil/",
            "?x",
            "#x",
        ] {
            assert_eq!(to(kept), None, "{kept}");
        }
        assert_eq!(to("/p/80~tx"), below("/p/80~tx"));
    }
}
