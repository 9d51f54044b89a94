//! Files that were written to without appearing or leaving. The name they were reached by may be gone, taken by
//! another file, or one of several: the inode decides, and btrfs knows its names.

use crate::{
    found::{self, Found},
    net::Net,
    sys,
    tree::Tree,
};
use rustix::{
    fd::AsFd,
    fs::{Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};

/// A name of a file now: folder, name, and the file there.
pub(crate) type CurrentName = (u64, Vec<u8>, Found);

pub(crate) fn touched(net: &mut Net<'_>) {
    let window = net.window;
    let mut inodes: Vec<u64> = window.touched.keys().copied().collect();
    // Folder by folder, so that each is opened once.
    inodes.sort_unstable_by_key(|inode| window.touched[inode].by.as_ref().map(|(dir, _)| *dir));
    for inode in inodes {
        let touch = &window.touched[&inode];
        let first = touch.by.as_ref().and_then(|(dir, name)| {
            let found = net.look(*dir, name).filter(|found| found.inode == inode)?;
            Some((*dir, name.to_vec(), found))
        });
        let places = match first {
            Some(place) if place.2.links == 1 => vec![place],
            _ => {
                let (names, more) = names_of(net.places.tree, inode);
                net.places.lost |= more;
                names
            }
        };
        for (dir, name, found) in places {
            let changed = touch.surely || net.memory.told.is_news(&found);
            if !changed || found.kind.is_none() || net.turned(dir, &name) {
                continue;
            }
            if touch.by.as_ref().is_some_and(|by| (by.0, &*by.1) == (dir, name.as_slice())) {
                net.before(dir, &name);
                net.after(dir, &name, &found);
            } else {
                net.surprise(dir, &name, &found);
            }
        }
    }
}

/// Every name that a file has now, and whether there may be more.
pub(crate) fn names_of(tree: &Tree, inode: u64) -> (Vec<CurrentName>, bool) {
    let (paths, mut more) = match sys::paths_of(&tree.fd, inode) {
        Ok(paths) => paths,
        Err(cause) => return (Vec::new(), cause != Errno::NOENT),
    };
    if !tree.afford(paths.len()) {
        return (Vec::new(), true);
    }
    let mut names = Vec::new();
    for path in paths {
        match name_at(&tree.fd, &path) {
            // The path may be one that the file had until a moment ago.
            Ok(name) => names.extend(name.filter(|(_, _, found)| found.inode == inode)),
            Err(_) => more = true,
        }
    }
    (names, more)
}

fn name_at(tree: impl AsFd, path: &[u8]) -> Result<Option<CurrentName>, Errno> {
    let (dir, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".".as_slice(), path),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let dir = match openat2(tree, dir, flags, Mode::empty(), resolve) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Ok(None),
        other => other?,
    };
    let Some(found) = found::look(&dir, name)? else { return Ok(None) };
    Ok(Some((sys::identity(&dir)?.1, name.to_vec(), found)))
}
