//! Requests to a registry: tokens and passwords, redirects, answers within bounds.

use crate::{
    Digest, LARGEST_DOCUMENT, Network, Reference,
    network::{Connector, authority_of},
};
use atoll_types::{Error, ErrorCode, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::crypto::ring;
use serde::Deserialize;
use std::{fmt, io, sync::Arc, time::Duration};
use tokio::sync::Mutex;
use url::Url;

/// How long a registry may take to begin its answer, and to send its next bytes.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one blob may take to be sent.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
const MOST_REDIRECTS: usize = 5;
/// What of a registry's own words is repeated.
const LONGEST_WORDS: usize = 300;

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Who asks a registry.
#[derive(Clone, Default)]
pub enum Credentials {
    #[default]
    Anonymous,
    Basic {
        user: String,
        password: String,
    },
    /// A token that the registry itself takes.
    Bearer(String),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::Basic { .. } => "Basic",
            Self::Bearer(_) => "Bearer",
        })
    }
}

impl Credentials {
    fn header(&self) -> Result<Option<HeaderValue>> {
        let text = match self {
            Self::Anonymous => return Ok(None),
            Self::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
            }
            Self::Bearer(token) => format!("Bearer {token}"),
        };
        let mut value = HeaderValue::try_from(text).map_err(|_| {
            Error::invalid("credentials", "the credentials have characters that no header may have")
        })?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

/// The client of all registries.
#[derive(Clone, Debug)]
pub struct Registries {
    pub(crate) network: Arc<Network>,
    client: legacy::Client<HttpsConnector<Connector>, Body>,
}

impl Registries {
    /// A client that goes only where this network lets it, and trusts the machine's certificates.
    pub fn new(network: Network) -> Result<Self> {
        let network = Arc::new(network);
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(ring::default_provider())
            .map_err(|e| Error::internal(format!("the machine's certificates cannot be read: {e}")))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(Connector(Arc::clone(&network)));
        let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { network, client })
    }

    /// Requests about one repository. `actions` is what a token is asked for: `pull`, or `pull,push`.
    pub(crate) fn session<'a>(
        &'a self,
        reference: &'a Reference,
        credentials: &'a Credentials,
        actions: &'static str,
    ) -> Result<Session<'a>> {
        let base = self.network.base(reference.registry())?;
        Ok(Session {
            registries: self,
            reference,
            credentials,
            actions,
            base,
            authorization: Mutex::default(),
        })
    }

    /// Sends one request to where the registry at `base` leads.
    async fn once(
        &self,
        base: &Url,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        authorization: Option<HeaderValue>,
        body: Body,
    ) -> Result<Response<Incoming>> {
        self.network.check(url, base)?;
        let authority = authority_of(url)?;
        let timeout = if body.is_end_stream() { ANSWER_TIMEOUT } else { UPLOAD_TIMEOUT };
        let mut request = Request::new(body);
        *request.method_mut() = method.clone();
        *request.uri_mut() =
            url.as_str().parse().map_err(|_| unusable(&authority, "an address that cannot be read"))?;
        *request.headers_mut() = headers.clone();
        request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static("atoll"));
        if let Some(authorization) = authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        match tokio::time::timeout(timeout, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(reason(&error, &authority)),
            Err(_) => Err(Error::new(ErrorCode::Unavailable, format!("{authority} does not answer"))),
        }
    }
}

/// The error below a failed request: ours, where the connector gave one.
fn reason(error: &(dyn std::error::Error + 'static), authority: &str) -> Error {
    let mut at = Some(error);
    let mut last = String::new();
    while let Some(error) = at {
        if let Some(ours) = error.downcast_ref::<Error>() {
            return ours.clone();
        }
        last = error.to_string();
        at = error.source();
    }
    Error::new(ErrorCode::Unavailable, format!("the connection to {authority} failed: {}", words(&last)))
}

fn words(text: &str) -> String {
    text.chars().take(LONGEST_WORDS).collect::<String>().escape_debug().to_string()
}

pub(crate) fn unusable(authority: &str, what: &str) -> Error {
    Error::new(ErrorCode::BadGateway, format!("the registry {authority} sent {what}"))
}

/// The bytes of an answer that is kept in memory.
pub(crate) async fn bounded(authority: &str, response: Response<Incoming>, most: u64) -> Result<Bytes> {
    let body = Limited::new(response.into_body(), usize::try_from(most).unwrap_or(usize::MAX));
    match tokio::time::timeout(ANSWER_TIMEOUT, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            Err(unusable(authority, &format!("a document of more than {most} bytes")))
        }
        Ok(Err(error)) => Err(reason(error.as_ref(), authority)),
        Err(_) => Err(Error::new(ErrorCode::Unavailable, format!("{authority} does not answer"))),
    }
}

