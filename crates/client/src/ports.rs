//! Servers inside a sandbox: tokens that open a port to a browser, and connections to one.

use crate::{Client, Error, Result, ServerReply, client::empty, sandboxes::at};
use hyper::{
    Method, Request, StatusCode,
    header::{
        CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        handshake::{client::generate_key, derive_accept_key},
        protocol::{Role, WebSocketConfig},
    },
};
use uuid::Uuid;

/// The largest message that either side sends.
const LARGEST: usize = 1 << 20;

/// A token to make; what is left out has the server's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CreatePreviewToken {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// A bearer token that opens a port.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PreviewToken {
    /// By which it is listed and revoked.
    pub id: Uuid,
    pub token: String,
    #[serde(default)]
    pub expires_at: String,
    /// The page's URL with a host name of its own, where the server has a domain for that.
    #[serde(default)]
    pub host_url: Option<String>,
}

/// What is stored of a token that is valid; the token itself is not.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ValidPreviewToken {
    pub id: Uuid,
    /// The one port that it opens; all, where none is named.
    #[serde(default)]
    pub port: Option<u16>,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub expires_at: String,
}

/// One TCP connection to a port of a sandbox. Binary messages are bytes; an empty one is the end of its
/// direction.
pub type Forward = WebSocketStream<TokioIo<Upgraded>>;

impl Client {
    /// Makes a token.
    pub async fn create_preview_token(
        &self,
        id: Uuid,
        new: &CreatePreviewToken,
    ) -> Result<ServerReply<PreviewToken>> {
        self.tell(Method::POST, &at(id, "/preview-tokens"), new).await
    }

    /// The tokens of a sandbox that are valid, the newest first.
    pub async fn preview_tokens(&self, id: Uuid) -> Result<ServerReply<Vec<ValidPreviewToken>>> {
        self.ask(Method::GET, &at(id, "/preview-tokens")).await
    }

    /// Revokes a token; what it opened is closed.
    pub async fn revoke_preview_token(&self, id: Uuid, token: Uuid) -> Result<()> {
        let path = at(id, &format!("/preview-tokens/{token}"));
        self.send(Method::DELETE, &path, None, empty()).await.map(drop)
    }

    /// The URL of a port's page, below the server's own address.
    #[must_use]
    pub fn preview_url(&self, id: Uuid, port: u16, token: &str) -> String {
        format!("{}{}", self.url(), at(id, &format!("/ports/{port}~{token}/")))
    }

    /// Connects to a port of a sandbox.
    pub async fn forward(&self, id: Uuid, port: u16) -> Result<Forward> {
        self.websocket(&at(id, &format!("/forward?port={port}"))).await
    }

    /// Opens a WebSocket. A refusal is the server's own error, as for any other request.
    async fn websocket(&self, path: &str) -> Result<Forward> {
        let key = generate_key();
        let request = self.request(Method::GET, path).body(empty());
        let mut request: Request<_> =
            request.map_err(|e| Error::Url(format!("the request cannot be sent: {e}")))?;
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        let value = HeaderValue::from_str(&key).map_err(|e| Error::Url(e.to_string()))?;
        headers.insert(SEC_WEBSOCKET_KEY, value);
        let response = self.exchange(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.refused(response).await);
        }
        let accept = response.headers().get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
        if accept != Some(derive_accept_key(key.as_bytes()).as_bytes()) {
            return Err(Error::Unexpected("it opened something that is no WebSocket of ours".into()));
        }
        let upgraded = hyper::upgrade::on(response).await;
        let upgraded = upgraded.map_err(|e| Error::Unexpected(format!("the connection broke ({e})")))?;
        let config = WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST));
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config)).await)
    }
}
