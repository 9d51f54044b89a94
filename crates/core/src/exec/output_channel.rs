//! Output on its way from a command's task to one caller. The queue is bounded and the task never waits for
//! it: a caller that falls behind reads the rest by offset from PID 1's spool, at its own pace. The task
//! waits only for the caller of a `lossless` command, which is itself made to wait, and no longer than any
//! answer may stay unread: a caller that holds its stream and does not read must not keep the command, and
//! with it the sandbox, for ever.

use atoll_provider::{ExecEvent, ExecReport, ExecStream, Guest, OutputStream};
use atoll_types::{Error, ErrorCode, ExecId, Result};
use bytes::Bytes;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc;

/// Pieces that may wait for a caller, and their bytes.
const PIECES: usize = 1024;
const BYTES: usize = 512 << 10;
/// Pieces that may wait for the caller of a lossless command, of at most 64 KiB each.
const LOSSLESS_PIECES: usize = 8;

/// Streams of the spool that may break off in a row before the caller gets the error.
const MOST_BROKEN: u32 = 4;

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) stream: OutputStream,
    /// The offset of its first byte, over both outputs.
    pub(super) offset: u64,
    pub(super) data: Bytes,
}

impl Piece {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// What both ends know of the queue.
#[derive(Default)]
struct Queued {
    bytes: AtomicUsize,
    /// A piece found no room, so no more of them come.
    behind: AtomicBool,
}

/// What became of a piece that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It is in the queue, or the caller does not need it: it reads the spool, or went away.
    Done,
    /// The caller of a lossless command took nothing for as long as it may, and receives nothing more.
    Stalled,
}

/// The task's end of the queue.
pub(crate) struct OutputSender {
    /// None when the caller went away, fell behind or stalled.
    queue: Option<mpsc::Sender<Piece>>,
    queued: Arc<Queued>,
    /// Of a lossless command: how long its caller may take nothing.
    lossless: Option<Duration>,
}

impl OutputSender {
    /// Sends to no caller.
    pub(super) fn none() -> Self {
        Self { queue: None, queued: Arc::default(), lossless: None }
    }

    /// Waits only where the command is lossless.
    pub(super) async fn send(&mut self, piece: Piece) -> Delivery {
        let Some(queue) = &self.queue else { return Delivery::Done };
        let length = piece.data.len();
        let (sent, delivery) = if let Some(patience) = self.lossless {
            match tokio::time::timeout(patience, queue.send(piece)).await {
                Ok(sent) => (sent.is_ok(), Delivery::Done),
                Err(_) => (false, Delivery::Stalled),
            }
        } else {
            let queued = self.queued.bytes.fetch_add(length, Ordering::Relaxed);
            // A piece that is larger than all that may wait goes alone.
            let fits = queued == 0 || queued + length <= BYTES;
            (fits && queue.try_send(piece).is_ok(), Delivery::Done)
        };
        if !sent {
            self.queued.behind.store(true, Ordering::Release);
            self.queue = None;
        }
        delivery
    }
}

/// What a caller receives.
pub(super) enum Received {
    Piece(Piece),
    /// The command has ended, by its own report where the caller read it itself.
    End(Option<ExecReport>),
    /// The spool was read to where it is, or its stream broke off.
    Over,
}

struct Queue {
    pieces: mpsc::Receiver<Piece>,
    queued: Arc<Queued>,
    lossless: Option<Duration>,
}

impl Queue {
    /// Why no more pieces come of a lossless command that has not ended.
    fn stalled(&self) -> Option<Error> {
        let patience = self.lossless?;
        let message = format!(
            "the output of the lossless command was not read for {} s, so it is sent no further; \
             read it faster, or ask for a stream that is not lossless",
            patience.as_secs()
        );
        Some(Error::new(ErrorCode::Timeout, message))
    }
}

enum Source {
    Queue(Queue),
    Spool(Box<ExecStream>),
}

/// The caller's end of the queue, or a stream of the spool.
pub(super) struct OutputReceiver {
    source: Source,
    /// Where the spool is read; none where a broken stream is not attached again.
    command: Option<(Guest, ExecId)>,
    /// The offset after the last byte received.
    next: u64,
    /// Streams that broke off since the last byte received.
    broken: u32,
}

/// A queue for the output of one command. `lossless`: of a lossless command, how long its caller may take
/// nothing.
pub(super) fn output_channel(
    guest: &Guest,
    id: ExecId,
    lossless: Option<Duration>,
) -> (OutputSender, OutputReceiver) {
    let (sender, pieces) = mpsc::channel(if lossless.is_some() { LOSSLESS_PIECES } else { PIECES });
    let queued: Arc<Queued> = Arc::default();
    let source = Source::Queue(Queue { pieces, queued: Arc::clone(&queued), lossless });
    let receiver = OutputReceiver { source, command: Some((guest.clone(), id)), next: 0, broken: 0 };
    (OutputSender { queue: Some(sender), queued, lossless }, receiver)
}