/// Requests about one repository, with what the registry asks for to be let in.
pub(crate) struct Session<'a> {
    registries: &'a Registries,
    reference: &'a Reference,
    credentials: &'a Credentials,
    actions: &'static str,
    base: Url,
    authorization: Mutex<Option<HeaderValue>>,
}

impl Session<'_> {
    pub(crate) fn authority(&self) -> &str {
        self.reference.registry()
    }

    async fn once(
        &self,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        authorization: Option<HeaderValue>,
        body: Body,
    ) -> Result<Response<Incoming>> {
        self.registries.once(&self.base, method, url, headers, authorization, body).await
    }

    /// The address of something of the repository.
    pub(crate) fn url(&self, tail: &str) -> Result<Url> {
        let path = format!("{}/{tail}", self.reference.repository());
        self.base.join(&path).map_err(|e| Error::internal(format!("{path:?} is no address: {e}")))
    }

    /// An address that the registry named, relative to the one that was asked.
    pub(crate) fn location(&self, asked: &Url, response: &Response<Incoming>) -> Result<Url> {
        let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        location
            .and_then(|location| asked.join(location).ok())
            .ok_or_else(|| unusable(self.authority(), "a redirect to nowhere"))
    }

    /// Sends a request without a body; redirects are followed, and a registry that asks for credentials gets them. Another
    /// host never does.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: Url,
        headers: &HeaderMap,
    ) -> Result<Response<Incoming>> {
        let (mut at, mut asked_again) = (url, false);
        for _ in 0..=MOST_REDIRECTS {
            let own = at.origin() == self.base.origin();
            let authorization = if own { self.authorization.lock().await.clone() } else { None };
            let response = self.once(&method, &at, headers, authorization.clone(), empty()).await?;
            match response.status() {
                StatusCode::UNAUTHORIZED if own && !asked_again => {
                    asked_again = true;
                    self.authorize(authorization.as_ref(), response.headers()).await?;
                }
                status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
                    at = self.location(&at, &response)?;
                }
                _ => return Ok(response),
            }
        }
        Err(unusable(self.authority(), "too many redirects"))
    }

    /// Sends a body to an address that the registry gave for it.
    pub(crate) async fn send_body(
        &self,
        method: Method,
        url: Url,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>> {
        let own = url.origin() == self.base.origin();
        let authorization = if own { self.authorization.lock().await.clone() } else { None };
        self.once(&method, &url, headers, authorization, body).await
    }

    /// Gets what the registry asks for, unless another request of the session did since.
    async fn authorize(&self, used: Option<&HeaderValue>, headers: &HeaderMap) -> Result<()> {
        let mut authorization = self.authorization.lock().await;
        if authorization.as_ref() != used {
            return Ok(());
        }
        let challenges: Vec<Challenge> = headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| Challenge::parse(value.to_str().ok()?))
            .collect();
        let bearer = challenges.iter().find(|challenge| challenge.scheme.eq_ignore_ascii_case("bearer"));
        *authorization = match (bearer, self.credentials) {
            (_, Credentials::Bearer(_)) => self.credentials.header()?,
            (Some(challenge), _) => Some(self.token(challenge).await?),
            (None, credentials) => credentials.header()?,
        };
        if authorization.is_none() {
            let message = format!("the registry {} wants a user and a password", self.authority());
            return Err(Error::new(ErrorCode::PermissionDenied, message));
        }
        Ok(())
    }

    /// Asks the service that a registry names for a token.
    async fn token(&self, challenge: &Challenge) -> Result<HeaderValue> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let realm = challenge.parameter("realm").and_then(|realm| Url::parse(realm).ok());
        let mut url = realm.ok_or_else(|| unusable(self.authority(), "a challenge without an address"))?;
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = challenge.parameter("service") {
                query.append_pair("service", service);
            }
            query.append_pair(
                "scope",
                &format!("repository:{}:{}", self.reference.repository(), self.actions),
            );
        }
        let authorization = self.credentials.header()?;
        let response = self.once(&Method::GET, &url, &HeaderMap::new(), authorization, empty()).await?;
        let authority = authority_of(&url)?;
        if response.status() != StatusCode::OK {
            return Err(self.failure(response, "a token").await);
        }
        let bytes = bounded(&authority, response, LARGEST_DOCUMENT).await?;
        let token: Token = serde_json::from_slice(&bytes)
            .map_err(|_| unusable(&authority, "a token that cannot be read"))?;
        let token = token.token.or(token.access_token).ok_or_else(|| unusable(&authority, "no token"))?;
        let header = Credentials::Bearer(token).header();
        header?.ok_or_else(|| unusable(&authority, "no token"))
    }

    /// The error for an answer that is not what was asked for.
    pub(crate) async fn failure(&self, response: Response<Incoming>, what: &str) -> Error {
        #[derive(Deserialize)]
        struct ErrorDocument {
            errors: Vec<ErrorEntry>,
        }
        #[derive(Deserialize)]
        struct ErrorEntry {
            #[serde(default)]
            message: String,
        }
        let status = response.status();
        let code = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorCode::PermissionDenied,
            StatusCode::NOT_FOUND => ErrorCode::NotFound,
            status if status.is_server_error() => ErrorCode::Unavailable,
            StatusCode::TOO_MANY_REQUESTS => ErrorCode::Unavailable,
            _ => ErrorCode::BadGateway,
        };
        let said = bounded(self.authority(), response, 16 << 10).await.ok();
        let said = said.and_then(|bytes| serde_json::from_slice::<ErrorDocument>(&bytes).ok());
        let said = said.and_then(|said| said.errors.into_iter().next()).map(|first| words(&first.message));
        let said = said.filter(|text| !text.is_empty()).map(|text| format!(" ({text})")).unwrap_or_default();
        let Self { reference, .. } = self;
        Error::new(
            code,
            format!("{} answered {} for {what} of {reference}{said}", self.authority(), status.as_u16()),
        )
    }

    /// A document of the repository, of which the digest is checked where it is known.
    pub(crate) async fn document(&self, tail: &str, accept: &str, digest: Option<&Digest>) -> Result<Bytes> {
        let mut headers = HeaderMap::new();
        let accept = HeaderValue::try_from(accept).map_err(|e| Error::internal(e.to_string()))?;
        headers.insert(HeaderName::from_static("accept"), accept);
        let response = self.send(Method::GET, self.url(tail)?, &headers).await?;
        if response.status() != StatusCode::OK {
            return Err(self.failure(response, "the manifest or configuration").await);
        }
        let bytes = bounded(self.authority(), response, LARGEST_DOCUMENT).await?;
        match digest {
            Some(digest) if Digest::of(&bytes) != *digest => {
                Err(unusable(self.authority(), &format!("other bytes than those of {digest}")))
            }
            _ => Ok(bytes),
        }
    }
}

