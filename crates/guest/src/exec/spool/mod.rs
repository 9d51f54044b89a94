//! A command's output on disk. Bytes of both streams go into one file in the order of their arrival; a second
//! file holds, as numbers of eight bytes, the offsets where the stream changes. There are two streams, so each
//! change goes to the other one, and an offset is all that needs storing.
//!
//! Files are made when the first byte comes, so a silent command costs none. The command's record says how much
//! there is to read; nothing beyond it is ever read.
//!
//! The spool lies outside of the sandbox's volume, and followers read it by offset at their own pace, so a
//! slow reader slows neither the command nor PID 1.

mod read;
mod write;

pub(crate) use read::SpoolReader;
pub(crate) use write::{Keep, SpoolWriter};

use atoll_guest_proto::v1::Stream;
use atoll_types::ExecId;
use rustix::{
    fs::{AtFlags, Mode, OFlags, openat, unlinkat},
    io::{Errno, Result, pread},
};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

/// How much output there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes that came and were kept, those freed since included.
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
    /// Bytes at the start that are no longer there: all followers have read them, or newer output replaced them.
    pub(crate) freed: u64,
    /// How often the stream changes within what is kept, and how many of these are freed.
    changes: u64,
    freed_changes: u64,
    /// The stream of the first byte.
    first: Stream,
}

impl Default for Extent {
    fn default() -> Self {
        Self { kept: 0, dropped: 0, freed: 0, changes: 0, freed_changes: 0, first: Stream::Stdout }
    }
}

impl Extent {
    fn stream_after(&self, changes: u64) -> Stream {
        if changes.is_multiple_of(2) { self.first } else { other(self.first) }
    }

    /// How many bytes it takes on disk.
    pub(crate) fn room(&self) -> u64 {
        (self.kept - self.freed).saturating_add((self.changes - self.freed_changes) * 8)
    }

    /// Nothing of it is there any more.
    pub(crate) fn evict(&mut self) {
        (self.freed, self.freed_changes) = (self.kept, self.changes);
    }

