//! Between the library and a provider: the library reads an error's body whole, and copies an event that has no end with every
//! piece of it. It is given a client that speaks to a socket of this process; what it asks is sent on to the provider from
//! here, and of the response it gets a bounded error or whole events of a bounded size.
//!
//! Invariant: of one response no more than [`LARGEST_EVENT`] is held at once, and no more than [`LARGEST_RESPONSE`] is read.

use super::{ModelFailure, ModelTarget};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use genai::adapter::AdapterKind;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use reqwest::{Body, Client, Url};
use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{net::UnixListener, time::timeout};

/// The largest event: some providers repeat the whole answer in the last one, escaped as JSON.
const LARGEST_EVENT: usize = 16 << 20;
/// The most that is read of one response: each few letters of an answer come in an event of hundreds of bytes.
const LARGEST_RESPONSE: usize = 128 << 20;
/// How much of an error's body is read.
const LARGEST_ERROR: usize = 64 << 10;
/// The headers of a response that are read.
const PASSED_ON: [&str; 3] = ["content-type", "retry-after", "retry-after-ms"];

type Sent = UnsyncBoxBody<Bytes, io::Error>;

/// The way to a provider for one answer.
pub(super) struct Forwarder {
    listener: UnixListener,
    socket: PathBuf,
    provider: Client,
    place: Url,
    lines: bool,
    silence: Duration,
    /// Why there is no answer, where it is known here: the library sees a connection that ends.
    failure: Mutex<Option<ModelFailure>>,
}

impl Forwarder {
    /// Listens on a socket without a file, for this process alone.
    pub(super) fn new(provider: Client, target: &ModelTarget, silence: Duration) -> io::Result<Self> {
        let socket = PathBuf::from(format!("\0atoll-model-{}", uuid::Uuid::new_v4().simple()));
        Ok(Self {
            listener: UnixListener::bind(&socket)?,
            socket,
            provider,
            place: Url::parse(&target.endpoint).map_err(io::Error::other)?,
            lines: target.adapter == AdapterKind::Ollama,
            silence,
            failure: Mutex::default(),
        })
    }

    /// The socket that the library's client connects to.
    pub(super) fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// The base URL that the library is given: no TLS up to here.
    pub(super) fn endpoint(&self) -> String {
        let mut url = self.place.clone();
        // Between these two schemes this cannot fail.
        let _ = url.set_scheme("http");
        url.to_string()
    }

    /// Why the provider did not answer, as it was seen here.
    pub(super) fn failure(&self) -> Option<ModelFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failed(&self, failure: ModelFailure) -> io::Error {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        io::Error::other("the provider did not answer")
    }

