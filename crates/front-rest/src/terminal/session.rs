//! One client at a terminal. Two loops that do not wait for each other: one sends what the terminal
//! prints, one types what the client sends. Neither holds more than a message, so a client that reads
//! or is read slowly slows only itself.

use super::frames::{self, ClientFrame, CloseCode, ServerFrame};
use atoll_core::{Keyboard, Terminal, TerminalEvent, TerminalStream};
use atoll_http::{BrowserSession, Life};
use atoll_types::{Error, ErrorCode, TerminalSize};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

const PING: Duration = Duration::from_secs(20);
/// A client that sent nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How long a client may take to answer our goodbye.
const GOODBYE: Duration = Duration::from_secs(2);
/// A write that took this long had to wait for the client to read.
const WAITED: Duration = Duration::from_millis(100);
/// The largest message of a client.
pub(super) const LARGEST_MESSAGE: usize = 1 << 20;
/// Typed at one time.
const PIECE: usize = 256 << 10;

/// Why it ends from our side.
struct CloseReason {
    code: CloseCode,
    error: Option<Error>,
}

impl CloseReason {
    fn of(code: CloseCode) -> Self {
        Self { code, error: None }
    }
}

/// When the client last sent something; none while the server does not read.
struct Pulse(Mutex<Option<Instant>>);

impl Pulse {
    fn set(&self, to: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    fn beat(&self) {
        self.set(Some(Instant::now()));
    }

    /// Returns when the client was silent for too long.
    async fn lost(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last.elapsed() > SILENCE) {
                return;
            }
        }
    }
}

/// Tells a browser, which is told nothing of an upgrade that is refused, why there is no terminal.
pub(super) async fn refuse(socket: WebSocket, error: Error) {
    let (mut sink, mut stream) = socket.split();
    let refusal = CloseReason { code: CloseCode::Policy, error: Some(error) };
    let _ = timeout(GOODBYE, part(&mut sink, &mut stream, refusal)).await;
}

/// What ends a client's connection from outside of it.
pub(crate) struct Outside {
    pub(super) life: Option<Life>,
    /// Of the browser that is signed in.
    pub(super) browser: Option<BrowserSession>,
}

impl Outside {
    async fn ended(&self) -> CloseReason {
        let shutdown = async {
            match &self.life {
                Some(life) => life.ending().await,
                None => std::future::pending().await,
            }
        };
        let signed_out = async {
            match &self.browser {
                Some(browser) => browser.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown => CloseReason::of(CloseCode::GoingAway),
            () = signed_out => {
                let error = Error::new(ErrorCode::PermissionDenied, "the session has ended; sign in again");
                CloseReason { code: CloseCode::Policy, error: Some(error) }
            }
        }
    }
}

/// Serves one client until it goes away or the command ends. The terminal lives on.
pub(super) async fn run(socket: WebSocket, terminal: Terminal, outside: Outside) {
    let Terminal { report, offset, events, keyboard } = terminal;
    let (mut sink, mut stream) = socket.split();
    let pulse = Pulse(Mutex::new(Some(Instant::now())));
    let ready = ServerFrame::Ready { exec_id: report.id.to_string(), offset };
    if say(&mut sink, &ready).await.is_err() {
        return;
    }
    let (complain, complaints) = mpsc::channel(1);
    let farewell = tokio::select! {
        farewell = print(&mut sink, events, offset, complaints, &pulse) => farewell,
        () = listen(&mut stream, &keyboard, &complain, &pulse) => None,
        () = pulse.lost() => None,
        reason = outside.ended() => Some(reason),
    };
    if let Some(farewell) = farewell {
        let _ = timeout(GOODBYE, part(&mut sink, &mut stream, farewell)).await;
    }
}

async fn say(sink: &mut SplitSink<WebSocket, Message>, frame: &ServerFrame<'_>) -> Result<(), axum::Error> {
    let text = serde_json::to_string(frame).unwrap_or_default();
    sink.send(Message::Text(text.into())).await
}

/// Says goodbye and waits for the answer: a connection closed with something unread would lose it.
async fn part(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    farewell: CloseReason,
) {
    let CloseReason { code, error } = farewell;
    if let Some(Error { code, message, .. }) = &error {
        let _ = say(sink, &ServerFrame::Error { code: *code, message }).await;
    }
    let close = CloseFrame { code: code as u16, reason: "".into() };
    if sink.send(Message::Close(Some(close))).await.is_ok() {
        while let Some(Ok(_)) = stream.next().await {}
    }
}

/// Sends what the terminal prints. None when the client is gone.
async fn print(
    sink: &mut SplitSink<WebSocket, Message>,
    mut events: TerminalStream,
    mut next: u64,
    mut complaints: mpsc::Receiver<CloseReason>,
    pulse: &Pulse,
) -> Option<CloseReason> {
    let mut ping = interval(PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            Some(complaint) = complaints.recv() => return Some(complaint),
            _ = ping.tick() => {
                sink.send(Message::Ping(Bytes::new())).await.ok()?;
                continue;
            }
        };
        match event {
            Ok(TerminalEvent::Output { offset, data }) => {
                if offset > next {
                    say(sink, &ServerFrame::Dropped { bytes: offset - next }).await.ok()?;
                }
                next = offset.saturating_add(data.len() as u64);
                let began = Instant::now();
                sink.send(Message::Binary(data)).await.ok()?;
                if began.elapsed() > WAITED {
                    pulse.beat();
                }
            }
            Ok(TerminalEvent::Ended(report)) => {
                let exit = ServerFrame::Exit { exit_code: report.shell_code().get(), signal: report.signal };
                say(sink, &exit).await.ok()?;
                return Some(CloseReason::of(CloseCode::Normal));
            }
            Err(error) => return Some(CloseReason { code: CloseCode::Internal, error: Some(error) }),
        }
    }
}

