//! The end of the trail, in a file beside the database: one line of JSON, one with its signature, and blanks
//! up to the length of a disk's sector. It is overwritten in place after every commit, in one write: a
//! process that is killed leaves the old one or the new one, and so does a power cut. Replacing the file
//! instead would cost more than the rest of a commit (some file systems then wait for the disk). For power
//! cuts it also says up to which row the database had reached the disk.

use crate::AuditKey;
use atoll_store::{Mac, Millis};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

/// The length of the file: disks write a sector whole or not at all.
const SECTOR: usize = 512;

/// How often an invalid head is read again: it may have been read while it was written.
const READS: u32 = 4;

/// The end of the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The last row.
    pub seq: u64,
    /// Its MAC.
    pub mac: Mac,
    /// When this was written.
    pub at: Millis,
    /// The last row that would survive a power cut.
    pub durable: u64,
    /// The boot id of the machine when this was written.
    pub boot: String,
}

/// What is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadState {
    /// There is none.
    Missing,
    /// It was not signed with this key, and why.
    Forged(&'static str),
    /// The signed head.
    Signed(Head),
}

/// The file.
#[derive(Debug, Clone)]
pub struct HeadFile {
    path: PathBuf,
    key: AuditKey,
    /// Open once it was written.
    file: Option<Arc<File>>,
}

impl HeadFile {
    /// The head in this file, signed with this key.
    #[must_use]
    pub fn new(path: &Path, key: &AuditKey) -> Self {
        Self { path: path.to_owned(), key: key.clone(), file: None }
    }

    /// Reads it.
    pub fn read(&self) -> io::Result<HeadState> {
        for _ in 1..READS {
            match self.read_once()? {
                HeadState::Forged(_) => thread::sleep(Duration::from_millis(2)),
                other => return Ok(other),
            }
        }
        self.read_once()
    }

    fn read_once(&self) -> io::Result<HeadState> {
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(file) => file.take(SECTOR as u64 + 1).read_to_end(&mut bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(HeadState::Missing),
            Err(e) => return Err(e),
        };
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let [head, signature, blanks, []] = lines[..] else {
            return Ok(HeadState::Forged("it has not its lines"));
        };
        if bytes.len() != SECTOR || blanks.iter().any(|byte| *byte != b' ') {
            return Ok(HeadState::Forged("it has not its length"));
        }
        let signature = std::str::from_utf8(signature).ok().and_then(|text| text.parse().ok());
        if !signature.is_some_and(|signature| self.key.signed(head, &signature)) {
            return Ok(HeadState::Forged("its signature is wrong"));
        }
        match serde_json::from_slice(head) {
            Ok(head) => Ok(HeadState::Signed(head)),
            Err(_) => Ok(HeadState::Forged("it cannot be read")),
        }
    }

    /// Overwrites it.
    pub(crate) fn write(&mut self, head: &Head) -> io::Result<()> {
        let head = serde_json::to_string(head)?;
        let signature = self.key.sign(head.as_bytes());
        let text = format!("{head}\n{signature}\n");
        let text = format!("{text:width$}\n", width = SECTOR - 1);
        if text.len() != SECTOR {
            return Err(io::Error::other("a head is too long"));
        }
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let options = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
                let file = Arc::new(options.open(&self.path)?);
                // The former file may have been longer.
                file.set_len(SECTOR as u64)?;
                self.file.insert(file).clone()
            }
        };
        file.write_all_at(text.as_bytes(), 0)
    }

    /// Waits until the file would survive a power cut.
    pub(crate) fn reach_disk(&self) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.sync_all()?;
        }
        match self.path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    }
}

/// The boot id of the machine.
pub(crate) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn what_was_not_signed_here_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.head");
        let mut file = HeadFile::new(&path, &AuditKey::from_secret(&[1; 32]));
        assert_eq!(file.read().unwrap(), HeadState::Missing);
        let head = Head { seq: 7, mac: Mac([3; 32]), at: 5, durable: 6, boot: boot() };
        file.write(&head).unwrap();
        file.reach_disk().unwrap();
        assert_eq!(file.read().unwrap(), HeadState::Signed(head.clone()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let whole = fs::read(&path).unwrap();
        for n in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[n] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert!(matches!(file.read().unwrap(), HeadState::Forged(_)), "byte {n}");
            fs::write(&path, &whole[..n]).unwrap();
            assert!(matches!(file.read().unwrap(), HeadState::Forged(_)), "cut at {n}");
        }
        fs::write(&path, vec![b'x'; 5000]).unwrap();
        assert!(matches!(file.read().unwrap(), HeadState::Forged(_)));
        let other = HeadFile::new(&path, &AuditKey::from_secret(&[2; 32]));
        let mut file = HeadFile::new(&path, &AuditKey::from_secret(&[1; 32]));
        file.write(&head).unwrap();
        assert_eq!(file.read().unwrap(), HeadState::Signed(head), "over what was longer");
        assert!(matches!(other.read().unwrap(), HeadState::Forged(_)), "another secret");
    }
}
