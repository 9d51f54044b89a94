//! Archives into folders that commands only read. A process of the sandbox's user cannot write there, so the archive is read here and
//! written by the owner's file requests, one by one, as PID 1 serves them. Only files and folders: links could be made by a command alone.

use crate::bounds::LONGEST_PATH;
use atoll_guest_tools::{
    Unpacked,
    archive::{ArchivedKind, Entries},
};
use atoll_provider::{Container, WriteOptions};
use atoll_types::{Error, ErrorCode, PathRule, PathRules, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use std::{
    io::{self, Read},
    path::Path,
    sync::Arc,
};
use tokio::{runtime::Handle, sync::mpsc};

/// Pieces that wait for the reader, or for the sandbox.
const AHEAD: usize = 4;
/// What is read of a file at once.
const PIECE: usize = 64 << 10;
/// The most entries: each is a request to the sandbox.
const MOST_ENTRIES: u64 = 100_000;

fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("body", message)
}

/// Whether commands only read a folder, or a path below it. One that `..` leads to is left to the tool, which the mounts bind.
pub(crate) fn is_read_only(rules: &PathRules, path: &str) -> bool {
    let whole = Path::new("/workspace").join(path);
    let innermost = rules.iter().filter(|(at, _)| whole.starts_with(at)).max_by_key(|(at, _)| at.len());
    let below = rules.read_only.iter().any(|at| Path::new(at).starts_with(&whole));
    below || innermost.is_some_and(|(_, rule)| rule == PathRule::ReadOnly)
}

/// A body as a reader of another thread has it. Where the body breaks off, so does what is read.
struct Pieces {
    receive: mpsc::Receiver<Result<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receive.blocking_recv() {
                Some(piece) => self.piece = piece.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let count = into.len().min(self.piece.len());
        into[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Where an entry goes; none for the folder itself.
fn place(target: &str, name: &[u8]) -> Result<Option<String>> {
    let name = std::str::from_utf8(name).map_err(|_| wrong("a name is not UTF-8"))?;
    let parts: Vec<&str> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if name.starts_with('/') || parts.contains(&"..") || name.contains('\0') {
        return Err(wrong(format!("{name:?} leads out of the folder")));
    }
    let path = format!("{}/{}", target.trim_end_matches('/'), parts.join("/"));
    if path.len() > LONGEST_PATH {
        return Err(wrong(format!("a path has more than {LONGEST_PATH} bytes")));
    }
    Ok((!parts.is_empty()).then_some(path))
}

/// Writes one file of what is read.
fn write(
    runtime: &Handle,
    container: &Arc<dyn Container>,
    path: &str,
    mode: u32,
    from: &mut impl Read,
) -> Result<u64> {
    let (send, receive) = mpsc::channel::<Result<Bytes>>(AHEAD);
    let body = stream::unfold(receive, |mut receive| async { Some((receive.recv().await?, receive)) });
    let (container, path) = (Arc::clone(container), path.to_owned());
    let writing = runtime.spawn(async move {
        let options =
            WriteOptions { mode: Some(mode), create_parents: true, force: true, ..WriteOptions::default() };
        container.guest().write_file(&path, options, body).await
    });
    let mut bytes = 0;
    loop {
        let mut piece = vec![0; PIECE];
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                piece.truncate(count);
                bytes += count as u64;
                if send.blocking_send(Ok(piece.into())).is_err() {
                    break;
                }
            }
            Err(error) => {
                // A file whose data breaks off is not written.
                let _ = send.blocking_send(Err(wrong(format!("the archive broke off ({error})"))));
                break;
            }
        }
    }
    drop(send);
    let written = runtime.block_on(writing).map_err(|_| Error::internal("a file was not written"))?;
    written.map(|_| bytes)
}

fn read_all(
    runtime: &Handle,
    container: &Arc<dyn Container>,
    target: &str,
    from: Pieces,
) -> Result<Unpacked> {
    let mut entries = Entries::new(from);
    let mut done = Unpacked { files: 0, bytes: 0 };
    let make = |path: &str| runtime.block_on(container.guest().make_dir(path, true)).map(drop);
    let there = |made: Result<()>| match made {
        Err(error) if error.code != ErrorCode::AlreadyExists => Err(error),
        _ => Ok(()),
    };
    there(make(target))?;
    while let Some(entry) = entries.next_entry()? {
        let (kind, mode) = (entry.entry_kind(), entry.mode & 0o777);
        let Some(path) = place(target, &entry.name)? else { continue };
        match kind {
            ArchivedKind::Folder => there(make(&path))?,
            ArchivedKind::File => done.bytes += write(runtime, container, &path, mode, &mut entries)?,
            ArchivedKind::Link | ArchivedKind::HardLink | ArchivedKind::Other => {
                let message = format!(
                    "{path} is neither a file nor a folder, and only those are written where commands only read"
                );
                return Err(wrong(message));
            }
        }
        done.files += 1;
        if done.files > MOST_ENTRIES {
            let message = format!("at most {MOST_ENTRIES} files are unpacked where commands only read");
            return Err(Error::new(ErrorCode::TooLarge, message).at("body"));
        }
    }
    Ok(done)
}

/// Unpacks an archive. Where it fails, what was written before stays.
pub(crate) async fn unpack_as_owner(
    container: &Arc<dyn Container>,
    target: &str,
    body: impl Stream<Item = Result<Bytes>> + Send + 'static,
) -> Result<Unpacked> {
    let (send, receive) = mpsc::channel(AHEAD);
    let (runtime, container, target) = (Handle::current(), Arc::clone(container), target.to_owned());
    let reading = tokio::task::spawn_blocking(move || {
        read_all(&runtime, &container, &target, Pieces { receive, piece: Bytes::new() })
    });
    let mut body = std::pin::pin!(body);
    while let Some(piece) = body.next().await {
        // The reader may have ended, which its answer explains.
        if send.send(piece).await.is_err() {
            break;
        }
    }
    drop(send);
    reading.await.map_err(|_| Error::internal("reading an archive panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_read_only_by_its_innermost_rule_or_by_one_below() {
        let rules = PathRules {
            read_only: vec!["/workspace/data".into(), "/srv/fixed".into()],
            read_write: vec!["/workspace/data/out".into()],
            blocked: Vec::new(),
        };
        for (path, is) in [
            ("data", true),
            ("/workspace/data/x/y", true),
            ("data/out", false),
            ("data/out/x", false),
            ("database", false),
            ("/workspace", true),
            ("/srv", true),
            ("/tmp", false),
        ] {
            assert_eq!(is_read_only(&rules, path), is, "{path}");
        }
        assert!(!is_read_only(&PathRules::default(), "/workspace"));
    }

    #[test]
    fn no_entry_leads_out() {
        assert_eq!(place("data", b"./a//b/").unwrap().as_deref(), Some("data/a/b"));
        assert_eq!(place("/x/", b"a").unwrap().as_deref(), Some("/x/a"));
        assert_eq!(place("data", b"./").unwrap(), None);
        for wrong in [&b"../a"[..], b"/etc/a", b"a/../../b", b"\xff"] {
            assert!(place("data", wrong).is_err(), "{wrong:?}");
        }
    }
}
