//! What a step copies, as a layer that a tool inside the build's sandbox applies. The bytes of files are read from the archive while
//! the tool takes them.

use super::{
    BuildFiles,
    index::{EntryKind, FileEntry, check_entries, path_inside, wrong},
    sources::{ArchiveFile, Selected},
};
use atoll_guest_tools::archive::{BLOCK, END_MARK, EntryHead, HeadKind, Section, entry_head};
use atoll_types::Result;
use bytes::Bytes;
use futures_util::Stream;
use std::{
    fs::File,
    io::{self, Read},
    sync::Arc,
};
use tokio::sync::mpsc;

/// What is read or sent at once.
const PIECE: usize = 64 << 10;
/// Pieces that wait for a slow sandbox.
const WAITING: usize = 8;

/// Where a step copies to, and whose the copies are.
#[derive(Debug, Clone)]
pub(crate) struct CopyTarget {
    pub(crate) path: String,
    /// Whether the image has this folder already; it then keeps its owner and permissions.
    pub(crate) exists: bool,
    /// Whether files are copied into it by their names, although no slash at the end of the path says so.
    pub(crate) is_folder: bool,
    pub(crate) owner: (u32, u32),
    pub(crate) mode: Option<u32>,
}

impl CopyTarget {
    /// Where an entry goes. A folder's content is copied and not the folder; a file into a folder keeps its name.
    fn path_of(&self, one: &Selected, into: bool) -> Result<String> {
        let Selected { top, rest, entry } = one;
        let name = top.rsplit('/').next().unwrap_or_default();
        let path = match (&entry.kind, rest.is_empty()) {
            (EntryKind::Folder, true) => self.path.clone(),
            (_, true) if into => format!("{}/{name}", self.path),
            (_, true) => self.path.clone(),
            (_, false) => format!("{}/{rest}", self.path),
        };
        path_inside(&path).ok_or_else(|| wrong(format!("{path:?} is no path of an image")))
    }
}

/// An entry of a layer: where, without a slash in front, and what.
type LayerEntry = (String, FileEntry);

impl BuildFiles {
    /// The bytes of an archive. A thread reads ahead until the stream is dropped, so one is open at a time.
    pub(in crate::images::template) fn archive(
        &self,
        of: ArchiveFile,
    ) -> impl Stream<Item = Bytes> + Send + 'static + use<> {
        self.stream(vec![Piece::Archived { offset: of.offset, size: of.size }])
    }

    /// What is selected becomes at a target, as a layer.
    pub(in crate::images::template) fn layer(
        &self,
        selected: &[Selected],
        target: &CopyTarget,
    ) -> Result<impl Stream<Item = Bytes> + Send + 'static + use<>> {
        let tops = selected.iter().filter(|one| one.rest.is_empty()).count();
        let into = target.is_folder || target.path.ends_with('/') || tops > 1;
        let mut entries: Vec<LayerEntry> = Vec::new();
        let mut needs_target = !target.exists;
        for one in selected {
            let path = target.path_of(one, into)?;
            let is_target = one.entry.kind == EntryKind::Folder && one.rest.is_empty();
            match (path.is_empty(), is_target) {
                (true, _) => {}
                (false, true) if needs_target => {
                    needs_target = false;
                    entries.push((path, FileEntry::new_folder()));
                }
                (false, true) => {}
                (false, false) => entries.push((path, one.entry.clone())),
            }
            check_entries("dockerfile", entries.len())?;
        }
        Ok(self.stream(pieces(&entries, target)))
    }

    fn stream(&self, pieces: Vec<Piece>) -> impl Stream<Item = Bytes> + Send + 'static + use<> {
        let (send, mut receive) = mpsc::channel(WAITING);
        let file = Arc::clone(&self.file);
        tokio::task::spawn_blocking(move || {
            for piece in pieces {
                if piece.send(&file, &send).is_err() {
                    // The archive then has no end, which the tool refuses.
                    return;
                }
            }
        });
        futures_util::stream::poll_fn(move |context| receive.poll_recv(context))
    }
}

/// A part of a stream: bytes of ours, or of the archive.
enum Piece {
    Own(Vec<u8>),
    Archived { offset: u64, size: u64 },
}

impl Piece {
    fn send(self, file: &File, to: &mpsc::Sender<Bytes>) -> io::Result<()> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        match self {
            Self::Own(bytes) => to.blocking_send(bytes.into()).map_err(gone),
            Self::Archived { offset, size } => {
                let mut from = Section::new(file, offset, size);
                while from.left() > 0 {
                    let mut piece = vec![0; PIECE.min(usize::try_from(from.left()).unwrap_or(PIECE))];
                    from.read_exact(&mut piece)?;
                    to.blocking_send(piece.into()).map_err(gone)?;
                }
                Ok(())
            }
        }
    }
}

fn pieces(entries: &[LayerEntry], target: &CopyTarget) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (path, entry) in entries {
        let (kind, size) = match &entry.kind {
            EntryKind::File => (HeadKind::File, entry.size),
            EntryKind::Folder => (HeadKind::Folder, 0),
            EntryKind::Link(target) => (HeadKind::Link(target), 0),
        };
        let mode = target.mode.unwrap_or(entry.mode);
        let mtime = u64::try_from(entry.mtime).unwrap_or(0);
        let head = EntryHead { kind, path, mode, owner: target.owner, mtime, size };
        pieces.push(Piece::Own(entry_head(&head)));
        if size > 0 {
            pieces.push(Piece::Archived { offset: entry.offset, size });
            let padding = size.next_multiple_of(BLOCK as u64) - size;
            pieces.push(Piece::Own(vec![0; usize::try_from(padding).unwrap_or(0)]));
        }
    }
    pieces.push(Piece::Own(END_MARK.to_vec()));
    pieces
}

/// A layer of one file of root's, or of one folder where there is no content.
pub(crate) fn small_layer(path: &str, content: Option<&[u8]>, mode: u32, mtime: i64) -> Vec<u8> {
    let (kind, body) = content.map_or((HeadKind::Folder, &[][..]), |content| (HeadKind::File, content));
    let mut layer = entry_head(&EntryHead {
        kind,
        path: path.trim_start_matches('/'),
        mode,
        owner: (0, 0),
        mtime: u64::try_from(mtime).unwrap_or(0),
        size: body.len() as u64,
    });
    layer.extend_from_slice(body);
    layer.resize(layer.len().next_multiple_of(BLOCK), 0);
    layer.extend_from_slice(&END_MARK);
    layer
}
