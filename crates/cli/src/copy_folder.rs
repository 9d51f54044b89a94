//! `atoll cp` of folders, as tar archives that are never whole in memory. A folder is copied into an existing
//! one, or becomes a new one; `folder/.` means its contents.
//!
//! An archive from a sandbox is hostile: nothing is written outside of the target, and links that lead out of
//! it are left out and named.

use crate::{Failure, copy_end::CopyEnd, progress, terminal::note};
use atoll_client::{Client, Uuid};
use atoll_guest_tools::{
    Unpacked,
    archive::{self, Links},
};
use atoll_types::ErrorCode;
use bytes::{Buf, Bytes};
use futures_util::{Stream, stream};
use indicatif::ProgressBar;
use std::{
    ffi::OsStr,
    fs,
    io::{self, BufWriter, Read, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::Pin,
};
use tokio::{
    io::AsyncWriteExt,
    sync::mpsc::{Receiver, Sender, channel},
};

/// Pieces buffered between the blocking thread and the task.
const PIECES: usize = 4;
const PIECE: usize = 256 << 10;

/// The archive of a folder as it is packed.
type Packed = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// Whether a path means the contents of a folder and not the folder.
fn contents_only(path: &OsStr) -> bool {
    let bytes = path.as_encoded_bytes();
    bytes == b"." || bytes.ends_with(b"/.")
}

/// A folder here into a sandbox.
pub(crate) async fn upload(
    client: &Client,
    id: Uuid,
    from: &Path,
    path: &str,
    json: bool,
) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::file(from, &e);
    let target = match contents_only(from.as_os_str()) {
        true => folder_inside(client, id, path).await?.0,
        false => {
            let real = fs::canonicalize(from).map_err(failed)?;
            let name = real.file_name().and_then(OsStr::to_str);
            match (folder_inside(client, id, path).await?, name) {
                ((target, false), _) => target,
                ((target, true), Some(name)) => format!("{}/{name}", target.trim_end_matches('/')),
                ((_, true), None) => {
                    return Err(Failure::usage("DESTINATION", "say what the folder is to be called"));
                }
            }
        }
    };
    packed(from, json, async |body| client.unpack(id, &target, body).await).await.map(drop)
}

