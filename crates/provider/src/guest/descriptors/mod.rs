//! Files as open descriptors: where PID 1 shares this machine's kernel, it opens a file and passes it, and
//! this side reads or writes it without PID 1's help. Everything else goes over gRPC calls, and so do files
//! where there is no such connection.

mod check;
mod connection;
mod jobs;
mod read;
mod write;

use super::{Guest, exec::hostile, files::entry_of};
use async_trait::async_trait;
use atoll_guest_proto::{
    FEATURE_DESCRIPTORS, from_failure,
    v1::{Abandon, Commit, ReadFileRequest, WriteHead, descriptor_reply::Reply, descriptor_request::Request},
};
use atoll_types::{Error, ErrorCode, Result, files::Entry};
use bytes::Bytes;
use check::{Passed, Purpose};
use connection::{Broken, Connection};
use futures_util::Stream;
use jobs::Jobs;
pub(super) use read::Reading;
use std::{
    os::unix::net::UnixStream,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;

/// Opens connections to PID 1, besides the one for calls.
#[async_trait]
pub trait Dial: Send + Sync {
    /// A new connection.
    async fn dial(&self) -> Result<UnixStream>;
}

/// Connections kept for the next file. A new one costs the launcher a process.
const MOST_IDLE: usize = 4;
/// New ones at a time: a caller that waits may get one that has become free.
const DIALLING: usize = 4;
/// How long a new one may take before the file goes over calls instead.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections for one container's files.
pub(super) struct Descriptors {
    dial: Arc<dyn Dial>,
    idle: Mutex<Vec<Connection>>,
    dialling: Semaphore,
    jobs: Jobs,
}

/// A connection that one file uses exclusively.
pub(super) struct Passage {
    descriptors: Arc<Descriptors>,
    connection: Connection,
}

impl Passage {
    /// Keeps the connection, on which nothing is under way any more.
    fn keep(self) {
        let mut idle = self.descriptors.idle();
        if idle.len() < MOST_IDLE {
            idle.push(self.connection);
        }
    }
}

impl Descriptors {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection.
    fn kept(&self) -> Option<Connection> {
        std::iter::from_fn(|| self.idle().pop()).find(Connection::is_quiet)
    }

    async fn connection(&self) -> Option<Connection> {
        if let Some(kept) = self.kept() {
            return Some(kept);
        }
        let dial = async {
            let _turn = self.dialling.acquire().await.ok()?;
            match self.kept() {
                Some(kept) => Some(kept),
                None => Connection::new(self.dial.dial().await.ok()?).ok(),
            }
        };
        tokio::time::timeout(PATIENCE, dial).await.ok()?
    }
}

impl Guest {
    /// Enables descriptors, where PID 1 supports them.
    #[must_use]
    pub fn with_descriptors(mut self, dial: Arc<dyn Dial>) -> Self {
        let dialling = Semaphore::new(DIALLING);
        let descriptors = Descriptors { dial, idle: Mutex::default(), dialling, jobs: Jobs::default() };
        self.descriptors = Some(Arc::new(descriptors));
        self
    }

    /// A connection for a file, where descriptors can pass now.
    pub(super) async fn passage(&self) -> Option<Passage> {
        let descriptors = self.descriptors.clone().filter(|_| self.has(FEATURE_DESCRIPTORS))?;
        // Without a connection calls still work, and their errors say best what is wrong.
        let connection = descriptors.connection().await?;
        Some(Passage { descriptors, connection })
    }

    /// Opens a file to read a part of it; zero length means to its end.
    pub(super) async fn open_to_read(
        &self,
        mut passage: Passage,
        request: ReadFileRequest,
    ) -> Result<(Entry, Reading)> {
        let (offset, length) = (request.offset, request.length);
        let (reply, mut passed) = self.ask(&mut passage.connection, Request::Read(request)).await?;
        let answer = match (reply, passed.pop()) {
            (Reply::Entry(entry), Some(file)) if passed.is_empty() => Ok((entry, file)),
            (Reply::Failure(failure), None) => Err(from_failure(&failure)),
            _ => return Err(hostile("an answer to reading a file")),
        };
        let jobs = passage.descriptors.jobs.clone();
        passage.keep();
        let (entry, file) = answer?;
        let mut entry = entry_of(entry)?;
        let reading = Reading::open(jobs, file, offset, length).await?;
        // The kernel's size of the file, not PID 1's.
        entry.size = reading.size;
        Ok((entry, reading))
    }

    /// Writes a file, whole or not at all: where the data ends in an error, nothing is written.
    pub(super) async fn write_passed(
        &self,
        mut passage: Passage,
        head: WriteHead,
        data: impl Stream<Item = Result<Bytes>> + Send,
    ) -> Result<Entry> {
        let purpose = if head.append { Purpose::Append } else { Purpose::Write };
        let (reply, mut passed) = self.ask(&mut passage.connection, Request::Write(head)).await?;
        let file = match (reply, passed.pop()) {
            (Reply::Opened(_), Some(file)) if passed.is_empty() => file,
            (Reply::Failure(failure), None) => {
                passage.keep();
                return Err(from_failure(&failure));
            }
            _ => return Err(hostile("an answer to writing a file")),
        };
        let jobs = &passage.descriptors.jobs;
        let file = jobs.run(move || file.check(purpose).map(|_| file)).await?;
        let written = write::write(jobs, file, data).await;
        let last = match &written {
            Ok(()) => Request::Commit(Commit {}),
            Err(_) => Request::Abandon(Abandon {}),
        };
        // Where this fails, the connection is closed, and PID 1 undoes what it had begun.
        let answer = match (self.ask(&mut passage.connection, last).await, written) {
            (Ok((Reply::Abandoned(_), passed)), Err(error)) if passed.is_empty() => Err(error),
            (_, Err(error)) => return Err(error),
            (Ok((Reply::Entry(entry), passed)), Ok(())) if passed.is_empty() => Ok(entry),
            (Ok((Reply::Failure(failure), passed)), Ok(())) if passed.is_empty() => {
                Err(from_failure(&failure))
            }
            (Ok(_), Ok(())) => return Err(hostile("an answer to writing a file")),
            (Err(error), Ok(())) => return Err(error),
        };
        passage.keep();
        answer.and_then(entry_of)
    }

    /// PID 1's reply, or why there is none: where the container died, that is the reason.
    async fn ask(&self, connection: &mut Connection, request: Request) -> Result<(Reply, Vec<Passed>)> {
        match connection.ask(request).await {
            Ok(answer) => Ok(answer),
            Err(Broken::Hostile(what)) => Err(hostile(what)),
            Err(Broken::Full) => {
                let message = "an open file could not be taken over; has this process too many?";
                Err(Error::new(ErrorCode::LimitExceeded, message))
            }
            Err(Broken::Silent) => Err(Error::new(ErrorCode::Timeout, "PID 1 did not answer in time")),
            Err(Broken::Lost(e)) => Err(match self.lost.death().await {
                Some(death) => Error::died(death),
                None => Error::new(ErrorCode::Unavailable, format!("the connection to PID 1 broke: {e}")),
            }),
        }
    }
}
