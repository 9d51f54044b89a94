//! Where the parts of an exported sandbox begin, for a server that hands each to a tool of its own. Only heads of entries
//! are looked at: an archive that is not as it should be is left to the tool, which refuses it.

use super::{BLOCK, read::check};
use tar::{EntryType, Header};

/// The folder that the part of a snapshot begins with, and that all names in it begin with.
#[must_use]
pub fn part_folder(number: u32) -> String {
    format!("snapshots/{number:06}/")
}

/// Follows an archive whose bytes come in pieces.
#[derive(Debug, Default)]
pub struct Splitter {
    /// Bytes of the present entry that are still to come.
    body: u64,
    /// What came of the next head.
    head: Vec<u8>,
}

impl Splitter {
    /// Takes bytes from the front of `bytes`, up to the head of a folder with this name, and returns those that lie before
    /// it. The second value is whether the folder comes next; its head is returned by the next call.
    pub fn take(&mut self, bytes: &mut &[u8], folder: Option<&str>) -> (Vec<u8>, bool) {
        let mut before = Vec::with_capacity(bytes.len() + BLOCK);
        // A head that ended the call before is not looked at again.
        if self.head.len() == BLOCK {
            before.append(&mut self.head);
        }
        while !bytes.is_empty() {
            if self.body > 0 {
                let count = usize::try_from(self.body).unwrap_or(usize::MAX).min(bytes.len());
                before.extend_from_slice(&bytes[..count]);
                self.body -= count as u64;
                *bytes = &bytes[count..];
                continue;
            }
            let count = (BLOCK - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..count]);
            *bytes = &bytes[count..];
            if self.head.len() < BLOCK {
                break;
            }
            if self.enter(folder) {
                return (before, true);
            }
            before.append(&mut self.head);
        }
        (before, false)
    }

    /// What came of a head at the end of all bytes.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.head)
    }

    /// Enters the entry of the head; whether it is the folder.
    fn enter(&mut self, folder: Option<&str>) -> bool {
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&self.head);
        if check(&header).is_err() {
            return false;
        }
        let size = header.entry_size().unwrap_or(0);
        self.body = size.checked_next_multiple_of(BLOCK as u64).unwrap_or(0);
        header.entry_type() == EntryType::Directory
            && folder.is_some_and(|folder| *header.path_bytes() == *folder.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{END_MARK, small_file};
    use super::*;

    fn folder(name: &str) -> Vec<u8> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Directory);
        header.set_size(0);
        header.set_path(name).unwrap();
        header.set_cksum();
        header.as_bytes().to_vec()
    }

    #[test]
    fn an_archive_is_split_at_its_parts_whatever_its_pieces_are() {
        let (one, two) = (part_folder(1), part_folder(2));
        // A file whose bytes look like the head of a part.
        let front = [small_file("workspace/a", &folder(&one)), small_file("workspace/b", b"")].concat();
        let parts = [
            front,
            [folder(&one), small_file("snapshots/000001/home/x", b"x")].concat(),
            [folder(&two), END_MARK.to_vec()].concat(),
        ];
        let archive = parts.concat();
        for size in [1, 7, 512, 513, 1024, 9000] {
            let (mut splitter, mut found, mut number) = (Splitter::default(), vec![Vec::new()], 1);
            for piece in archive.chunks(size) {
                let mut piece = piece;
                while !piece.is_empty() {
                    let (before, next) = splitter.take(&mut piece, Some(&part_folder(number)));
                    found.last_mut().unwrap().extend(before);
                    if next {
                        found.push(Vec::new());
                        number += 1;
                    }
                }
            }
            // A part whose head was the last that came.
            found.last_mut().unwrap().extend(splitter.rest());
            assert_eq!(found, parts, "{size}");
        }
    }

    #[test]
    fn what_is_no_archive_passes() {
        let (mut splitter, bytes) = (Splitter::default(), vec![b'x'; 5000]);
        let (before, next) = splitter.take(&mut bytes.as_slice(), Some("snapshots/000001/"));
        assert_eq!((([before, splitter.rest()].concat()), next), (bytes, false));
    }
}
