//! One request and its response, and raw bytes.

use super::{
    body::{Coding, Cut, Framing, relay},
    client::Client,
    head::{self, RequestHead, ResponseHead},
    io::{Buffered, Sink, Source},
};
use crate::session::{Account, Direction, Stop};
use std::{future::poll_fn, io, net::IpAddr, pin::pin, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// How long an answer may take to begin. Models think for minutes.
const ANSWER: Duration = Duration::from_secs(10 * 60);
/// Interim answers to one request.
const MOST_INTERIM: usize = 16;

/// A connection to a host.
pub(super) struct Upstream {
    pub(super) reader: Buffered,
    pub(super) writer: Sink,
    pub(super) address: IpAddr,
    /// Whether a request went over it before.
    pub(super) used: bool,
}

/// The outcome of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Which of the two connections may carry another one.
    Kept { client: bool, upstream: bool },
    /// The protocol was switched: raw bytes follow.
    Switched,
}

/// Why an exchange failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The reused connection had ended before; a new one may work.
    Stale,
    /// The host's response is malformed.
    Answer(String),
    /// There was no response in time.
    Late,
    /// A rule or limit ends it.
    Stop(Stop),
    /// One of the two sides disconnected in the middle.
    Gone(String),
}

impl From<Cut> for Failure {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::From(error) | Cut::To(error) => Self::Gone(error.to_string()),
            Cut::Stop(stop) => Self::Stop(stop),
        }
    }
}

fn gone(error: io::Error) -> Failure {
    Failure::Gone(error.to_string())
}

/// Sends a request whose head was rewritten, and passes the response back.
pub(super) async fn exchange(
    client: &mut Client,
    upstream: &mut Upstream,
    (head, bytes): (&RequestHead, &[u8]),
    account: &Account,
) -> Result<Done, Failure> {
    let may_retry = upstream.used && head.framing == Framing::None;
    let (answer, sent) = match answered(client, upstream, (head, bytes), account).await {
        Err(Failure::Answer(_)) if may_retry && upstream.reader.data().is_empty() => {
            return Err(Failure::Stale);
        }
        other => other?,
    };
    if answer.status == 101 {
        if !head.is_websocket() {
            return Err(Failure::Answer("it switched to a protocol without a request for it".to_owned()));
        }
        let lines = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        deliver(client, &answer, lines, account).await?;
        return Ok(Done::Switched);
    }
    let framing = answer.framing(&head.method).map_err(|e| Failure::Answer(e.to_string()))?;
    let (coding, line) = match framing {
        Framing::None => (Coding::Raw, length_of_nothing(&answer, &head.method)),
        Framing::Length(length) => (Coding::Raw, format!("Content-Length: {length}\r\n")),
        _ if head.minor == 0 => (Coding::Raw, String::new()),
        _ => (Coding::Chunked, "Transfer-Encoding: chunked\r\n".to_owned()),
    };
    let ends_with_it = head.minor == 0 && matches!(framing, Framing::Chunked | Framing::Close);
    let keep_client = sent && head.keeps_open() && !ends_with_it;
    let connection = if keep_client { "keep-alive" } else { "close" };
    deliver(client, &answer, &format!("{line}Connection: {connection}\r\n"), account).await?;
    relay(&mut upstream.reader, framing, &mut client.writer, coding, Some((account, Direction::In))).await?;
    client.writer.flush().await.map_err(gone)?;
    let keep_upstream = sent && answer.keeps_open() && framing != Framing::Close;
    Ok(Done::Kept { client: keep_client, upstream: keep_upstream })
}

/// Sends the request and waits for the response's head. A response may come before the request is complete; then
/// the rest of it is not sent.
async fn answered(
    client: &mut Client,
    upstream: &mut Upstream,
    (head, bytes): (&RequestHead, &[u8]),
    account: &Account,
) -> Result<(ResponseHead, bool), Failure> {
    let Client { reader: from, writer: back, begun } = client;
    let Upstream { reader: answers, writer: to, .. } = upstream;
    account.spend(Direction::Out, bytes.len()).await.map_err(Failure::Stop)?;
    to.write_all(bytes).await.map_err(|e| Failure::Answer(e.to_string()))?;
    to.flush().await.map_err(|e| Failure::Answer(e.to_string()))?;
    let coding = if head.framing == Framing::Chunked { Coding::Chunked } else { Coding::Raw };
    let mut sending = pin!(relay(from, head.framing, to, coding, Some((account, Direction::Out))));
    let mut answering = pin!(timeout(ANSWER, final_head(answers, back, begun, head.minor, account)));
    let (mut sent, mut whole) = (false, false);
    loop {
        tokio::select! {
            // First, so that a request without a body is complete however soon its response comes.
            biased;
            done = &mut sending, if !sent => {
                sent = true;
                match done {
                    Ok(()) => whole = true,
                    // The host may have sent a response before it stopped reading.
                    Err(Cut::To(_)) => {}
                    Err(cut) => return Err(cut.into()),
                }
            }
            answer = &mut answering => {
                let answer = answer.map_err(|_| Failure::Late)??;
                return Ok((answer, whole));
            }
        }
    }
}

