//! What the sources of COPY and ADD name among the files of a build.

use super::{
    BuildFiles,
    index::{EntryKind, FileEntry, path_inside},
};
use crate::image_specs::dockerfile::{Step, StepKind};
use atoll_types::{Error, ErrorCode, Result, audit::Sha256};
use sha2::{Digest, Sha256 as Hasher};

/// The endings of archives that ADD unpacks.
const UNPACKED: &[&str] = &[".tar", ".tar.gz", ".tgz", ".tar.zst"];
/// The endings of archives that it would have to, and cannot.
const UNSUPPORTED: &[&str] = &[".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar.lzma"];

/// An entry that a source names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selected {
    /// The path that fits the source; empty for the whole folder of the build.
    pub(super) top: String,
    /// The path below it; empty for the entry itself.
    pub(super) rest: String,
    pub(super) entry: FileEntry,
}

/// An archive among the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArchiveFile {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Whether a name fits a pattern with `*` and `?`. After a mismatch only the last `*` takes one character more, so that no pattern
/// takes longer than its length times the name's.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut last_star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                last_star = Some((at, in_name));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || *wanted == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else { return false };
                last_star = Some((star, taken + 1));
                at = star + 1;
                in_name = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == b'*')
}

impl BuildFiles {
    /// What a source names.
    pub(in crate::images::template) fn select(&self, source: &str) -> Result<Vec<Selected>> {
        let missing = || {
            let message = format!("{source} is not among the files of the build");
            Error::new(ErrorCode::InvalidArgument, message).at("dockerfile")
        };
        let wanted = path_inside(source).ok_or_else(missing)?;
        let parts: Vec<&str> = wanted.split('/').filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            let top = Selected { top: String::new(), rest: String::new(), entry: FileEntry::new_folder() };
            let below = self.entries.iter().map(|(path, entry)| Selected {
                top: String::new(),
                rest: path.clone(),
                entry: entry.clone(),
            });
            return Ok(std::iter::once(top).chain(below).collect());
        }
        let is_named = |path: &str| {
            let own: Vec<&str> = path.split('/').collect();
            own.len() == parts.len()
                && parts.iter().zip(own).all(|(part, own)| matches_pattern(part.as_bytes(), own.as_bytes()))
        };
        let mut found = Vec::new();
        for (top, entry) in self.entries.iter().filter(|(path, _)| is_named(path)) {
            found.push(Selected { top: top.clone(), rest: String::new(), entry: entry.clone() });
            let above = format!("{top}/");
            let below = self.entries.range(above.clone()..);
            found.extend(below.map_while(|(path, entry)| {
                let rest = path.strip_prefix(&above)?.to_owned();
                Some(Selected { top: top.clone(), rest, entry: entry.clone() })
            }));
        }
        if found.is_empty() { Err(missing()) } else { Ok(found) }
    }

    /// Takes the archives out of what a source of ADD names: those are unpacked, and the rest is copied.
    pub(in crate::images::template) fn take_archives(
        selected: &mut Vec<Selected>,
    ) -> Result<Vec<ArchiveFile>> {
        let ends = |top: &str, endings: &[&str]| endings.iter().any(|ending| top.ends_with(ending));
        let is_file = |one: &Selected| one.rest.is_empty() && one.entry.kind == EntryKind::File;
        if let Some(one) = selected.iter().find(|one| is_file(one) && ends(&one.top, UNSUPPORTED)) {
            let message =
                format!("ADD unpacks tar archives, also with gzip or Zstandard, and not {}", one.top);
            return Err(Error::new(ErrorCode::Unsupported, message).at("dockerfile"));
        }
        let archives = selected.extract_if(.., |one| is_file(one) && ends(&one.top, UNPACKED));
        Ok(archives.map(|one| ArchiveFile { offset: one.entry.offset, size: one.entry.size }).collect())
    }

    /// Refuses an ADD that says the owner or the permissions of what an archive holds: that has its own.
    pub(in crate::images::template) fn check_archives(&self, steps: &[Step]) -> Result<()> {
        for Step { line, kind } in steps {
            let StepKind::Copy { sources, unpack: true, owner, mode, .. } = kind else { continue };
            let flag = match (owner, mode) {
                (Some(_), _) => "--chown",
                (None, Some(_)) => "--chmod",
                (None, None) => continue,
            };
            for source in sources {
                let mut selected = self.select(source)?;
                if !Self::take_archives(&mut selected)?.is_empty() {
                    let message = format!(
                        "line {line}: ADD {flag} of an archive ({source}) is not supported: what it unpacks to has the owners and \
                         permissions of the archive; leave {flag} out and change them in a RUN"
                    );
                    return Err(Error::invalid("dockerfile", message));
                }
            }
        }
        Ok(())
    }

    /// The digest of what a source names: names, kinds, permissions and content, and no times.
    pub(in crate::images::template) fn digest(&self, source: &str) -> Result<Sha256> {
        let mut hasher = Hasher::new();
        for Selected { top, rest, entry } in self.select(source)? {
            let kind = match entry.kind {
                EntryKind::File => 1,
                EntryKind::Folder => 2,
                EntryKind::Link(_) => 3_u8,
            };
            for text in [&top, &rest] {
                hasher.update((text.len() as u64).to_be_bytes());
                hasher.update(text.as_bytes());
            }
            hasher.update([kind]);
            hasher.update(entry.mode.to_be_bytes());
            hasher.update(entry.digest);
        }
        Ok(Sha256(hasher.finalize().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_end_in_time() {
        let long = [b'a'; 255];
        assert!(!matches_pattern(b"*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*ab", &long));
        for (pattern, name, is) in [
            ("*", "", true),
            ("*.py", "a.py", true),
            ("?.py", "a.py", true),
            ("?.py", "ab.py", false),
            ("a*b*c", "axxbyybzc", true),
            ("a*b*c", "axxbyybz", false),
            ("a", "ab", false),
            ("ab", "a", false),
        ] {
            assert_eq!(matches_pattern(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
    }
}
