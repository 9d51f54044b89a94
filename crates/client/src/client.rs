//! One request: built, sent, and its response read. Every operation goes through here, so every error is made
//! here.

use crate::{
    ApiError, Error, Result, ServerReply,
    transport::{self, Body, BoxError, Http},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::{
    Method, Request, Response,
    body::Incoming,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT},
    http::request::Builder,
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// More than two full outputs of a command, each character of them escaped.
const LARGEST_ANSWER: usize = 128 << 20;

/// A server's URL, and the key to authenticate with.
#[derive(Clone)]
pub struct Client {
    base: String,
    authorization: Option<HeaderValue>,
    http: Http,
}

// The key must not reach a log.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the server at `url`, with a key where it requires one. Nothing is sent yet.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self> {
        let (base, tls) = transport::base(url)?;
        let authorization = key.map(|key| {
            let value = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut value =
                value.map_err(|_| Error::Url("the API key has characters that no key has".into()))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        });
        Ok(Self { base, authorization: authorization.transpose()?, http: transport::http(tls)? })
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Sends a request and returns its response, if that is a success.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        content: Option<&'static str>,
        body: Body,
    ) -> Result<Response<Incoming>> {
        let mut builder = self.request(method, path);
        if let Some(content) = content {
            builder = builder.header(CONTENT_TYPE, content);
        }
        let response = self.answer(builder, body).await?;
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    /// The head of every request.
    pub(crate) fn request(&self, method: Method, path: &str) -> Builder {
        let builder = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header(ACCEPT, "application/json, application/octet-stream")
            .header(USER_AGENT, concat!("atoll-client/", env!("CARGO_PKG_VERSION")));
        match &self.authorization {
            Some(value) => builder.header(AUTHORIZATION, value),
            None => builder,
        }
    }

    /// The server's response, whatever its status.
    pub(crate) async fn answer(&self, builder: Builder, body: Body) -> Result<Response<Incoming>> {
        let request =
            builder.body(body).map_err(|e| Error::Url(format!("the request cannot be sent: {e}")))?;
        self.exchange(request).await
    }

    pub(crate) async fn exchange(&self, request: Request<Body>) -> Result<Response<Incoming>> {
        self.http.request(request).await.map_err(|e| self.failed(e))
    }

    fn failed(&self, error: hyper_util::client::legacy::Error) -> Error {
        let cause = root_cause(&error);
        if error.is_connect() {
            Error::Unreachable { url: self.base.clone(), cause }
        } else {
            Error::Unexpected(format!("the connection broke ({cause})"))
        }
    }

    pub(crate) async fn refused(&self, response: Response<Incoming>) -> Error {
        let status = response.status();
        let retry = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok());
        let body = collect(response).await.unwrap_or_default();
        let mut error = ApiError::parse(status.as_u16(), status.canonical_reason(), &body);
        error.retry_after_seconds = retry;
        Error::Api(Box::new(error))
    }

    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
    ) -> Result<ServerReply<T>> {
        let response = self.send(method, path, None, empty()).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }

    pub(crate) async fn tell<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ServerReply<T>> {
        let response = self.send_json(method, path, body).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }

    pub(crate) async fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Response<Incoming>> {
        let body =
            serde_json::to_vec(body).map_err(|e| Error::Url(format!("the request cannot be sent: {e}")))?;
        let body = Full::new(Bytes::from(body)).map_err(BoxError::from).boxed_unsync();
        self.send(method, path, Some("application/json"), body).await
    }
}

pub(crate) fn empty() -> Body {
    Empty::new().map_err(BoxError::from).boxed_unsync()
}

pub(crate) async fn collect(response: Response<Incoming>) -> Result<Vec<u8>> {
    match Limited::new(response.into_body(), LARGEST_ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) => Err(Error::Unexpected(format!("its answer broke off ({error})"))),
    }
}

/// The innermost cause, which is the most specific.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}
