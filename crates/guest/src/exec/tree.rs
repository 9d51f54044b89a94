//! Finds and signals every process below another one, by one walk over /proc.
//!
//! A shim uses this too, so nothing here allocates: the table is mapped straight from the kernel
//! and only the pages that are used cost memory. Orphans move to their nearest subreaper, so below
//! a shim every chain of parents leads to it, however often the processes forked or changed session.

use crate::sys;
use rustix::io::Errno;
use std::ffi::CStr;

/// More processes than this are handled in later passes.
const ROOM: usize = 1 << 17;

#[derive(Clone, Copy)]
struct Entry {
    pid: i32,
    parent: i32,
    state: u8,
    place: TreePlace,
}

/// Zero is what a fresh mapping holds.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum TreePlace {
    Unknown = 0,
    Below,
    Elsewhere,
}

/// Room for one snapshot of the process tree.
pub(crate) struct Tree {
    entries: &'static mut [Entry],
    used: usize,
    /// Why a process may be missing from the snapshot.
    missing: Option<Errno>,
}

impl Tree {
    /// Maps the room; unmapped on drop.
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY: a fresh private anonymous mapping, of the right size and alignment, whose zeroes are valid
        // entries; nothing else refers to it, and it lives until `drop`.
        let entries = unsafe {
            let start = libc::mmap(
                std::ptr::null_mut(),
                ROOM * size_of::<Entry>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if start == libc::MAP_FAILED {
                return Err(Errno::NOMEM);
            }
            std::slice::from_raw_parts_mut(start.cast::<Entry>(), ROOM)
        };
        Ok(Self { entries, used: 0, missing: None })
    }

    /// Sends a signal to every live process below `root`, leaving out the processes of `spared` and what is below
    /// them. Returns how many processes the signal had an effect on, or an error where it could not look at all of them.
    pub(crate) fn signal_below(&mut self, root: i32, spared: &[i32], signal: i32) -> Result<usize, Errno> {
        self.look()?;
        let mut hit = 0;
        for index in 0..self.used {
            if self.place(index, root, spared) != TreePlace::Below {
                continue;
            }
            let Entry { pid, state, .. } = self.entries[index];
            let stopped = matches!(state, b'T' | b't');
            let dead = matches!(state, b'Z' | b'X');
            if !(dead || stopped && signal == libc::SIGSTOP) && sys::kill(pid, signal).is_ok() {
                hit += 1;
            }
        }
        self.missing.map_or(Ok(hit), Err)
    }

    /// Follows the parents of an entry, then stores the result on the whole way.
    fn place(&mut self, index: usize, root: i32, spared: &[i32]) -> TreePlace {
        let (mut at, mut steps, mut answer) = (index, 0, TreePlace::Elsewhere);
        // A snapshot taken while processes change may hold a cycle, hence the bound.
        while steps <= self.used {
            let Entry { pid, parent, place, .. } = self.entries[at];
            if place != TreePlace::Unknown {
                answer = place;
                break;
            }
            if pid == root || spared.contains(&pid) {
                break;
            }
            if parent == root {
                answer = TreePlace::Below;
                break;
            }
            let Some(next) = self.find(parent) else { break };
            at = next;
            steps += 1;
        }
        let mut at = index;
        for _ in 0..=steps {
            self.entries[at].place = answer;
            match self.find(self.entries[at].parent) {
                Some(next) => at = next,
                None => break,
            }
        }
        answer
    }

    /// /proc lists processes in rising order, so the table is sorted.
    fn find(&self, pid: i32) -> Option<usize> {
        self.entries[..self.used].binary_search_by_key(&pid, |e| e.pid).ok()
    }

    /// Takes a new snapshot.
    fn look(&mut self) -> Result<(), Errno> {
        let directory = sys::open(c"/proc", libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC)?;
        let mut buffer = [0u8; 8192];
        (self.used, self.missing) = (0, None);
        while let Ok(length @ 1..) = sys::read_entries(directory, &mut buffer) {
            let mut rest = &buffer[..length];
            // d_reclen is at 16, d_name at 19.
            while let Some(record) = rest.get(16..18) {
                let size = usize::from(u16::from_ne_bytes([record[0], record[1]]));
                let Some(name) = rest.get(19..size) else { break };
                self.note(name);
                rest = &rest[size..];
            }
        }
        sys::close(directory)
    }

