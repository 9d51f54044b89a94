//! Previews below the API's own address: `/api/v1/sandboxes/{id}/ports/{port}/…`, and with a token
//! `…/ports/{port}~{token}/…`, which a page's relative links keep.
//!
//! Such a page shares its address with the API. So it gets an origin of its own by its policy, no cookie
//! passes in either direction, and no service worker is ever let in.

use super::{
    access::{self, Granted, port_number},
    headers::{self, PreviewLocation},
    proxy::{Exchange, exchange},
};
use crate::{App, parse::sandbox_id};
use atoll_http::{Failure, PassedOn};
use atoll_types::{Error, ErrorCode};
use axum::{
    extract::{Request, State},
    http::{StatusCode, header, uri::PathAndQuery},
    response::{IntoResponse, Response},
};

/// Empty segment, `api`, `v1`, `sandboxes`, id, `ports`, port; the rest is the app's.
const SEGMENTS: usize = 7;

/// What the address says: the port, the token, all that comes before the app's path, and that.
struct Address<'a> {
    port: &'a str,
    token: Option<&'a str>,
    prefix: &'a str,
    path: &'a str,
}

/// Reads a path as it was sent: what is the app's must arrive as it is.
fn address(path: &str) -> Option<Address<'_>> {
    let mut parts = path.splitn(SEGMENTS + 1, '/');
    let fixed = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
    let (_id, ports, segment) = (parts.next()?, parts.next()?, parts.next()?);
    if fixed != ["", "api", "v1", "sandboxes"] || ports != "ports" {
        return None;
    }
    let (port, token) = match segment.split_once('~') {
        Some((port, token)) => (port, Some(token)),
        None => (segment, None),
    };
    let length = parts.next().map_or(path.len(), |rest| path.len() - rest.len() - 1);
    let (prefix, path) = path.split_at(length);
    Some(Address { port, token, prefix, path })
}

fn is_tokened(path: &str) -> bool {
    address(path).is_some_and(|a| a.token.is_some())
}

/// Whether a path leads to a server inside a sandbox, and by what.
pub(super) fn passed_on(path: &str) -> Option<PassedOn> {
    address(path).map(|address| PassedOn { by_token: address.token.is_some() })
}

/// The page of a port lies below it, so that its relative links do.
pub(crate) async fn redirect(request: Request) -> Result<Response, Failure> {
    let uri = request.uri();
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let to = format!("{}/{query}", uri.path());
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response())
}

/// Passes a request on to a server inside the sandbox, and its answer back. Any method, and any upgrade
/// such as WebSocket. The caller needs a key or a preview token.
#[utoipa::path(get, path = "/api/v1/sandboxes/{id}/ports/{port}/{*path}", tag = "preview",
    params(("id" = uuid::Uuid, Path),
        ("port" = String, Path, description = "1 to 65535, or {port}~{token}"),
        ("path" = String, Path, description = "The path for the server inside")),
    responses((status = 200, description = "Whatever the server inside answers"),
        (status = 401, description = "No key and no token, or one that is worth nothing"), (status = 404), (status = 409),
        (status = 502, description = "Nothing listens on the port, or what it answers is no HTTP"),
        (status = 504, description = "The server inside takes too long")))]
pub(crate) async fn open(State(app): State<App>, request: Request) -> Response {
    let tokened = is_tokened(request.uri().path());
    pass(&app, request).await.unwrap_or_else(|failure| {
        let mut response = failure.into_response();
        if tokened {
            headers::any_origin(response.headers_mut());
        }
        response
    })
}

async fn pass(app: &App, request: Request) -> Result<Response, Failure> {
    let uri = request.uri().clone();
    let address = address(uri.path()).ok_or_else(|| Error::internal("a preview without an address"))?;
    let id = uri.path().split('/').nth(4).unwrap_or_default();
    let id = sandbox_id(id)?;
    let number = port_number(address.port)
        .ok_or_else(|| Failure::in_path(Error::invalid("port", "port must be between 1 and 65535")))?;
    if address.token.is_some()
        && let Some(headers) = headers::preflight(request.method(), request.headers())
    {
        return Ok((StatusCode::NO_CONTENT, headers).into_response());
    }
    if request.headers().contains_key("service-worker") {
        let message = "a preview below the API's address has no service workers; use a preview domain";
        return Err(Error::new(ErrorCode::PermissionDenied, message).into());
    }
    let tokened = address.token.is_some();
    let token = address.token.or_else(|| access::token_header(request.headers()));
    let granted: Granted = match token {
        Some(token) => access::by_token(app, token, id, number).await?,
        None => access::by_key(app, request.headers(), id, number).await?,
    };
    let query = uri.query().map(|q| format!("?{q}")).unwrap_or_default();
    let path = if address.path.is_empty() { "/" } else { address.path };
    let target = PathAndQuery::try_from(format!("{path}{query}"))
        .map_err(|_| Failure::in_path(Error::invalid("path", "this path cannot be passed on")))?;
    let place = PreviewLocation::Path { prefix: address.prefix.to_owned(), tokened };
    exchange(app, Exchange { granted, place, target }, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_sent() {
        fn read(path: &str) -> Option<(&str, Option<&str>, &str, &str)> {
            address(path).map(|a| (a.port, a.token, a.prefix, a.path))
        }
        let base = "/api/v1/sandboxes/i/ports/8080";
        assert_eq!(read(&format!("{base}/a%2Fb/../c//")), Some(("8080", None, base, "/a%2Fb/../c//")));
        let tokened = format!("{base}~abc");
        assert_eq!(read(&format!("{tokened}/")), Some(("8080", Some("abc"), tokened.as_str(), "/")));
        assert_eq!(read(&tokened), Some(("8080", Some("abc"), tokened.as_str(), "")));
        for other in
            ["/", "/api/v1/sandboxes/i/files/8080~x/y", "/api/v1/sandboxes/i/ports", "/x/api/v1/sandboxes"]
        {
            assert_eq!(read(other), None, "{other}");
        }
        assert!(is_tokened(&tokened) && !is_tokened(base));
    }
}
