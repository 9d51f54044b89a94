//! Feeding a command's stdin. A command that does not read blocks only the call that writes to it.

use super::{
    record::{Exec, Phase},
    spawn::Pipe,
    terminal::end_of_input,
};
use atoll_types::{Error, ErrorCode, Result};
use tokio::sync::Mutex;

/// PID 1's end, until it is closed. Writers take turns.
#[derive(Default)]
pub(crate) struct Stdin(Mutex<Input>);

#[derive(Default)]
struct Input {
    end: Option<Pipe>,
    terminal: bool,
    /// Whether the last line that was typed has no end yet.
    unfinished: bool,
}

impl Input {
    /// Writes all of it, counting as it goes; false when the command has closed its end.
    async fn write(&mut self, bytes: &[u8], written: &mut u64) -> Result<bool> {
        let Some(end) = &self.end else {
            return Err(Error::new(ErrorCode::Conflict, "the command's stdin is closed"));
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let Ok(mut ready) = end.writable().await else { break };
            match ready.try_io(|fd| Ok(rustix::io::write(fd, rest)?)) {
                Ok(Ok(length)) => {
                    *written += length as u64;
                    self.unfinished = !matches!(rest[..length].last(), Some(b'\n' | b'\r'));
                    rest = &rest[length..];
                }
                Ok(Err(_)) => break,
                Err(_would_block) => {}
            }
        }
        if !rest.is_empty() {
            self.end = None;
        }
        Ok(rest.is_empty())
    }

    /// Types the end of input. In the middle of a line the first character only hands the line over. Others may
    /// type on: a terminal is closed only by its command's end.
    async fn type_end(&mut self) {
        let Some(end) = &self.end else { return };
        let mark = end_of_input(end.get_ref());
        let times = if self.unfinished { 2 } else { 1 };
        // A command that is gone needs no end.
        let _ = self.write(&[mark; 2][..times], &mut 0).await;
        self.unfinished = false;
    }
}

impl Stdin {
    pub(crate) fn new(end: Option<Pipe>, terminal: bool) -> Self {
        Self(Mutex::new(Input { end, terminal, unfinished: false }))
    }

    /// Closes unless a writer holds it, which stops when the command has ended and closes then.
    pub(crate) fn close_now(&self) {
        if let Ok(mut input) = self.0.try_lock() {
            input.end = None;
        }
    }
}

impl Exec {
    /// Writes to stdin until all is written, or the command closes it or ends; false for the latter.
    pub(crate) async fn feed(&self, bytes: &[u8], written: &mut u64) -> Result<bool> {
        let write = async { self.stdin.0.lock().await.write(bytes, written).await };
        self.unless_ended(write).await.unwrap_or(Ok(false))
    }

    /// Lets the command see the end of its input.
    pub(crate) async fn end_input(&self) {
        let close = async {
            let mut input = self.stdin.0.lock().await;
            match input.terminal {
                true => input.type_end().await,
                false => input.end = None,
            }
        };
        self.unless_ended(close).await;
    }

    /// Runs an operation on stdin, unless the command ends meanwhile: then stdin is closed.
    async fn unless_ended<T>(&self, act: impl Future<Output = T>) -> Option<T> {
        let mut watch = self.watch();
        tokio::select! {
            biased;
            done = act => return Some(done),
            _ = watch.wait_for(|s| s.phase == Phase::Ended) => {}
        }
        self.stdin.0.lock().await.end = None;
        None
    }
}