/// The head of the final response; interim ones are passed on.
async fn final_head(
    from: &mut Buffered,
    back: &mut Sink,
    begun: &mut bool,
    minor: u8,
    account: &Account,
) -> Result<ResponseHead, Failure> {
    for _ in 0..MOST_INTERIM {
        let (head, length) = loop {
            match head::response(from.data()) {
                Ok(Some(whole)) => break whole,
                Ok(None) => {}
                Err(error) => return Err(Failure::Answer(error.to_string())),
            }
            match from.fill(16 * 1024).await {
                Ok(0) => {
                    return Err(Failure::Answer("it closed the connection without an answer".to_owned()));
                }
                Ok(_) => {}
                Err(error) => return Err(Failure::Answer(error.to_string())),
            }
        };
        from.consume(length);
        if !(100..=199).contains(&head.status) || head.status == 101 {
            return Ok(head);
        }
        if minor == 1 {
            let bytes = written(&head, "");
            account.spend(Direction::In, bytes.len()).await.map_err(Failure::Stop)?;
            *begun = true;
            back.write_all(&bytes).await.map_err(gone)?;
            back.flush().await.map_err(gone)?;
        }
    }
    Err(Failure::Answer("it sent too many interim answers".to_owned()))
}

async fn deliver(
    client: &mut Client,
    answer: &ResponseHead,
    lines: &str,
    account: &Account,
) -> Result<(), Failure> {
    let bytes = written(answer, lines);
    account.spend(Direction::In, bytes.len()).await.map_err(Failure::Stop)?;
    client.begun = true;
    client.writer.write_all(&bytes).await.map_err(gone)?;
    client.writer.flush().await.map_err(gone)
}

fn written(head: &ResponseHead, lines: &str) -> Vec<u8> {
    let mut out = format!("HTTP/1.1 {:03} {}\r\n", head.status, head.reason).into_bytes();
    for header in head::passed_on(&head.headers) {
        out.extend_from_slice(header.name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(&header.value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(lines.as_bytes());
    out.extend_from_slice(b"\r\n");
    out
}

/// A response without a body may say how long it would be.
fn length_of_nothing(answer: &ResponseHead, method: &str) -> String {
    let told = method == "HEAD" || answer.status == 304;
    let would = ResponseHead { status: 200, ..answer.clone() }.framing("GET");
    match would {
        Ok(Framing::Length(length)) if told => format!("Content-Length: {length}\r\n"),
        _ => String::new(),
    }
}

/// Passes bytes on until one side is at its end, and shuts the other down.
pub(crate) async fn pump(
    from: &mut (impl Source + ?Sized),
    first: Vec<u8>,
    to: &mut (impl AsyncWrite + Unpin + ?Sized),
    (account, way): (&Account, Direction),
) -> Result<(), Stop> {
    if !first.is_empty() {
        account.spend(way, first.len()).await?;
        to.write_all(&first).await?;
        to.flush().await?;
        drop(first);
    }
    loop {
        // A connection that waits holds no buffer.
        poll_fn(|cx| from.poll_ready(cx)).await?;
        let chunk = account.chunk();
        let mut buffer = Vec::with_capacity(chunk);
        if (&mut *from).take(chunk as u64).read_buf(&mut buffer).await? == 0 {
            // The other side may have closed already.
            let _ = to.shutdown().await;
            return Ok(());
        }
        account.spend(way, buffer.len()).await?;
        to.write_all(&buffer).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Decision, Egress, EgressSettings, Host, Policy, Presets, Recorder, Rules, Via,
        http::{Tcp, head},
        session::{Caller, Claim, EgressSession},
    };
    use std::{net::SocketAddr, sync::Arc, time::Instant};
    use tokio::net::{TcpListener, TcpStream};

    struct NoRecorder;

    impl Recorder for NoRecorder {
        fn asked(&self, _: SocketAddr) -> u64 {
            0
        }
        fn decided(&self, _: u64, _: Decision) {}
    }

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (stream, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_request_without_a_body_is_whole_however_soon_its_answer_is_there() {
        let policy: Policy = serde_json::from_str(r#"{"mode":"full"}"#).unwrap();
        let rules = Rules::new("egress", &policy, &Presets::default(), &Arc::default()).unwrap();
        let (_sender, rules) = tokio::sync::watch::channel(Arc::new(rules));
        let nameservers = vec![SocketAddr::from(([127, 0, 0, 1], 9))];
        let egress = Egress::new(EgressSettings { nameservers, ..EgressSettings::default() }).unwrap();
        let caller =
            Caller::new(&EgressSession::new(Arc::clone(&egress.0), rules, Arc::new(NoRecorder)), 0, None);
        let claim = Claim::new(Via::Http, Host::Name("a.example".into()), 80);
        let account = Account::new(&caller, claim, "full", Instant::now());
        let bytes = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let (head, _) = head::request(bytes).unwrap().unwrap();
        for _ in 0..50 {
            let ((inside, _client), (outside, _host)) = (connection().await, connection().await);
            let stream = Tcp::new(outside);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec();
            let reader = Buffered::new(stream.clone(), answer);
            let address = [127, 0, 0, 1].into();
            let mut upstream = Upstream { reader, writer: Box::new(stream), address, used: false };
            let mut client = Client::new(inside, Vec::new());
            let done = exchange(&mut client, &mut upstream, (&head, bytes), &account).await.unwrap();
            assert_eq!(done, Done::Kept { client: true, upstream: true });
        }
    }
}
