//! Files that moved with a folder: they have no events of their own, so a renamed folder is walked, and no other.
//! Folders are opened by inode, so depth and links do not matter. How many names are looked up is bounded, since
//! other sandboxes wait meanwhile.

use crate::{net::Net, tree::LOOKUPS};
use rustix::{
    fs::{Dir, FileType},
    io::Errno,
};
use std::collections::HashSet;

/// An entry of a folder.
type Entry = (Vec<u8>, FileType);

pub(crate) fn moved(net: &mut Net<'_>) {
    let mut seen = HashSet::new();
    let mut todo: Vec<u64> = net.window.moved.iter().copied().collect();
    while let Some(dir) = todo.pop() {
        let (before, now) = (net.places.before(dir), net.places.now(dir));
        let wanted = [&before, &now].into_iter().flatten().any(|path| net.ledger.wants(path));
        if now.is_some() && before != now && wanted && seen.insert(dir) {
            let entries = read(net, dir).unwrap_or_default();
            if !net.places.tree.afford(entries.len()) {
                return net.places.lost = true;
            }
            for (name, kind) in entries {
                visit(net, dir, &name, kind, &mut todo);
            }
        }
    }
}

fn read(net: &mut Net<'_>, dir: u64) -> Option<Vec<Entry>> {
    let opened = Dir::read_from(net.places.open(dir)?);
    let listed = opened.and_then(|listing| {
        let entry = |entry: Result<rustix::fs::DirEntry, Errno>| {
            entry.map(|entry| (entry.file_name().to_bytes().to_vec(), entry.file_type()))
        };
        listing.map(entry).take(LOOKUPS + 1).collect()
    });
    net.places.known(listed)
}

fn visit(net: &mut Net<'_>, dir: u64, name: &[u8], kind: FileType, todo: &mut Vec<u64>) {
    let wanted = matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Symlink);
    if !wanted || name == b"." || name == b".." || net.turned(dir, name) {
        return;
    }
    let Some(found) = net.look(dir, name).filter(|found| found.device == net.places.tree.device) else {
        return;
    };
    if found.is_dir {
        // A folder that was made in this window has only files that were too, or that have events.
        if net.window.dirs.get(&found.inode) != Some(&None) {
            todo.push(found.inode);
        }
    } else if found.kind.is_some() {
        net.surprise(dir, name, &found);
    }
}
