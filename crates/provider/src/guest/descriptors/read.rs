//! Reading a passed file. What the page cache has is read at once; for the rest a job blocks, and makes the
//! kernel read ahead, so that the next pieces are in memory when they are needed.

use super::{
    check::{Passed, Purpose, failed},
    jobs::Jobs,
};
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use rustix::{
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags, pread, preadv2},
};
use std::{
    io::IoSliceMut,
    num::NonZeroU64,
    sync::{Arc, Mutex, PoisonError},
};

/// The size of one read.
const PIECE: usize = 256 * 1024;
/// How much the kernel is to read ahead after that.
const AHEAD: NonZeroU64 = NonZeroU64::new(4 * PIECE as u64).expect("not zero");

/// A part of a file that is being read.
pub(crate) struct Reading {
    /// Of the whole file, when it was opened.
    pub(super) size: u64,
    file: Arc<Passed>,
    jobs: Jobs,
    buffers: Arc<Buffers>,
    offset: u64,
    end: u64,
    /// Read when the file was opened.
    first: Option<Bytes>,
    /// Whether this file supports reads that do not block.
    at_once: bool,
}

impl Reading {
    pub(super) async fn open(jobs: Jobs, file: Passed, offset: u64, length: u64) -> Result<Self> {
        let (file, buffers) = (Arc::new(file), Arc::new(Buffers::default()));
        let (passed, space) = (Arc::clone(&file), Arc::clone(&buffers));
        let open = move || {
            let size = passed.check(Purpose::Read)?;
            let end = if length == 0 { size } else { size.min(offset.saturating_add(length)) };
            let first = read(&passed, &space, offset, end)?;
            Ok((size, end, first))
        };
        let (size, end, first) = jobs.run(open).await?;
        let offset = offset + first.len() as u64;
        let first = (!first.is_empty()).then_some(first);
        Ok(Self { size, file, jobs, buffers, offset, end, first, at_once: true })
    }

    /// How many bytes are still to come.
    pub(crate) fn left(&self) -> u64 {
        self.end.saturating_sub(self.offset) + self.first.as_ref().map_or(0, |f| f.len() as u64)
    }

    /// The next bytes; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.offset >= self.end {
            return Ok(None);
        }
        let bytes = match self.read_at_once()? {
            Some(bytes) => bytes,
            None => {
                let (file, buffers) = (Arc::clone(&self.file), Arc::clone(&self.buffers));
                let (offset, end) = (self.offset, self.end);
                self.jobs.run(move || read(&file, &buffers, offset, end)).await?
            }
        };
        if bytes.is_empty() {
            let message = "the file became shorter while it was read";
            return Err(Error::new(ErrorCode::Conflict, message).at("path"));
        }
        self.offset += bytes.len() as u64;
        Ok(Some(bytes))
    }

    /// Reads without blocking; none where nothing is available so.
    fn read_at_once(&mut self) -> Result<Option<Bytes>> {
        if !self.at_once {
            return Ok(None);
        }
        let mut buffer = self.buffers.take(self.offset, self.end);
        let space = &mut [IoSliceMut::new(&mut buffer.space)];
        match preadv2(self.file.get()?, space, self.offset, ReadWriteFlags::NOWAIT) {
            Ok(length) => Ok(Some(buffer.filled(length))),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                self.at_once = false;
                Ok(None)
            }
            Err(e) => Err(failed(e)),
        }
    }
}

/// Reads a piece, blocking; less at the end of the file only.
fn read(file: &Passed, buffers: &Arc<Buffers>, offset: u64, end: u64) -> Result<Bytes> {
    if offset >= end {
        return Ok(Bytes::new());
    }
    let file = file.get()?;
    let mut buffer = buffers.take(offset, end);
    let mut length = 0;
    while length < buffer.space.len() {
        match pread(file, &mut buffer.space[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    let next = offset + length as u64;
    if next < end {
        // Only a hint, which not every file system takes.
        let _ = fadvise(file, next, Some(AHEAD), Advice::WillNeed);
    }
    Ok(buffer.filled(length))
}

/// Buffers of sent pieces, for reuse: new memory costs as much as the reading.
#[derive(Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

/// A buffer for one piece. It is reused when the last reference to the piece is dropped.
struct Buffer {
    space: Vec<u8>,
    length: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    /// A buffer for what lies between these offsets, at most one piece.
    fn take(self: &Arc<Self>, offset: u64, end: u64) -> Buffer {
        let length = usize::try_from(end.saturating_sub(offset)).map_or(PIECE, |left| left.min(PIECE));
        let mut space = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        space.resize(length, 0);
        Buffer { space, length: 0, home: Arc::clone(self) }
    }
}

impl Buffer {
    fn filled(mut self, length: usize) -> Bytes {
        self.length = length.min(self.space.len());
        if self.length == 0 { Bytes::new() } else { Bytes::from_owner(self) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.space[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let space = std::mem::take(&mut self.space);
        self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(space);
    }
}
