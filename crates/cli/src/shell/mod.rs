//! `atoll shell`: a terminal in a sandbox, at the user's own. It outlives the connection: after a restart of
//! the server it attaches again, and the output continues where it was.

mod keys;
mod tty;

use crate::{Failure, args::Shell, pairs, resolve, terminal};
use atoll_client::{
    Client, Error, OpenTerminal, Terminal, TerminalEvent, TerminalInput, TerminalOutput, Uuid,
};
use atoll_types::ExitCode;
use keys::{Keys, Typed};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    future::pending,
    io::{self, Write},
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt,
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use tty::{Raw, Screen};

/// How long to try to reach a server that went away.
const PATIENCE: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A connection that lasted this long resets the count of failures.
const LASTING: Duration = Duration::from_secs(5);
/// How often the end of standard input is sent again.
const REMIND: Duration = Duration::from_secs(1);

/// Why the session ends.
enum End {
    Exit(i32),
    Detached,
    /// A signal ended this process.
    Signal(i32),
    Failed(Failure),
}

/// The user's side of a terminal.
struct ShellSession {
    client: Client,
    sandbox: Uuid,
    exec_id: String,
    /// The offset of the next byte of output.
    offset: u64,
    /// Before the next attempt to connect again.
    pause: Duration,
    keys: Keys,
    screen: Screen,
    raw: Raw<rustix::fd::BorrowedFd<'static>>,
}

pub(crate) async fn run(options: Shell) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let Shell { id: typed, command, attach, cwd, user, env, server: _ } = options;
    let sandbox = resolve::sandbox(&client, &typed).await?;
    let about = |e: Error| Failure::from(e).about(&typed);
    let size = tty::size();
    let attach = match attach {
        Some(text) => Some(resolve::exec(&client, sandbox, &text).await.map_err(|f| f.about(&typed))?),
        None => None,
    };
    let opened = match attach {
        Some(exec) => client.attach_terminal(sandbox, &exec.simple().to_string(), None, size).await,
        None => {
            let request =
                OpenTerminal { command, working_directory: cwd, env_vars: pairs::map(env), user, size };
            client.open_terminal(sandbox, &request).await
        }
    };
    let opened = opened.map_err(about)?;
    // Before the terminal is raw, so that a signal cannot leave it so.
    let mut ends = Ends::new();
    let person = rustix::termios::isatty(rustix::stdio::stdin());
    let mut session = ShellSession {
        client,
        sandbox,
        exec_id: opened.exec_id.clone(),
        offset: opened.offset,
        pause: FIRST_PAUSE,
        keys: Keys::new(person),
        screen: Screen::default(),
        raw: Raw::new(rustix::stdio::stdin()),
    };
    let end = tokio::select! {
        end = session.stay(opened) => end,
        number = ends.next() => End::Signal(number),
    };
    session.leave(&typed, end)
}

/// The signals that end this process.
struct Ends(Vec<(SignalKind, tokio::signal::unix::Signal)>);

impl Ends {
    fn new() -> Self {
        let kinds =
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
        Self(kinds.into_iter().filter_map(|kind| Some((kind, signal(kind).ok()?))).collect())
    }

    /// The number of the first that comes.
    async fn next(&mut self) -> i32 {
        let waiting = self.0.iter_mut().map(|(kind, stream)| {
            Box::pin(async move {
                stream.recv().await;
                kind.as_raw_value()
            })
        });
        futures_util::future::select_all(waiting).await.0
    }
}

/// Why a connection ended.
enum Broken {
    Over(End),
    Lost,
}

impl ShellSession {
    async fn stay(&mut self, mut terminal: Terminal) -> End {
        loop {
            let began = Instant::now();
            let broken = self.follow(terminal).await;
            if began.elapsed() > LASTING {
                self.pause = FIRST_PAUSE;
            }
            match broken {
                Broken::Over(end) => return end,
                Broken::Lost => match self.connect_again().await {
                    Ok(again) => terminal = again,
                    Err(end) => return end,
                },
            }
        }
    }

    /// Serves a terminal until it ends, the user detaches, or the connection breaks.
    async fn follow(&mut self, terminal: Terminal) -> Broken {
        let Terminal { exec_id: _, offset: _, mut output, mut input } = terminal;
        let Self { keys, screen, offset, raw, .. } = self;
        tokio::select! {
            broken = show(&mut output, screen, offset) => broken,
            () = type_on(&mut input, keys, raw) => {
                // Input that was typed before must arrive before this process ends.
                let _ = input.close().await;
                let _ = tokio::time::timeout(LONGEST_PAUSE, async { while output.next().await.is_ok() {} }).await;
                Broken::Over(End::Detached)
            }
        }
    }

