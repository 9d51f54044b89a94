//! What is mounted where, from /proc/self/mountinfo.

use crate::error::failed;
use atoll_types::Result;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The source of the topmost mount at a canonical path.
pub(super) fn device_at(path: &Path) -> Result<Option<OsString>> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(failed("read the mount table"))?;
    Ok(find(&table, path.as_os_str().as_bytes()).map(OsString::from_vec))
}

fn find(table: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let source = |line: &[u8]| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|field| *field == b"-")?;
        let here = unescape(fields.get(4)?) == path;
        here.then(|| fields.get(dash + 2).map(|source| unescape(source)))?
    };
    table.split(|b| *b == b'\n').filter_map(source).next_back()
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        let Some(digits) = octal else {
            out.push(*first);
            rest = tail;
            continue;
        };
        let value = digits.iter().fold(0_u32, |sum, digit| sum * 8 + u32::from(digit - b'0'));
        out.push(u8::try_from(value & 0xFF).unwrap_or(b'?'));
        rest = &tail[3..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_wins_and_names_are_unescaped() {
        let table = b"1 0 0:1 / /a\\040b rw shared:1 - btrfs /dev/loop1 rw\n\
                      2 1 0:2 / /a\\040b rw - btrfs /dev/loop2 rw\n\
                      3 1 0:3 / /c rw - tmpfs none rw\n";
        assert_eq!(find(table, b"/a b").as_deref(), Some(b"/dev/loop2".as_slice()));
        assert_eq!(find(table, b"/d"), None);
    }
}