    /// How many changes lie at or before an offset.
    fn changes_until(&self, file: Option<&OwnedFd>, offset: u64) -> Result<u64> {
        let (mut low, mut high) = (self.freed_changes, self.changes);
        while low < high {
            let middle = low + (high - low) / 2;
            if read_change(file, middle)? <= offset { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}

fn other(stream: Stream) -> Stream {
    if stream == Stream::Stdout { Stream::Stderr } else { Stream::Stdout }
}

fn read_change(file: Option<&OwnedFd>, number: u64) -> Result<u64> {
    let mut record = [0; 8];
    let file = file.ok_or(Errno::NOENT)?.as_fd();
    if pread(file, &mut record, number * 8)? != record.len() {
        return Err(Errno::IO);
    }
    Ok(u64::from_ne_bytes(record))
}

/// Where all spools are.
#[derive(Clone)]
pub(crate) struct SpoolDirectory(Arc<OwnedFd>);

impl SpoolDirectory {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(fd))
    }

    fn create(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || openat(&*self.0, name, flags, Mode::RUSR | Mode::WUSR);
        match make() {
            Err(Errno::EXIST) => {
                unlinkat(&*self.0, name, AtFlags::empty())?;
                make()
            }
            other => other,
        }
    }

    fn open(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        openat(&*self.0, name, flags, Mode::empty())
    }

    /// Removes what a command has left. A reader that has it open may go on.
    pub(crate) fn remove(&self, id: ExecId) {
        for name in [data_name(id), changes_name(id)] {
            let _ = unlinkat(&*self.0, name, AtFlags::empty());
        }
    }
}

fn data_name(id: ExecId) -> String {
    format!("{id}.out")
}

fn changes_name(id: ExecId) -> String {
    format!("{id}.idx")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn directory(dir: &tempfile::TempDir) -> SpoolDirectory {
        SpoolDirectory::new(std::fs::File::open(dir.path()).unwrap().into())
    }

    /// What a reader sees from `from` on: stream and byte of each.
    fn replay(directory: &SpoolDirectory, id: ExecId, extent: Extent, from: u64) -> Vec<(Stream, u8)> {
        let mut seen = Vec::new();
        let mut at = from;
        while at < extent.kept {
            let reader = SpoolReader::open(directory, id).unwrap();
            let (stream, end) = reader.run_at(at, extent).unwrap();
            let bytes = reader.read(at, (end - at) as usize).unwrap();
            at += bytes.len() as u64;
            seen.extend(bytes.into_iter().map(|b| (stream, b)));
        }
        seen
    }

    proptest! {
        #[test]
        fn what_is_kept_is_replayed_from_any_offset(
            chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..9)), 0..40),
            limit in 0u64..200, from in 0u64..200, freed in 0u64..200,
        ) {
            let temp = tempfile::tempdir().unwrap();
            let (directory, id) = (directory(&temp), ExecId::random());
            let mut writer = SpoolWriter::new(directory.clone(), id, limit, Keep::Oldest);
            let mut all = Vec::new();
            for (out, bytes) in &chunks {
                let stream = if *out { Stream::Stdout } else { Stream::Stderr };
                writer.append(stream, bytes);
                all.extend(bytes.iter().map(|b| (stream, *b)));
            }
            let kept = writer.extent().kept;
            prop_assert_eq!(kept, limit.min(all.len() as u64));
            prop_assert_eq!(kept + writer.extent().dropped, all.len() as u64);
            writer.free(freed.min(from).min(kept));
            all.truncate(kept as usize);
            let wanted = all.get(from as usize..).unwrap_or_default();
            prop_assert_eq!(replay(&directory, id, writer.extent(), from), wanted);
        }
    }

    proptest! {
        #[test]
        fn the_newest_is_kept_and_offsets_go_on(
            chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..30)), 0..60),
            limit in 0u64..200, lost in prop::collection::vec(any::<bool>(), 60),
        ) {
            let temp = tempfile::tempdir().unwrap();
            let (directory, id) = (directory(&temp), ExecId::random());
            let mut writer = SpoolWriter::new(directory.clone(), id, limit, Keep::Newest);
            let mut all = Vec::new();
            for ((out, bytes), lost) in chunks.iter().zip(lost) {
                let stream = if *out { Stream::Stdout } else { Stream::Stderr };
                all.extend(bytes.iter().map(|b| (stream, *b)));
                // A full disk now and then.
                if lost && bytes.len() > 25 {
                    writer.lose(bytes.len());
                    prop_assert_eq!(writer.extent().freed, all.len() as u64);
                } else {
                    writer.append(stream, bytes);
                }
                let Extent { kept, dropped, freed, .. } = writer.extent();
                prop_assert_eq!((kept, dropped), (all.len() as u64, 0));
                prop_assert!(kept - freed <= limit);
                prop_assert_eq!(&replay(&directory, id, writer.extent(), freed)[..], &all[freed as usize..]);
            }
        }
    }

    #[test]
    fn little_more_than_the_oldest_is_given_up() {
        let temp = tempfile::tempdir().unwrap();
        let mut writer = SpoolWriter::new(directory(&temp), ExecId::random(), 800, Keep::Newest);
        for _ in 0..100 {
            writer.append(Stream::Stdout, &[b'x'; 90]);
            let Extent { kept, freed, .. } = writer.extent();
            assert!(freed == 0 && kept <= 800 || (700..=800).contains(&(kept - freed)), "{kept} {freed}");
        }
    }

    #[test]
    fn an_unusable_directory_drops_and_does_not_fail() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let directory = SpoolDirectory::new(std::fs::File::open(temp.path()).unwrap().into());
        let mut writer = SpoolWriter::new(directory.clone(), ExecId::random(), 100, Keep::Oldest);
        writer.append(Stream::Stdout, b"abc");
        assert_eq!((writer.extent().kept, writer.extent().dropped), (0, 3));
        let mut writer = SpoolWriter::new(directory, ExecId::random(), 100, Keep::Newest);
        writer.append(Stream::Stdout, b"abc");
        let Extent { kept, dropped, freed, .. } = writer.extent();
        assert_eq!((kept, dropped, freed), (3, 0, 3), "offsets go on counting");
    }

    #[test]
    fn freed_output_takes_no_room() {
        let temp = tempfile::tempdir().unwrap();
        let mut writer = SpoolWriter::new(directory(&temp), ExecId::random(), 10, Keep::Oldest);
        writer.append(Stream::Stdout, b"0123456789");
        writer.free(8);
        writer.append(Stream::Stderr, b"abcdefghijkl");
        assert_eq!((writer.extent().kept, writer.extent().dropped), (18, 4));
    }
}
