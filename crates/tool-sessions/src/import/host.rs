//! Files of this machine: uploads of the same thread, and files in folders that the operator allows. A path
//! is resolved first, including symbolic links; the result must be in an allowed folder, and is then opened
//! below that folder without following any link, so a file that is swapped meanwhile is an error. The error
//! does not say whether a file exists outside the allowed folders.

use super::Sessions;
use crate::ToolCaller;
use atoll_guest_tools::archive;
use atoll_store::ToolSession;
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{Stream, stream};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Pieces buffered between the reading thread and the stream.
const PIECES: usize = 4;
const PIECE: usize = 256 << 10;

fn nowhere(source: &str) -> Error {
    let message =
        format!("{source} is no uploaded file, and in no folder of the server that may be imported from");
    Error::new(ErrorCode::PermissionDenied, message)
}

/// Opens the file that a path resolves to, if it is in one of these folders.
fn open(path: &Path, folders: &[PathBuf], source: &str) -> Result<(OwnedFd, FileType)> {
    let no = |_| nowhere(source);
    let real = path.canonicalize().map_err(no)?;
    let folders = folders.iter().filter_map(|folder| folder.canonicalize().ok());
    let inside = folders.filter_map(|folder| Some((real.strip_prefix(&folder).ok()?.to_path_buf(), folder)));
    // Of nested folders the innermost.
    let (rest, folder) =
        inside.max_by_key(|(_, folder)| folder.as_os_str().len()).ok_or_else(|| nowhere(source))?;
    let rest = if rest.as_os_str().is_empty() { PathBuf::from(".") } else { rest };
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, &folder, way, Mode::empty()).map_err(|_| nowhere(source))?;
    // Opening a FIFO must not block.
    let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(&root, &rest, read, Mode::empty(), beneath).map_err(|_| nowhere(source))?;
    let stat = fstat(&opened).map_err(|_| nowhere(source))?;
    Ok((opened, FileType::from_raw_mode(stat.st_mode)))
}

/// The sending end of the thread that reads.
struct Outlet(Sender<Result<Bytes>>);

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::other("the reader has gone");
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn copy(file: OwnedFd, sender: Sender<Result<Bytes>>) -> Result<()> {
    let (mut file, mut outlet, mut buffer) = (File::from(file), Outlet(sender), vec![0; PIECE]);
    let failed = |_| Error::new(ErrorCode::Unavailable, "the file cannot be read");
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(()),
            read => outlet.write_all(&buffer[..read]).map_err(failed)?,
        }
    }
}

/// The bytes of a file, or of a folder as an archive, read on a blocking thread.
fn bytes_of(what: OwnedFd, folder: bool) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let (sender, receiver) = channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let told = sender.clone();
        let result = match folder {
            true => archive::pack(what, b"", BufWriter::with_capacity(PIECE, Outlet(sender))),
            false => copy(what, sender),
        };
        if let Err(error) = result {
            // With the error the reader knows that the bytes so far are not all.
            let _ = told.blocking_send(Err(error));
        }
    });
    stream::unfold(receiver, |mut receiver: Receiver<Result<Bytes>>| async {
        receiver.recv().await.map(|piece| (piece, receiver))
    })
}

impl Sessions {
    pub(super) async fn import_host(
        &self,
        who: &ToolCaller,
        to: &ToolSession,
        source: &str,
        at: &str,
    ) -> Result<u64> {
        let uploads = self.uploads_of(&who.caller.owner, who.thread.as_str())?;
        let path = uploads.join(source);
        let folders: Vec<PathBuf> = [uploads].into_iter().chain(self.settings.import_dirs.clone()).collect();
        let shown = source.to_owned();
        let opening = tokio::task::spawn_blocking(move || open(&path, &folders, &shown));
        let (opened, kind) = opening.await.map_err(|_| Error::internal("opening a file broke off"))??;
        match kind {
            FileType::RegularFile => self.write(who, to, at, bytes_of(opened, false)).await,
            FileType::Directory => self.unpack(who, to, at, bytes_of(opened, true)).await,
            _ => Err(Error::new(ErrorCode::SpecialFile, format!("{source} is neither a file nor a folder"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn only_what_lies_in_an_allowed_folder_is_opened() {
        let (allowed, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (allowed.path(), other.path());
        fs::create_dir(inside.join("sub")).unwrap();
        fs::write(inside.join("sub/a"), "a").unwrap();
        fs::write(outside.join("secret"), "s").unwrap();
        symlink(outside.join("secret"), inside.join("out")).unwrap();
        symlink(outside, inside.join("folder")).unwrap();
        symlink(inside.join("sub"), inside.join("in")).unwrap();
        symlink(inside.join("sub/a"), outside.join("back")).unwrap();
        let folders = [inside.to_path_buf(), inside.join("no such")];
        let opens = |path: PathBuf| open(&path, &folders, "x").map(|(_, kind)| kind).map_err(|e| e.code);
        assert_eq!(opens(inside.join("sub/a")), Ok(FileType::RegularFile));
        assert_eq!(opens(inside.join("sub/../in/a")), Ok(FileType::RegularFile), "a link that stays inside");
        assert_eq!(opens(inside.join("sub")), Ok(FileType::Directory));
        assert_eq!(opens(outside.join("back")), Ok(FileType::RegularFile), "where it leads is what counts");
        for path in ["out", "folder/secret", "../", "sub/../../", "no such", "folder"] {
            assert_eq!(opens(inside.join(path)), Err(ErrorCode::PermissionDenied), "{path}");
        }
        assert_eq!(opens("/etc/passwd".into()), Err(ErrorCode::PermissionDenied));
        assert!(open(&inside.join("sub/a"), &[], "x").is_err(), "without a folder nothing is allowed");
        // A folder whose name has this one as a prefix.
        let longer = PathBuf::from(format!("{}x", inside.display()));
        fs::create_dir(&longer).unwrap();
        fs::write(longer.join("a"), "a").unwrap();
        assert_eq!(opens(longer.join("a")), Err(ErrorCode::PermissionDenied));
        fs::remove_dir_all(longer).unwrap();
    }
}