    fn note(&mut self, name: &[u8]) {
        let Some(pid) = number(name) else { return };
        if self.used >= ROOM {
            return;
        }
        match state_and_parent(pid) {
            Ok(Some((state, parent))) => {
                self.entries[self.used] = Entry { pid, parent, state, place: TreePlace::Unknown };
                self.used += 1;
            }
            Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => self.missing = Some(e),
            // It has ended meanwhile.
            Ok(None) | Err(_) => {}
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, and the only reference to it is dropped with this value.
        unsafe { libc::munmap(self.entries.as_mut_ptr().cast(), ROOM * size_of::<Entry>()) };
    }
}

/// The decimal number that a NUL-ended or whole name begins with, if it is nothing else.
fn number(name: &[u8]) -> Option<i32> {
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    let digits = &name[..end];
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0i32, |n, b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(i32::from(b - b'0')),
        _ => None,
    })
}

fn state_and_parent(pid: i32) -> Result<Option<(u8, i32)>, Errno> {
    let mut path = *b"/proc/0000000000/stat\0";
    let Some(path) = write_path(&mut path, pid) else { return Ok(None) };
    let fd = sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC)?;
    let mut buffer = [0u8; 256];
    let length = sys::read(fd, &mut buffer);
    let _ = sys::close(fd);
    Ok(parse_stat(&buffer[..length?]))
}

/// Puts `/proc/<pid>/stat` at the start of the buffer.
fn write_path(buffer: &mut [u8; 22], pid: i32) -> Option<&CStr> {
    let mut digits = [0u8; 10];
    let mut count = 0;
    let mut rest = pid;
    while rest > 0 || count == 0 {
        digits[count] = b'0' + (rest % 10) as u8;
        rest /= 10;
        count += 1;
    }
    let mut at = 6;
    for digit in digits[..count].iter().rev() {
        buffer[at] = *digit;
        at += 1;
    }
    buffer[at..at + 6].copy_from_slice(b"/stat\0");
    CStr::from_bytes_until_nul(buffer).ok()
}

/// `pid (name) S parent …`, where the name may hold anything, brackets included.
fn parse_stat(text: &[u8]) -> Option<(u8, i32)> {
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = text.get(end + 2..)?;
    let mut words = rest.split(|b| *b == b' ');
    let state = *words.next()?.first()?;
    Some((state, number(words.next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_with_hostile_names_are_read() {
        assert_eq!(parse_stat(b"7 (sh) S 1 7 7 0"), Some((b'S', 1)));
        assert_eq!(parse_stat(b"7 (a) R 99 (b) T 41 7 7 0"), Some((b'T', 41)));
        assert_eq!(parse_stat(b"7 (sh"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn paths_and_numbers() {
        let mut buffer = *b"/proc/0000000000/stat\0";
        assert_eq!(write_path(&mut buffer, 1), Some(c"/proc/1/stat"));
        let mut buffer = *b"/proc/0000000000/stat\0";
        assert_eq!(write_path(&mut buffer, i32::MAX), Some(c"/proc/2147483647/stat"));
        assert_eq!((number(b"12\0x"), number(b"self"), number(b"")), (Some(12), None, None));
        assert_eq!(number(b"99999999999"), None);
    }

    #[test]
    fn only_what_is_below_and_not_spared_is_found() {
        let mut tree = Tree::new().unwrap();
        let rows = [(1, 0), (5, 1), (6, 5), (7, 1), (8, 7), (9, 6), (20, 21), (21, 20)];
        for (index, (pid, parent)) in rows.into_iter().enumerate() {
            tree.entries[index] = Entry { pid, parent, state: b'S', place: TreePlace::Unknown };
        }
        tree.used = rows.len();
        let below: Vec<i32> = (0..tree.used)
            .filter(|i| tree.place(*i, 1, &[7]) == TreePlace::Below)
            .map(|i| rows[i].0)
            .collect();
        assert_eq!(below, [5, 6, 9]);
    }
}