    async fn connect_again(&mut self) -> Result<Terminal, End> {
        self.say("the connection broke; connecting again (ctrl-c gives up)");
        let began = Instant::now();
        loop {
            tokio::select! {
                () = sleep(self.pause) => {}
                () = self.keys.gives_up() => return Err(End::Detached),
            }
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            let error = match self.try_again().await? {
                Ok(terminal) => {
                    let lost = terminal.offset.saturating_sub(self.offset);
                    if lost > 0 {
                        self.say(&format!("{lost} bytes of output are not kept any more"));
                    }
                    self.offset = terminal.offset;
                    return Ok(terminal);
                }
                Err(error) => error,
            };
            let passing = match &error {
                Error::Api(error) => error.status >= 500 || error.status == 429,
                Error::Unreachable { .. } | Error::Unexpected(_) => true,
                Error::Url(_) => false,
            };
            if !passing || began.elapsed() > PATIENCE {
                return Err(End::Failed(error.into()));
            }
        }
    }

    async fn try_again(&mut self) -> Result<atoll_client::Result<Terminal>, End> {
        let Self { client, sandbox, exec_id, offset, keys, .. } = self;
        tokio::select! {
            tried = client.attach_terminal(*sandbox, exec_id, Some(*offset), tty::size()) => Ok(tried),
            () = keys.gives_up() => Err(End::Detached),
        }
    }

    /// Prints a remark on a raw terminal.
    fn say(&self, text: &str) {
        let _ = write!(io::stderr(), "\r\natoll: {text}\r\n");
    }

    /// Restores the user's terminal and prints why the session ended.
    fn leave(self, typed: &str, end: End) -> Result<u8, Failure> {
        if !matches!(end, End::Exit(_)) && rustix::termios::isatty(rustix::stdio::stdout()) {
            let _ = io::stdout().write_all(&self.screen.calm()).and_then(|()| io::stdout().flush());
        }
        let Self { exec_id, raw, .. } = self;
        drop(raw);
        let again = || {
            let _ = writeln!(io::stderr());
            let line =
                format!("the terminal lives on; attach again with `atoll shell {typed} --attach {exec_id}`");
            terminal::note(&line);
        };
        match end {
            End::Exit(code) => Ok(u8::try_from(code).unwrap_or(u8::MAX)),
            End::Detached => {
                again();
                Ok(0)
            }
            End::Signal(number) => {
                again();
                Ok(ExitCode::signal(number).as_u8())
            }
            End::Failed(failure) if failure.is_broken_pipe() => Ok(0),
            End::Failed(failure) => {
                again();
                Err(failure.about(typed))
            }
        }
    }
}

/// Prints the terminal's output.
async fn show(output: &mut TerminalOutput, screen: &mut Screen, offset: &mut u64) -> Broken {
    let mut stdout = tokio::io::stdout();
    loop {
        match output.next().await {
            Ok(TerminalEvent::Output(bytes)) => {
                *offset += bytes.len() as u64;
                screen.printed(&bytes);
                if let Err(error) = async { stdout.write_all(&bytes).await.and(stdout.flush().await) }.await {
                    return Broken::Over(End::Failed(Failure::output(error)));
                }
            }
            Ok(TerminalEvent::Dropped(bytes)) => {
                *offset += bytes;
                let _ = write!(io::stderr(), "\r\natoll: {bytes} bytes of output are not kept any more\r\n");
            }
            Ok(TerminalEvent::Exit { exit_code, signal: _ }) => return Broken::Over(End::Exit(exit_code)),
            Err(Error::Api(error)) => return Broken::Over(End::Failed(Error::Api(error).into())),
            Err(_) => return Broken::Lost,
        }
    }
}

/// Sends input, and the size when it changes. Returns when the user detaches.
async fn type_on(input: &mut TerminalInput, keys: &mut Keys, raw: &Raw<rustix::fd::BorrowedFd<'static>>) {
    let mut resized = signal(SignalKind::window_change()).ok();
    let mut stopped = signal(SignalKind::from_raw(Signal::TSTP.as_raw())).ok();
    let mut over = false;
    loop {
        let sent = tokio::select! {
            typed = keys.next(), if !over => match typed {
                Typed::Input(bytes) => input.write(bytes).await,
                Typed::Detach => return,
                Typed::End => {
                    over = true;
                    input.end().await
                }
            },
            // A program that was not yet reading at the first end of input would read on for ever otherwise.
            () = sleep(REMIND), if over => input.end().await,
            () = next(&mut resized) => resize(input).await,
            () = next(&mut stopped) => {
                raw.leave();
                let _ = kill_process(getpid(), Signal::STOP);
                raw.enter();
                resize(input).await
            }
        };
        if sent.is_err() {
            // The receiving half finds out why the connection ended.
            pending::<()>().await;
        }
    }
}

async fn resize(input: &mut TerminalInput) -> atoll_client::Result<()> {
    match tty::size() {
        Some(size) => input.resize(size).await,
        None => Ok(()),
    }
}

async fn next(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => pending().await,
    }
}
