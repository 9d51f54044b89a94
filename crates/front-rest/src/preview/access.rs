//! Who may see a preview: the owner by a key, or any client with a token. A server without keys lets in only
//! clients with a token: there any page in the user's browser could send requests, and one whose answer the
//! page may not read can still change something inside.

use crate::App;
use atoll_core::{Port, TokenUse};
use atoll_http::{Access, Failure, caller_of, presented};
use atoll_types::SandboxId;
use axum::http::HeaderMap;

/// The header of a token.
pub(super) const TOKEN: &str = "x-atoll-preview-token";

/// A port that the caller may use.
pub(super) struct Granted {
    pub(super) port: Port,
    /// By a token, which leaves `Authorization` to the app. What it opens is closed when it ends.
    pub(super) token: Option<TokenUse>,
}

/// By a token.
pub(super) async fn by_token(app: &App, token: &str, id: SandboxId, number: u16) -> Result<Granted, Failure> {
    let (port, token) = app.core.ports.by_token(token, id, number).await.map_err(Failure::unknown_caller)?;
    within_rate(app, Granted { port, token: Some(token) })
}

/// By the key in the headers.
pub(super) async fn by_key(
    app: &App,
    headers: &HeaderMap,
    id: SandboxId,
    number: u16,
) -> Result<Granted, Failure> {
    let Some(key) = presented(headers) else {
        return Err(Failure::unauthorized(match app.http.access {
            Access::Keys => "send a key, or a preview token",
            Access::Open => "a preview needs a token, also where nothing else needs a key",
        }));
    };
    let caller = caller_of(&app.http, key).await?;
    let port = app.core.ports.get(&caller, id, number).await?;
    within_rate(app, Granted { port, token: None })
}

fn within_rate(app: &App, granted: Granted) -> Result<Granted, Failure> {
    if app.http.may_ask(&granted.port.owner) { Ok(granted) } else { Err(Failure::too_many()) }
}

/// The token of the header that is for it.
pub(super) fn token_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(TOKEN).map(|v| v.to_str().unwrap_or_default())
}

/// Whether what the request would hand on to the app is one of our keys.
pub(super) async fn carries_a_key(app: &App, headers: &HeaderMap) -> bool {
    match presented(headers) {
        Some(key) => app.core.keys.authenticate(key).await.is_ok(),
        None => false,
    }
}

/// The number of a port, as a part of an address.
pub(super) fn port_number(text: &str) -> Option<u16> {
    let plain = !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}
