//! Text files. What may be written lies below two folders, compared name by name: `/workspace-2` is not below
//! `/workspace`, and neither is what a symbolic link of the workspace leads to outside.

use super::http::LARGEST_BODY;
use crate::run::place::absolute;
use rustix::fs::OFlags;
use serde::Deserialize;
use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path, PathBuf},
};

/// Below which a caller may write.
const WRITABLE: [&str; 2] = ["/workspace", "/mnt/user-data/outputs"];

/// What to write.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    path: String,
    content: String,
    #[serde(default)]
    mode: Mode,
}

/// Whether what is there stays.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Mode {
    #[default]
    #[serde(rename = "w")]
    Write,
    #[serde(rename = "a")]
    Append,
}

/// What to read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    path: String,
}

pub(super) fn write(request: &WriteFile) -> Result<(), String> {
    let path = writable(Path::new(&absolute(&request.path)), &WRITABLE)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(text)?;
    }
    let mut file = OpenOptions::new()
        .create(true)
        .write(true)
        .append(request.mode == Mode::Append)
        .custom_flags(PLAIN | OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .map_err(text)?;
    must_be_plain(&file)?;
    if request.mode == Mode::Write {
        file.set_len(0).map_err(text)?;
    }
    file.write_all(request.content.as_bytes()).map_err(text)
}

pub(super) fn read(request: &ReadFile) -> Result<String, String> {
    let path = absolute(&request.path);
    let file = OpenOptions::new().read(true).custom_flags(PLAIN).open(path).map_err(text)?;
    must_be_plain(&file)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_BODY as u64 + 1).read_to_end(&mut bytes).map_err(text)?;
    if bytes.len() > LARGEST_BODY {
        return Err(format!("the file has more than {LARGEST_BODY} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".into())
}

/// A FIFO is not waited for, and a terminal does not become that of this process.
const PLAIN: i32 = OFlags::NONBLOCK.union(OFlags::NOCTTY).bits().cast_signed();

fn must_be_plain(file: &File) -> Result<(), String> {
    let found = file.metadata().map_err(text)?;
    if found.is_file() { Ok(()) } else { Err("it is no file".into()) }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// The path without symbolic links, if it lies below one of the folders.
fn writable(path: &Path, folders: &[&str]) -> Result<PathBuf, String> {
    let outside = || format!("only {} can be written", folders.join(" and "));
    let below =
        |path: &Path| folders.iter().any(|folder| path.starts_with(folder) && path != Path::new(folder));
    if !below(path) || path.components().any(|part| part == Component::ParentDir) {
        return Err(outside());
    }
    // What is there already may be a link; what is not is made.
    let found = path.ancestors().find_map(|part| Some((fs::canonicalize(part).ok()?, part)));
    let (real, part) = found.ok_or_else(outside)?;
    let rest = path.strip_prefix(part).map_err(|_| outside())?;
    let whole = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
    if below(&whole) { Ok(whole) } else { Err(outside()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_may_be_written_is_compared_name_by_name() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let (inside, beside) = (top.join("work"), top.join("work-2"));
        fs::create_dir_all(inside.join("a")).unwrap();
        fs::create_dir(&beside).unwrap();
        symlink("a", inside.join("within")).unwrap();
        symlink(&beside, inside.join("out")).unwrap();
        symlink(beside.join("missing"), inside.join("dangling")).unwrap();
        let folder = inside.to_str().unwrap();
        let judge = |path: &Path| writable(path, &[folder]);
        for (path, wanted) in [("a/f", "a/f"), ("new/deep/f", "new/deep/f"), ("within/f", "a/f")] {
            assert_eq!(judge(&inside.join(path)), Ok(inside.join(wanted)));
        }
        for path in [
            inside.clone(),
            inside.join("../work-2/f"),
            inside.join("a/../../f"),
            inside.join("out/f"),
            beside.join("f"),
            PathBuf::from(format!("{folder}2/f")),
            PathBuf::from("/etc/passwd"),
        ] {
            assert!(judge(&path).is_err(), "{path:?}");
        }
        // Its target is not made: the last name is opened without following a link.
        assert_eq!(judge(&inside.join("dangling")), Ok(inside.join("dangling")));
    }
}
