//! Writes through a shared mapping make no event. The first write to a clean page updates the file's times, the
//! next ones do not. So at each request the files that living processes have mapped are suspects, and their dirty
//! pages are written back, which makes them clean: the next write updates the times again.

use crate::{
    found,
    sys::{self, Mapping},
};
use rustix::{
    fd::{AsFd, AsRawFd, OwnedFd},
    fs::{Mode, OFlags, open},
    io::Errno,
};
use std::{
    fs::File,
    io::{BufRead, BufReader},
};

/// More than this is not written back while a client waits; the file counts as modified instead.
const LARGEST: u64 = 64 << 20;
const MOST_PROCESSES: usize = 4096;
const MOST_MAPPINGS: usize = 4096;

/// Files of one tree that living processes have mapped.
#[derive(Default)]
pub(crate) struct Mapped {
    /// Their inodes, and whether they must count as modified.
    pub(crate) files: Vec<(u64, bool)>,
    /// There were too many to check.
    pub(crate) lost: bool,
    bytes: u64,
    looked: usize,
}

/// Searches the mappings of these processes for files on a device.
pub(crate) fn mapped(processes: &[i32], device: (u32, u32)) -> Mapped {
    let mut all = Mapped { lost: processes.len() > MOST_PROCESSES, ..Mapped::default() };
    for process in processes.iter().take(MOST_PROCESSES) {
        // A process that has ended has closed its files, which makes an event.
        let Ok(maps) = File::open(format!("/proc/{process}/maps")) else { continue };
        all.look_through(*process, &maps, device);
    }
    all
}

impl Mapped {
    fn look_through(&mut self, process: i32, maps: &File, device: (u32, u32)) {
        let mut from = 0;
        loop {
            match sys::next_shared(maps, from) {
                Ok(Some(mapping)) if self.room() => {
                    self.look_at(process, mapping, device);
                    from = mapping.end;
                }
                Ok(Some(_)) => return self.lost = true,
                Ok(None) => return,
                Err(Errno::NOTTY | Errno::INVAL) => return self.read_text(process, maps, device),
                Err(_) => return self.lost = true,
            }
        }
    }

    fn room(&mut self) -> bool {
        self.looked += 1;
        self.looked <= MOST_MAPPINGS
    }

    /// Before Linux 6.11 there is only the text.
    fn read_text(&mut self, process: i32, maps: &File, device: (u32, u32)) {
        for line in BufReader::new(maps).split(b'\n').map_while(Result::ok) {
            let Some(mapping) = shared(&line) else { continue };
            if !self.room() {
                return self.lost = true;
            }
            self.look_at(process, mapping, device);
        }
    }

    fn look_at(&mut self, process: i32, mapping: Mapping, device: (u32, u32)) {
        let Mapping { start, end, offset } = mapping;
        let link = format!("/proc/{process}/map_files/{start:x}-{end:x}");
        let Ok(file) = open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else { return };
        let Ok(Some(found)) = found::look(&file, b"") else { return };
        if found.device != device || found.kind.is_none() {
            return;
        }
        self.bytes = self.bytes.saturating_add(end - start);
        let cleaned = self.bytes <= LARGEST && clean(&file, offset, end - start).is_ok();
        self.files.push((found.inode, !cleaned));
    }
}

fn clean(file: &OwnedFd, offset: u64, length: u64) -> Result<(), Errno> {
    // Without blocking: a process that holds a lease on the file could delay the open.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC;
    let file = open(format!("/proc/self/fd/{}", file.as_raw_fd()), flags, Mode::empty())?;
    sys::begin_write_back(file.as_fd(), offset, length)
}

/// `7f..-7f.. rw-s 00001000 00:2a 257 /a/path`
fn shared(line: &[u8]) -> Option<Mapping> {
    let mut fields = std::str::from_utf8(line.get(..line.len().min(100))?).ok()?.split(' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.ends_with('s') {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping { start: number(start)?, end: number(end)?, offset: number(fields.next()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_shared_mappings_are_read() {
        let line = b"7f10-7f20 rw-s 00001000 00:2a 257  /a";
        assert_eq!(shared(line), Some(Mapping { start: 0x7f10, end: 0x7f20, offset: 0x1000 }));
        assert_eq!(shared(b"7f10-7f20 rw-p 00001000 00:2a 257  /a"), None);
        assert_eq!(shared(b""), None);
    }
}
