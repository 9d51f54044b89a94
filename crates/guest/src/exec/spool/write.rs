//! The writer of a spool. An error here drops output and never disturbs the command.

use super::{Extent, SpoolDirectory, changes_name, data_name, other, read_change};
use crate::reserve::Owed;
use atoll_guest_proto::v1::Stream;
use atoll_types::ExecId;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::{Errno, Result, pwrite},
};
use std::os::fd::OwnedFd;

/// More changes than this would make the second file the larger one; what follows is dropped, or the
/// older half makes room.
const MOST_CHANGES: u64 = 1 << 20;
/// Room is made in pieces of an eighth of what is kept, of whole blocks, and of at most this.
const PIECE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// What is dropped when there is more than is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The newest bytes are dropped and counted.
    Oldest,
    /// The oldest bytes are freed; offsets continue, and the first that is left moves on.
    Newest,
}

pub(crate) struct SpoolWriter {
    directory: SpoolDirectory,
    id: ExecId,
    limit: u64,
    /// At most the limit: the command's share of the spool.
    share: u64,
    keep: Keep,
    data: Option<OwnedFd>,
    changes: Option<OwnedFd>,
    /// The two, while they are not open: output that could not be written is lost.
    owed: Owed,
    last: Option<Stream>,
    extent: Extent,
    /// Where the oldest are kept: once a byte was dropped, all later ones are, so that the stored output has no
    /// hole.
    full: bool,
}

impl SpoolWriter {
    pub(crate) fn new(directory: SpoolDirectory, id: ExecId, limit: u64, keep: Keep) -> Self {
        let extent = Extent::default();
        Self {
            directory,
            id,
            limit,
            share: limit,
            keep,
            data: None,
            changes: None,
            owed: Owed::new(2),
            last: None,
            extent,
            full: false,
        }
    }

    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Whether a reader at `offset` must read on before more is stored for it.
    pub(crate) fn is_full_for(&self, offset: u64) -> bool {
        let unread = self.extent.kept.saturating_sub(offset);
        let changes = self.extent.changes - self.extent.freed_changes;
        !self.full && (unread >= self.limit || changes >= MOST_CHANGES / 2)
    }

    /// Stores what fits of these bytes, or all of them in the place of older ones.
    pub(crate) fn append(&mut self, stream: Stream, bytes: &[u8]) {
        match self.keep {
            Keep::Oldest => {
                let used = self.extent.kept - self.extent.freed;
                let room = usize::try_from(self.limit.saturating_sub(used)).unwrap_or(usize::MAX);
                self.keep(stream, bytes, room);
            }
            Keep::Newest => {
                self.push(stream, bytes);
                self.make_room();
            }
        }
    }

    /// Stores all of these bytes: a follower reads them, and what it has read will be freed.
    pub(crate) fn append_all(&mut self, stream: Stream, bytes: &[u8]) {
        match self.keep {
            Keep::Oldest => self.keep(stream, bytes, usize::MAX),
            Keep::Newest => self.push(stream, bytes),
        }
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8], room: usize) {
        let fitting = &bytes[..bytes.len().min(room)];
        let mut kept = 0;
        if !self.full && !fitting.is_empty() {
            kept = self.note_stream(stream).and_then(|()| self.write(fitting)).unwrap_or(0);
        }
        self.extent.kept += kept as u64;
        if kept < bytes.len() {
            self.full = true;
            self.extent.dropped += (bytes.len() - kept) as u64;
        }
    }

    /// Writes all of these bytes; where the disk is full, in the place of the older half of what is
    /// there, and where that does not help either, nothing is left.
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.extent.changes - self.extent.freed_changes >= MOST_CHANGES
            && let Ok(middle) =
                read_change(self.changes.as_ref(), self.extent.freed_changes + MOST_CHANGES / 2)
        {
            self.free(middle);
        }
        let whole = |this: &mut Self| {
            this.note_stream(stream).and_then(|()| this.write(bytes)).is_ok_and(|n| n == bytes.len())
        };
        if whole(self) {
            self.extent.kept += bytes.len() as u64;
            return;
        }
        let Extent { kept, freed, .. } = self.extent;
        self.free(kept - (kept - freed) / 2);
        if whole(self) {
            self.extent.kept += bytes.len() as u64;
        } else {
            self.lose(bytes.len());
        }
    }

    /// Counts bytes that could not be written. Those before them are dropped too: the stored output has no hole.
    pub(super) fn lose(&mut self, length: usize) {
        punch(self.data.as_ref(), self.extent.freed, self.extent.kept);
        punch(self.changes.as_ref(), self.extent.freed_changes * 8, self.extent.changes * 8);
        self.extent.kept += length as u64;
        self.extent.evict();
        self.last = None;
    }

    /// Sets the command's share of the spool.
    pub(crate) fn share(&mut self, bytes: u64) {
        self.share = bytes.min(self.limit);
        self.make_room();
    }

    /// Frees the oldest, if there is too much. In pieces: freeing costs more than writing.
    fn make_room(&mut self) {
        let Extent { kept, freed, .. } = self.extent;
        if kept - freed <= self.share {
            return;
        }
        let piece = (self.share / 8).min(PIECE);
        let target = kept - self.share + piece;
        self.free(if piece >= BLOCK { target - target % BLOCK } else { target });
    }

    fn note_stream(&mut self, stream: Stream) -> Result<()> {
        match self.last {
            None => {
                let even = self.extent.changes.is_multiple_of(2);
                self.extent.first = if even { stream } else { other(stream) };
            }
            Some(last) if last == stream => return Ok(()),
            Some(_) => {
                if self.extent.changes - self.extent.freed_changes >= MOST_CHANGES {
                    return Err(Errno::FBIG);
                }
                let make = || self.directory.create(&changes_name(self.id));
                let file = get_or_create(&mut self.changes, &mut self.owed, make)?;
                let record = self.extent.kept.to_ne_bytes();
                if pwrite(file, &record, self.extent.changes * 8)? < record.len() {
                    return Err(Errno::NOSPC);
                }
                self.extent.changes += 1;
            }
        }
        self.last = Some(stream);
        Ok(())
    }

    /// How many of the bytes were written before the disk was full.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let make = || self.directory.create(&data_name(self.id));
        let file = get_or_create(&mut self.data, &mut self.owed, make)?;
        let mut done = 0;
        while done < bytes.len() {
            match pwrite(file, &bytes[done..], self.extent.kept + done as u64) {
                Ok(length @ 1..) => done += length,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Gives back the room of everything before an offset.
    pub(crate) fn free(&mut self, offset: u64) {
        let offset = offset.min(self.extent.kept);
        let Ok(changes) = self.extent.changes_until(self.changes.as_ref(), offset) else { return };
        // The disk keeps whole blocks; a filesystem that cannot do this keeps all.
        punch(self.data.as_ref(), self.extent.freed, offset);
        punch(self.changes.as_ref(), self.extent.freed_changes * 8, changes * 8);
        self.extent.freed = offset.max(self.extent.freed);
        self.extent.freed_changes = changes;
    }
}

fn punch(file: Option<&OwnedFd>, from: u64, to: u64) {
    if let Some(file) = file
        && to > from
    {
        let _ = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, to - from);
    }
}

fn get_or_create<'a>(
    slot: &'a mut Option<OwnedFd>,
    owed: &mut Owed,
    make: impl FnOnce() -> Result<OwnedFd>,
) -> Result<&'a OwnedFd> {
    if slot.is_none() {
        *slot = Some(make()?);
        owed.opened();
    }
    slot.as_ref().ok_or(Errno::IO)
}