    /// Serves this process's own connections, for as long as it is polled.
    pub(super) async fn serve(self: &Arc<Self>) -> ModelFailure {
        let own = i32::try_from(std::process::id()).ok();
        loop {
            let Ok((stream, _)) = self.listener.accept().await else { return ModelFailure::Unreachable };
            // The name of the socket can be read by every process of the machine.
            if stream.peer_cred().ok().and_then(|peer| peer.pid()) != own {
                continue;
            }
            let service = service_fn(|request| {
                let this = Arc::clone(self);
                async move { this.pass_on(request).await }
            });
            // How it ended is known to the library's side of the connection.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        }
    }

    async fn pass_on(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Sent>, io::Error> {
        let (mut head, body) = request.into_parts();
        let mut url = self.place.clone();
        url.set_path(head.uri.path());
        url.set_query(head.uri.query());
        for name in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
            head.headers.remove(name);
        }
        let asked = self.provider.request(head.method, url).headers(head.headers).body(Body::wrap(body));
        let answered = timeout(self.silence, asked.send()).await;
        let answered = answered.map_err(|_| self.failed(ModelFailure::Silent(self.silence)))?;
        let answered = answered.map_err(|error| self.failed(ModelFailure::of_transport(&error)))?;
        let mut response = Response::new(());
        *response.status_mut() = answered.status();
        *response.headers_mut() = passed_on(answered.headers());
        let mut pieces = Pieces::new(answered, self.lines);
        if !response.status().is_success() {
            let text = timeout(self.silence, pieces.error()).await.unwrap_or_default();
            return Ok(response.map(|()| Full::new(text).map_err(|never| match never {}).boxed_unsync()));
        }
        let events = stream::unfold(Some((self, pieces)), |state| async move {
            let (this, mut pieces) = state?;
            match pieces.next(this.silence).await {
                Ok(Some(bytes)) => Some((Ok(Frame::data(bytes)), Some((this, pieces)))),
                Ok(None) => None,
                Err(failure) => Some((Err(this.failed(failure)), None)),
            }
        });
        Ok(response.map(|()| StreamBody::new(events).boxed_unsync()))
    }
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let known = headers.iter().filter(|(name, _)| PASSED_ON.contains(&name.as_str()));
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A response's body, piece by piece.
struct Pieces {
    response: reqwest::Response,
    events: Events,
}

impl Pieces {
    fn new(response: reqwest::Response, lines: bool) -> Self {
        Self { response, events: Events { lines, ..Events::default() } }
    }

    /// The beginning of an error's body.
    async fn error(&mut self) -> Bytes {
        let mut text = BytesMut::new();
        while let Ok(Some(piece)) = self.response.chunk().await {
            text.extend_from_slice(&piece);
            if text.len() >= LARGEST_ERROR {
                text.truncate(LARGEST_ERROR);
                break;
            }
        }
        text.freeze()
    }

    /// The next whole events; at the end of the body what is left.
    async fn next(&mut self, silence: Duration) -> Result<Option<Bytes>, ModelFailure> {
        loop {
            let piece = timeout(silence, self.response.chunk()).await;
            let piece = piece.map_err(|_| ModelFailure::Silent(silence))?;
            let whole = match piece.map_err(|error| ModelFailure::of_transport(&error))? {
                Some(piece) => self.events.add(&piece).ok_or(ModelFailure::TooLarge)?,
                None => {
                    let rest = self.events.held.split().freeze();
                    return Ok(Some(rest).filter(|rest| !rest.is_empty()));
                }
            };
            if !whole.is_empty() {
                return Ok(Some(whole));
            }
        }
    }
}

/// Puts whole events together: they end with an empty line, or with their line.
#[derive(Default)]
struct Events {
    lines: bool,
    held: BytesMut,
    /// Whether what is held ends with a newline.
    ended_line: bool,
    read: usize,
}

impl Events {
    /// The events that are whole with this piece; none where they are larger than they may be.
    fn add(&mut self, piece: &[u8]) -> Option<Bytes> {
        self.read += piece.len();
        let held = self.held.len();
        let mut whole = 0;
        for (at, byte) in piece.iter().enumerate() {
            match byte {
                b'\n' => {
                    if self.lines || self.ended_line {
                        whole = held + at + 1;
                    }
                    self.ended_line = true;
                }
                b'\r' => {}
                _ => self.ended_line = false,
            }
        }
        self.held.extend_from_slice(piece);
        let whole = self.held.split_to(whole).freeze();
        (self.held.len() <= LARGEST_EVENT && self.read <= LARGEST_RESPONSE).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::network::Clients, *};
    use crate::ModelSettings;
    use atoll_egress::Reach;

    #[tokio::test]
    async fn a_provider_that_says_nothing_is_told_as_that() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = ModelSettings {
            model: Some("m".into()),
            base_url: Some(format!("http://{}", silent.local_addr().unwrap())),
            ..ModelSettings::default()
        };
        let target = ModelTarget::of(&settings, true).unwrap();
        let (clients, silence) = (Clients::new(Reach::default()).unwrap(), Duration::from_millis(50));
        let forwarder = Forwarder::new(clients.of(&target).unwrap(), &target, silence).unwrap();
        let forwarder = Arc::new(forwarder);
        let client = clients.to(&forwarder).unwrap();
        tokio::select! {
            answered = client.post(forwarder.endpoint()).body("{}").send() => assert!(answered.is_err()),
            ended = forwarder.serve() => panic!("{ended:?}"),
        }
        assert_eq!(forwarder.failure(), Some(ModelFailure::Silent(silence)));
    }

    /// What is passed on of pieces, and what is held at the end.
    fn passed(lines: bool, pieces: &[&str]) -> (Vec<String>, String) {
        let mut events = Events { lines, ..Events::default() };
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
        let whole = pieces.iter().map(|piece| text(events.add(piece.as_bytes()).unwrap())).collect();
        (whole, text(events.held.freeze()))
    }

    #[test]
    fn only_whole_events_are_passed_on() {
        let (whole, held) =
            passed(false, &["data: 1\n", "\ndata: 2\n\nda", "ta: 3\r\n", "\r\n", "data: 4\n"]);
        assert_eq!(whole, ["", "data: 1\n\ndata: 2\n\n", "", "data: 3\r\n\r\n", ""]);
        assert_eq!(held, "data: 4\n");
        assert_eq!(passed(true, &["{}\n{", "}\n"]), (vec!["{}\n".into(), "{}\n".into()], String::new()));
    }

    #[test]
    fn an_event_and_a_response_are_bounded() {
        let mut events = Events::default();
        let piece = vec![b'x'; LARGEST_EVENT / 4];
        assert!((0..4).all(|_| events.add(&piece).is_some()));
        assert!(events.add(b"x").is_none(), "an event without an end");
        let mut events = Events::default();
        let event = [&piece[..], b"\n\n"].concat();
        let most = LARGEST_RESPONSE / event.len();
        assert!((0..most).all(|_| events.add(&event).is_some()));
        assert!(events.add(&event).is_none(), "events without an end");
    }
}