/// Does what the client says, one thing after the other. Returns when it has gone away.
async fn listen(
    stream: &mut SplitStream<WebSocket>,
    keyboard: &Keyboard,
    complain: &mpsc::Sender<CloseReason>,
    pulse: &Pulse,
) {
    let complaint = loop {
        let message = match stream.next().await {
            None => return,
            Some(Err(error)) => match fault(&error) {
                Some(farewell) => break farewell,
                // It broke off, or speaks something else.
                None => return,
            },
            Some(Ok(message)) => message,
        };
        pulse.set(None);
        let done = match message {
            Message::Binary(_) | Message::Text(_) if size(&message) > LARGEST_MESSAGE => Err(too_large()),
            Message::Binary(data) => enter(keyboard, data).await,
            Message::Text(text) => handle_frame(keyboard, text.as_str()).await,
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => Ok(()),
        };
        pulse.beat();
        if let Err((code, error)) = done {
            break CloseReason { code, error: Some(error) };
        }
    };
    if complain.send(complaint).await.is_ok() {
        // The other loop ends this one.
        std::future::pending::<()>().await;
    }
}

/// What a client can have done wrong before its message was one. The web framework hides the WebSocket
/// library's error, so it is found by its type; both must use the same version of that library.
fn fault(error: &axum::Error) -> Option<CloseReason> {
    let (code, error) = match std::error::Error::source(error)?.downcast_ref()? {
        tungstenite::Error::Capacity(_) => too_large(),
        tungstenite::Error::Utf8(_) => (
            CloseCode::NotText,
            Error::invalid("message", "a text must be UTF-8; send bytes in a binary message"),
        ),
        _ => return None,
    };
    Some(CloseReason { code, error: Some(error) })
}

fn size(message: &Message) -> usize {
    match message {
        Message::Binary(data) => data.len(),
        Message::Text(text) => text.len(),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => 0,
    }
}

fn too_large() -> (CloseCode, Error) {
    (CloseCode::TooLarge, Error::new(ErrorCode::TooLarge, "a message may have 1 MiB"))
}

type Done = Result<(), (CloseCode, Error)>;

/// Only a mistake of the client is an error here: that the command has ended meanwhile is sent as its end.
fn unless_wrong(result: Result<(), Error>) -> Done {
    match result {
        Err(error) if error.code == ErrorCode::InvalidArgument => Err((CloseCode::Policy, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn enter(keyboard: &Keyboard, data: Bytes) -> Done {
    for at in (0..data.len()).step_by(PIECE) {
        unless_wrong(keyboard.input(data.slice(at..data.len().min(at + PIECE))).await)?;
    }
    Ok(())
}

async fn handle_frame(keyboard: &Keyboard, text: &str) -> Done {
    match frames::read(text)? {
        ClientFrame::Input { data } => enter(keyboard, data.into()).await,
        ClientFrame::Eof {} => unless_wrong(keyboard.end_input().await),
        ClientFrame::Resize { rows, cols } => {
            unless_wrong(keyboard.resize(TerminalSize { rows, columns: cols }).await)
        }
        ClientFrame::Signal { signal } => {
            let number = frames::signal(&signal).map_err(|e| (CloseCode::Policy, e))?;
            unless_wrong(keyboard.signal(number).await)
        }
        ClientFrame::Kill {} => unless_wrong(keyboard.kill().await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the client counts as gone within ten minutes of which it says something in each of these
    /// seconds.
    async fn is_lost(pulse: &Pulse, beats: impl Iterator<Item = u64>) -> bool {
        let began = Instant::now();
        let life = async {
            for second in beats {
                tokio::time::sleep_until(began + Duration::from_secs(second)).await;
                pulse.beat();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = pulse.lost() => true,
            () = life => false,
            () = tokio::time::sleep(Duration::from_secs(600)) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_is_silent_while_we_listen_is_gone() {
        let now = || Pulse(Mutex::new(Some(Instant::now())));
        assert!(is_lost(&now(), std::iter::empty()).await);
        assert!(is_lost(&now(), (0..10).map(|n| n * 20)).await, "silent later on");
        assert!(!is_lost(&now(), (0..40).map(|n| n * 20)).await);
        let busy = now();
        busy.set(None);
        assert!(!is_lost(&busy, std::iter::empty()).await, "it is we who do not listen");
    }
}