/// Sends the archive of a folder here, which is packed meanwhile.
pub(crate) async fn packed<T>(
    from: &Path,
    json: bool,
    send: impl AsyncFnOnce(Packed) -> Result<T, atoll_client::Error>,
) -> Result<T, Failure> {
    let folder: OwnedFd = fs::File::open(from).map_err(|e| Failure::file(from, &e))?.into();
    let bar = progress::bar(&from.display().to_string(), None, json);
    let (sender, receiver) = channel(PIECES);
    let counted = bar.clone();
    let packing = tokio::task::spawn_blocking(move || {
        let out = BufWriter::with_capacity(PIECE, Outlet { sender: sender.clone(), bar: counted });
        let result = archive::pack(folder, b"", out);
        if result.is_err() {
            // The server must not take the bytes so far for all of it.
            let _ = sender.blocking_send(Err(io::Error::other("the folder cannot be read")));
        }
        result
    });
    let body = stream::unfold(receiver, |mut receiver: Receiver<io::Result<Bytes>>| async {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let sent = send(Box::pin(body)).await;
    bar.finish_and_clear();
    match (sent, packing.await) {
        // The local error is the reason why the request broke off, unless the server broke it off first.
        (_, Ok(Err(error))) if error.code != ErrorCode::Unavailable => Err(error.into()),
        (Err(error), _) => Err(error.into()),
        (Ok(sent), Ok(result)) => Ok(result.map(|()| sent)?),
        (Ok(_), Err(_)) => Err(Failure::file(from, &io::Error::other("reading it broke off"))),
    }
}

/// The path of the copy, and whether that is a folder already.
async fn folder_inside(client: &Client, id: Uuid, path: &str) -> Result<(String, bool), Failure> {
    let path = if path.is_empty() { "/workspace" } else { path };
    match client.stat(id, path, true).await.map_err(Failure::from) {
        Ok(entry) if entry.is_directory => Ok((path.to_owned(), true)),
        Ok(_) => Err(Failure::usage("DESTINATION", format!("{path} is a file, and the source a folder"))),
        Err(failure) if failure.is_missing() => Ok((path.to_owned(), false)),
        Err(failure) => Err(failure),
    }
}

/// A folder of a sandbox to here, or as an archive to standard output.
pub(crate) async fn download(
    client: &Client,
    id: Uuid,
    path: &str,
    to: CopyEnd,
    json: bool,
) -> Result<(), Failure> {
    let bar = progress::bar(path, None, json);
    let result = match to {
        CopyEnd::Here(to) => receive(client, id, path, &to, &bar).await,
        _ => print(client, id, path, &bar).await,
    };
    bar.finish_and_clear();
    let left_out = result?;
    for link in &left_out {
        note(&format!("left out {link}: the link leads out of the folder"));
    }
    Ok(())
}

async fn print(client: &Client, id: Uuid, path: &str, bar: &ProgressBar) -> Result<Vec<String>, Failure> {
    let mut archive = client.pack(id, path).await?;
    let mut out = tokio::io::stdout();
    while let Some(bytes) = archive.next().await? {
        out.write_all(&bytes).await.map_err(Failure::output)?;
        bar.inc(bytes.len() as u64);
    }
    out.flush().await.map_err(Failure::output)?;
    Ok(Vec::new())
}

/// The folder to fill, and whether it is new.
fn folder_here(path: &str, to: &Path) -> Result<(PathBuf, bool), Failure> {
    let failed = |e: io::Error| Failure::file(to, &e);
    let mut target = to.to_owned();
    if to.is_dir() && !contents_only(OsStr::new(path)) {
        let name = path.trim_end_matches('/').rsplit('/').next().filter(|n| !matches!(*n, "" | "." | ".."));
        let name =
            name.ok_or_else(|| Failure::usage("DESTINATION", "say what the folder is to be called"))?;
        target.push(name);
    }
    match fs::create_dir(&target) {
        Ok(()) => Ok((target, true)),
        // A link in its place is not followed: its author may not have meant this.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let is_folder = target == to || target.symlink_metadata().is_ok_and(|m| m.is_dir());
            if is_folder { Ok((target, false)) } else { Err(failed(io::ErrorKind::NotADirectory.into())) }
        }
        Err(e) => Err(failed(e)),
    }
}

async fn receive(
    client: &Client,
    id: Uuid,
    path: &str,
    to: &Path,
    bar: &ProgressBar,
) -> Result<Vec<String>, Failure> {
    // Requested first, so that nothing is made for a folder that cannot be read.
    let mut archive = client.pack(id, path).await?;
    let (target, new) = folder_here(path, to)?;
    let folder: OwnedFd = fs::File::open(&target).map_err(|e| Failure::file(&target, &e))?.into();
    let (sender, receiver) = channel(PIECES);
    let unpacking = tokio::task::spawn_blocking(move || {
        let (mut done, mut left_out) = (Unpacked::default(), Vec::new());
        let inlet = Inlet { receiver, piece: Bytes::new() };
        archive::unpack(&folder, new, inlet, Links::Inside, &mut done, &mut left_out).map(|()| left_out)
    });
    let mut broken = None;
    loop {
        match archive.next().await {
            Ok(Some(bytes)) => {
                bar.inc(bytes.len() as u64);
                // The unpacking thread has given up, and reports why.
                if sender.send(bytes).await.is_err() {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    drop(sender);
    let result = unpacking.await;
    match (broken, result) {
        (Some(error), _) => Err(error.into()),
        (None, Ok(result)) => Ok(result?),
        (None, Err(_)) => Err(Failure::file(&target, &io::Error::other("writing it broke off"))),
    }
}

/// The blocking end that writes to a task.
struct Outlet {
    sender: Sender<io::Result<Bytes>>,
    bar: ProgressBar,
}

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.bar.inc(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The blocking end that reads from a task.
struct Inlet {
    receiver: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Inlet {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
