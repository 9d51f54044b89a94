//! What must be reported, by comparing everything that is there before and after.

use atoll_observe::{Action, Changes};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// One file, with everything that can be known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    inode: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    content: Vec<u8>,
    changed: (i64, i64),
    links: u64,
}

pub(crate) type Scan = BTreeMap<PathBuf, State>;

pub(crate) fn scan(top: &Path) -> Scan {
    let mut files = Scan::new();
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                todo.push(path);
                continue;
            }
            let content = match meta.is_symlink() {
                true => fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                false => fs::read(&path).unwrap(),
            };
            let state = State {
                inode: meta.ino(),
                mode: meta.mode(),
                owner: meta.uid(),
                modified: (meta.mtime(), meta.mtime_nsec()),
                changed: (meta.ctime(), meta.ctime_nsec()),
                links: meta.nlink(),
                content,
            };
            files.insert(path.strip_prefix(top).unwrap().to_owned(), state);
        }
    }
    files
}

/// Checks an answer: created and deleted exactly; modified where the file is another, and nowhere that
/// its time of the last change is the same.
pub(crate) fn check(before: &Scan, after: &Scan, changes: &Changes) -> Result<(), String> {
    let told: BTreeMap<_, _> = changes.entries.iter().map(|c| (c.path.clone(), c)).collect();
    if changes.truncated || told.len() != changes.entries.len() {
        return Err("truncated or twice".into());
    }
    for path in before.keys().chain(after.keys()).chain(told.keys()) {
        let said = told.get(path).map(|change| change.action);
        let size = told.get(path).map(|change| change.size_bytes);
        let fault = |want: &str| Err(format!("{}: want {want}, said {said:?}", path.display()));
        match (before.get(path), after.get(path)) {
            (None, None) if said.is_some() => return fault("nothing"),
            (Some(_), None) if said != Some(Action::Deleted) => return fault("deleted"),
            (None, Some(_)) if said != Some(Action::Created) => return fault("created"),
            (Some(old), Some(new)) => {
                let same = State { changed: old.changed, links: old.links, ..new.clone() } == *old;
                match said {
                    None if !same => return fault("modified"),
                    Some(Action::Modified) if old == new => return fault("nothing"),
                    Some(Action::Created | Action::Deleted) => return fault("modified or nothing"),
                    _ => {}
                }
            }
            _ => {}
        }
        if let (Some(new), Some(size)) = (after.get(path), size)
            && size != new.content.len() as u64
        {
            return fault("another size");
        }
    }
    Ok(())
}
