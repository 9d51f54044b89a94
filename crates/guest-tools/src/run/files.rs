//! `pack` and `unpack`: a folder as a tar archive on stdout, and one from stdin into a folder.

use super::place::{absolute, open};
use crate::{
    ExportFolder, ExportFolders, ImportFolders, Pack, Unpack, Unpacked,
    archive::{self, Links},
    errno::on_path,
};
use atoll_types::{Error, ErrorCode, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, OFlags, fstat},
    io::Errno,
};
use serde::Serialize;
use std::{
    fs,
    io::{self, BufWriter, Read, Write},
    os::fd::OwnedFd,
};

/// Longer than the server lets an upload stall: a server that is gone leaves no tool behind.
const STILL: Timespec = Timespec { tv_sec: 120, tv_nsec: 0 };

pub(super) fn pack(request: &Pack) -> Result<()> {
    request.check()?;
    let path = absolute(&request.path);
    let what = open(&path, OFlags::RDONLY)?;
    let stat = fstat(&what).map_err(|e| on_path(e, "path"))?;
    let own_name = path.rsplit('/').next().unwrap_or_default();
    let prefix = match &request.prefix {
        Some(prefix) => prefix,
        None if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => "",
        None => own_name,
    };
    archive::pack(what, prefix.as_bytes(), BufWriter::with_capacity(64 << 10, io::stdout()))
}

pub(super) fn unpack(request: &Unpack) -> Result<()> {
    request.check()?;
    let path = absolute(&request.path);
    let failed = |e: io::Error| on_path(Errno::from_io_error(&e).unwrap_or(Errno::IO), "path");
    let new = match fs::create_dir(&path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(&path).map_err(failed)?;
            true
        }
        other => other.map(|()| true).map_err(failed)?,
    };
    let folder = open(&path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut done = Unpacked::default();
    archive::unpack(&folder, new, Steady, Links::Any, &mut done, &mut Vec::new()).map_err(|mut error| {
        let Unpacked { files, bytes } = done;
        error.message = format!("{}; {files} entries with {bytes} bytes were written", error.message);
        error
    })?;
    report(done)
}

/// The folders of a sandbox to stdout.
pub(super) fn export(request: &ExportFolders) -> Result<()> {
    let ExportFolders { folders, snapshots } = request;
    let (path, made_ms) = snapshots.as_ref().map_or(("", &[][..]), |all| (&all.path, &all.made_ms));
    let state = |number: u32| {
        let at = |folder: &ExportFolder| ExportFolder {
            name: folder.name.clone(),
            path: format!("{path}/{number:06}/{}", folder.name),
        };
        open_all(&folders.iter().map(at).collect::<Vec<_>>())
    };
    let out = BufWriter::with_capacity(64 << 10, io::stdout());
    archive::pack_folders(&open_all(folders)?, made_ms, state, out)
}

/// The folders of a sandbox from stdin.
pub(super) fn import(request: &ImportFolders) -> Result<()> {
    let mut done = Unpacked::default();
    archive::unpack_folders(&open_all(&request.folders)?, request.snapshot, Steady, &mut done)?;
    report(done)
}

fn open_all(folders: &[ExportFolder]) -> Result<Vec<(String, OwnedFd)>> {
    let open = |folder: &ExportFolder| {
        Ok((folder.name.clone(), open(&absolute(&folder.path), OFlags::RDONLY | OFlags::DIRECTORY)?))
    };
    folders.iter().map(open).collect()
}

/// Writes the one line of an answer.
pub(super) fn report(done: impl Serialize) -> Result<()> {
    let line = serde_json::to_string(&done).map_err(|e| Error::internal(e.to_string()))?;
    writeln!(io::stdout(), "{line}").map_err(|e| Error::new(ErrorCode::Unavailable, e.to_string()))
}

/// Stdin, which fails when no byte comes for long.
pub(super) struct Steady;

impl Read for Steady {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let stdin = io::stdin();
        loop {
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&STILL)) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) | Err(_) => return Ok(rustix::io::read(&stdin, buffer)?),
            }
        }
    }
}
