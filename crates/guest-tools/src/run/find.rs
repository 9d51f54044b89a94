//! `find`: entries below a folder, in the order of their paths.

use super::{
    glob::Glob,
    out::Lines,
    place::{absolute, open, shown_path},
};
use crate::{
    End, EntryKind, Find, FindLine, Found, KindFilter,
    errno::on_path,
    walk::{Item, Walk},
};
use atoll_types::Result;
use rustix::fs::{FileType, OFlags, Stat};

pub(super) fn run(request: &Find) -> Result<()> {
    let mut lines = Lines::new();
    let end = find(request, |found| lines.line(&FindLine::Entry(found)))?;
    lines.tell(&FindLine::End(end))?;
    lines.flush()
}

pub(super) fn kind_of(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.first() == Some(&b'.')
}

fn milliseconds(stat: &Stat) -> i64 {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

/// Passes each entry to `tell` until that has no room for more.
fn find(request: &Find, mut tell: impl FnMut(Found) -> Result<bool>) -> Result<End> {
    request.check()?;
    let pattern = request.pattern.as_deref().map(|p| Glob::new("pattern", p)).transpose()?;
    let top = absolute(&request.path);
    let folder = open(&top, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut walk = Walk::new(folder, request.max_depth.unwrap_or(u32::MAX));
    let (mut count, mut truncated) = (0, false);
    while let Some(item) = walk.next() {
        if !request.hidden && is_hidden(item.name()) {
            walk.stay_out();
            continue;
        }
        if pattern.as_ref().is_some_and(|p| !p.matches(&item.path, item.name())) || !wanted(request, &item) {
            continue;
        }
        if count == request.limit || !tell(found(&top, &item))? {
            truncated = true;
            break;
        }
        count += 1;
    }
    // A folder that cannot be read at all must not look empty.
    if count == 0
        && let Some((path, errno)) = walk.unreadable.first()
        && path.is_empty()
    {
        return Err(on_path(*errno, "path"));
    }
    Ok(End { truncated: truncated || walk.cut, skipped: walk.skipped })
}

fn wanted(request: &Find, item: &Item) -> bool {
    let kind = kind_of(&item.stat);
    let right = match request.kind {
        KindFilter::Any => true,
        KindFilter::File => kind == EntryKind::File,
        KindFilter::Directory => kind == EntryKind::Directory,
        KindFilter::Symlink => kind == EntryKind::Symlink,
    };
    let size = u64::try_from(item.stat.st_size).unwrap_or(0);
    let sized = request.min_size.is_some() || request.max_size.is_some();
    right
        && (!sized || kind == EntryKind::File)
        && request.min_size.is_none_or(|least| size >= least)
        && request.max_size.is_none_or(|most| size <= most)
        && request.modified_after.is_none_or(|moment| milliseconds(&item.stat) > moment)
}

fn found(top: &str, item: &Item) -> Found {
    let kind = kind_of(&item.stat);
    Found {
        path: shown_path(top, &item.path),
        kind,
        size: if kind == EntryKind::File { u64::try_from(item.stat.st_size).unwrap_or(0) } else { 0 },
        mode: item.stat.st_mode & 0o7777,
        modified: milliseconds(&item.stat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn tree() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir(at(".git")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        for (name, size) in
            [("a/b/x.rs", 10), ("a/y.rs", 2000), ("z é\n.txt", 1), (".git/x.rs", 5), ("a-b", 0)]
        {
            fs::write(at(name), vec![b'x'; size]).unwrap();
        }
        symlink("..", at("a/loop")).unwrap();
        symlink("/nowhere", at("dangling")).unwrap();
        top
    }

    fn names(top: &tempfile::TempDir, change: impl FnOnce(&mut Find)) -> (Vec<String>, End) {
        let path = top.path().to_str().unwrap().to_owned();
        let mut request = Find { path: path.clone(), ..Find::default() };
        change(&mut request);
        let mut seen = Vec::new();
        let end = find(&request, |found| {
            seen.push(found.path.strip_prefix(&format!("{path}/")).unwrap().to_owned());
            Ok(true)
        });
        (seen, end.unwrap())
    }

    #[test]
    fn everything_is_found_in_order_and_no_link_is_followed() {
        let top = tree();
        let all = [
            ".git",
            ".git/x.rs",
            "a",
            "a/b",
            "a/b/x.rs",
            "a/loop",
            "a/y.rs",
            "a-b",
            "dangling",
            "empty",
            "z é\n.txt",
        ];
        assert_eq!(names(&top, |_| {}).0, all);
    }

    #[test]
    fn each_filter_filters() {
        let top = tree();
        let of = |change: fn(&mut Find)| names(&top, change).0;
        assert_eq!(of(|r| r.pattern = Some("*.rs".into())), [".git/x.rs", "a/b/x.rs", "a/y.rs"]);
        assert_eq!(of(|r| r.pattern = Some("a/**/*.rs".into())), ["a/b/x.rs", "a/y.rs"]);
        assert_eq!(of(|r| r.kind = KindFilter::Symlink), ["a/loop", "dangling"]);
        assert_eq!(of(|r| r.max_depth = Some(1)), [".git", "a", "a-b", "dangling", "empty", "z é\n.txt"]);
        assert_eq!(of(|r| r.min_size = Some(1000)), ["a/y.rs"]);
        assert_eq!(of(|r| r.max_size = Some(0)), ["a-b"]);
        assert_eq!(of(|r| r.modified_after = Some(4_000_000_000_000)), [""; 0]);
        let (seen, _) = names(&top, |r| {
            r.hidden = false;
            r.pattern = Some("*.rs".into());
        });
        assert_eq!(seen, ["a/b/x.rs", "a/y.rs"]);
    }

    #[test]
    fn what_is_left_out_is_said() {
        let top = tree();
        let (seen, end) = names(&top, |r| r.limit = 3);
        assert_eq!((seen.len(), end.truncated), (3, true));
        assert!(!names(&top, |r| r.limit = 11).1.truncated);
    }

    #[test]
    fn mistakes_name_their_field() {
        let top = tree();
        let path = top.path().to_str().unwrap().to_owned();
        let fails = |request: Find| find(&request, |_| Ok(true)).unwrap_err();
        let missing = fails(Find { path: format!("{path}/no"), ..Find::default() });
        assert_eq!((missing.code.as_str(), missing.field.as_deref()), ("not_found", Some("path")));
        let file = fails(Find { path: format!("{path}/a-b"), ..Find::default() });
        assert_eq!(file.code.as_str(), "not_a_directory");
        let pattern = fails(Find { path: path.clone(), pattern: Some("[".into()), ..Find::default() });
        assert_eq!(pattern.field.as_deref(), Some("pattern"));
        let limit = fails(Find { path, limit: 100_001, ..Find::default() });
        assert_eq!(limit.field.as_deref(), Some("limit"));
    }
}