/// What a registry wants before it answers: `Bearer realm="…",service="…"`.
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let mut parameters = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', ',']);
            let Some((name, value)) = rest.split_once('=') else { break };
            let value = match value.strip_prefix('"') {
                Some(quoted) => {
                    let mut text = String::new();
                    let mut characters = quoted.char_indices();
                    let end = loop {
                        match characters.next()? {
                            (at, '"') => break at + 1,
                            (_, '\\') => text.push(characters.next()?.1),
                            (_, c) => text.push(c),
                        }
                    };
                    rest = &quoted[end..];
                    text
                }
                None => {
                    let (value, tail) = value.split_once(',').unwrap_or((value, ""));
                    rest = tail;
                    value.trim().to_owned()
                }
            };
            parameters.push((name.trim().to_ascii_lowercase(), value));
        }
        Some(Self { scheme: scheme.to_owned(), parameters })
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_taken_apart() {
        let challenge = Challenge::parse(
            r#"Bearer realm="https://auth.example/token?a=b,c",service="a \"quoted\" one", scope=repository:x:pull"#,
        )
        .unwrap();
        assert_eq!(challenge.scheme, "Bearer");
        assert_eq!(challenge.parameter("realm"), Some("https://auth.example/token?a=b,c"));
        assert_eq!(challenge.parameter("service"), Some(r#"a "quoted" one"#));
        assert_eq!(challenge.parameter("scope"), Some("repository:x:pull"));
        assert_eq!(Challenge::parse("Basic").unwrap().scheme, "Basic");
        assert!(Challenge::parse(r#"Bearer realm="without end"#).is_none());
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let basic = Credentials::Basic { user: "u".into(), password: "hidden".into() };
        assert!(
            !format!("{basic:?} {:?} {:?}", basic.header(), Credentials::Bearer("hidden".into()))
                .contains("hidden")
        );
    }
}
