//! The kernel manager's messages, as lines on its stdout. One task writes; a task that produces many lines waits
//! for room first, so that what the host has not read yet is bounded.
//!
//! A line is queued without an await between the check for room and the push, so the order of lines is the order
//! of events.

use crate::{Answer, CellEvent, Line};
use atoll_types::{CellId, ExecId, Result};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::ErrorKind,
};
use tokio::{net::unix::pipe::Sender, sync::Notify};

/// Beyond this many bytes every producer waits.
const ROOM: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Out {
    lines: RefCell<VecDeque<Vec<u8>>>,
    bytes: Cell<usize>,
    added: Notify,
    taken: Notify,
    /// The host no longer reads.
    closed: Cell<bool>,
}

impl Out {
    /// Waits until there is room.
    pub(super) async fn room(&self) {
        while self.bytes.get() >= ROOM && !self.closed.get() {
            self.taken.notified().await;
        }
    }

    /// Queues a line now. A task that produces many waits for room before.
    pub(super) fn put(&self, line: &Line) {
        if self.closed.get() {
            return;
        }
        let Ok(mut bytes) = serde_json::to_vec(line) else { return };
        bytes.push(b'\n');
        self.bytes.set(self.bytes.get() + bytes.len());
        self.lines.borrow_mut().push_back(bytes);
        self.added.notify_one();
    }

    /// Answers a request.
    pub(super) fn answer(&self, tag: ExecId, result: Result<Answer>) {
        self.put(&Line::Answer { tag, result });
    }

    /// Sends an event of a cell.
    pub(super) fn tell(&self, cell: CellId, event: CellEvent) {
        self.put(&Line::Event { cell, event });
    }

    /// Writes the queued lines until the host no longer reads.
    pub(super) async fn write_to(&self, pipe: Sender) {
        loop {
            let next = self.lines.borrow_mut().pop_front();
            let Some(line) = next else {
                self.added.notified().await;
                continue;
            };
            let written = write_all(&pipe, &line).await;
            self.bytes.set(self.bytes.get().saturating_sub(line.len()));
            if written.is_err() {
                self.closed.set(true);
                self.lines.borrow_mut().clear();
            }
            self.taken.notify_waiters();
            if self.closed.get() {
                return;
            }
        }
    }

    /// Waits until all of it is written.
    pub(super) async fn flushed(&self) {
        while self.bytes.get() > 0 && !self.closed.get() {
            self.taken.notified().await;
        }
    }
}

async fn write_all(pipe: &Sender, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        pipe.writable().await?;
        match pipe.try_write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