impl OutputReceiver {
    /// Reads the spool and no queue.
    pub(super) fn spool(events: ExecStream) -> Self {
        Self { source: Source::Spool(Box::new(events)), command: None, next: 0, broken: 0 }
    }

    /// What comes next. A caller that gives up waiting for it loses nothing.
    pub(super) async fn next(&mut self) -> Result<Received> {
        loop {
            let over = match &mut self.source {
                Source::Queue(queue) => match queue.pieces.recv().await {
                    Some(piece) => {
                        queue.queued.bytes.fetch_sub(piece.data.len(), Ordering::Relaxed);
                        self.next = piece.end();
                        return Ok(Received::Piece(piece));
                    }
                    None if queue.queued.behind.load(Ordering::Acquire) => match queue.stalled() {
                        Some(error) => return Err(error),
                        None => Ok(Received::Over),
                    },
                    None => return Ok(Received::End(None)),
                },
                Source::Spool(events) => match events.next().await {
                    Ok(Some(ExecEvent::Started(_))) => continue,
                    Ok(Some(ExecEvent::Output { stream, offset, data })) => {
                        let piece = Piece { stream, offset, data };
                        (self.next, self.broken) = (piece.end(), 0);
                        return Ok(Received::Piece(piece));
                    }
                    Ok(Some(ExecEvent::Ended(report))) => return Ok(Received::End(Some(report))),
                    Ok(None) => Ok(Received::Over),
                    Err(error) => Err(error),
                },
            };
            // A stream that breaks off is no end of the command: its task goes on, and so does this caller.
            self.broken += 1;
            match &self.command {
                Some((guest, id)) if self.broken <= MOST_BROKEN => {
                    self.source = Source::Spool(Box::new(guest.attach(*id, self.next, true).await?));
                }
                _ => return over,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, length: usize) -> Piece {
        Piece { stream: OutputStream::Stdout, offset, data: vec![b'x'; length].into() }
    }

    fn sender(pieces: usize, lossless: Option<Duration>) -> (OutputSender, mpsc::Receiver<Piece>) {
        let (queue, receiver) = mpsc::channel(pieces);
        (OutputSender { queue: Some(queue), queued: Arc::default(), lossless }, receiver)
    }

    #[tokio::test]
    async fn the_caller_of_a_lossless_command_that_does_not_read_is_given_up() {
        let (mut output, pieces) = sender(LOSSLESS_PIECES, Some(Duration::from_millis(1)));
        let mut sent = Vec::new();
        for n in 0..=LOSSLESS_PIECES as u64 + 1 {
            sent.push(output.send(piece(n, 1)).await);
        }
        let stalled = LOSSLESS_PIECES;
        let of = |n| if n == stalled { Delivery::Stalled } else { Delivery::Done };
        assert_eq!(sent, (0..stalled + 2).map(of).collect::<Vec<_>>(), "it is waited for once");
        // What it holds is still its own; then it learns why no more comes.
        let queued = Arc::clone(&output.queued);
        let mut queue = Queue { pieces, queued, lossless: output.lossless };
        for n in 0..stalled as u64 {
            assert_eq!(queue.pieces.recv().await.map(|piece| piece.offset), Some(n));
        }
        assert_eq!(queue.pieces.recv().await, None);
        assert_eq!(queue.stalled().map(|error| error.code), Some(ErrorCode::Timeout));
    }

    #[tokio::test]
    async fn a_caller_that_does_not_read_is_not_waited_for_and_holds_a_bounded_queue() {
        for length in [1, 64 << 10, 2 * BYTES] {
            let (mut output, mut queue) = sender(PIECES, None);
            for n in 0..2 * PIECES {
                output.send(piece((n * length) as u64, length)).await;
            }
            assert!(output.queued.behind.load(Ordering::Acquire), "{length}");
            let (mut next, mut bytes) = (0, 0);
            while let Some(piece) = queue.recv().await {
                assert_eq!(piece.offset, next, "no piece is missing among those that were sent");
                (next, bytes) = (piece.end(), bytes + piece.data.len());
            }
            assert!(bytes > 0 && bytes <= BYTES.max(length), "{length}: {bytes}");
        }
    }

    #[tokio::test]
    async fn the_caller_of_a_lossless_command_is_waited_for() {
        let (mut output, mut queue) = sender(1, Some(Duration::MAX));
        let sending = tokio::spawn(async move {
            for n in 0..100 {
                output.send(piece(n, 1)).await;
            }
            output.queued.behind.load(Ordering::Acquire)
        });
        for n in 0..100 {
            assert_eq!(queue.recv().await.map(|piece| piece.offset), Some(n));
        }
        assert!(!sending.await.unwrap());
    }
}
