//! `grep`: lines that match, in the order of their files. The expression takes linear time whatever the user
//! writes; the size it compiles to is bounded, and so is every file, line and answer.

use super::{
    find::is_hidden,
    glob::Glob,
    out::Lines,
    place::{absolute, open, shown_path},
};
use crate::{
    End, Grep, GrepLine, Match, beneath,
    errno::on_path,
    walk::{Item, Walk},
};
use atoll_types::{Error, Result};
use memchr::{memchr, memchr_iter};
use regex::bytes::{Regex, RegexBuilder};
use rustix::{
    fs::{FileType, OFlags, fstat},
    io::Errno,
};
use std::{fs::File, io::Read, os::fd::OwnedFd};

const LARGEST_PROGRAM: usize = 1 << 20;
/// Bytes of a line that are reported.
const LONGEST_TEXT: usize = 2 << 10;

pub(super) fn run(request: &Grep) -> Result<()> {
    let mut lines = Lines::new();
    let end = grep(request, |found| lines.line(&GrepLine::Match(found)))?;
    lines.tell(&GrepLine::End(end))?;
    lines.flush()
}

fn compile(request: &Grep) -> Result<Regex> {
    let pattern = if request.literal { regex::escape(&request.pattern) } else { request.pattern.clone() };
    RegexBuilder::new(&pattern)
        .case_insensitive(request.ignore_case)
        .size_limit(LARGEST_PROGRAM)
        .dfa_size_limit(2 * LARGEST_PROGRAM)
        .build()
        .map_err(|e| {
            let text = e.to_string();
            // The last line has the message; those before it draw an arrow.
            let what = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            Error::invalid("pattern", format!("pattern is no regular expression: {what}"))
        })
}

/// Passes each match to `tell` until that has no room for more.
fn grep(request: &Grep, tell: impl FnMut(Match) -> Result<bool>) -> Result<End> {
    request.check()?;
    let regex = compile(request)?;
    let glob = request.glob.as_deref().map(|g| Glob::new("glob", g)).transpose()?;
    let top = absolute(&request.path);
    let what = open(&top, OFlags::RDONLY)?;
    let stat = fstat(&what).map_err(|e| on_path(e, "path"))?;
    let mut search = Search { request, regex, buffer: Vec::new(), count: 0, skipped: 0, full: false, tell };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(on_path(Errno::NXIO, "path"));
        }
        search.file(what, &shown_path(&top, b""))?;
        return Ok(End { truncated: search.full, skipped: search.skipped });
    }
    let mut walk = Walk::new(what, u32::MAX);
    while let Some(item) = walk.next() {
        if !request.hidden && is_hidden(item.name()) {
            walk.stay_out();
            continue;
        }
        let meant = |item: &Item| glob.as_ref().is_none_or(|g| g.matches(&item.path, item.name()));
        if item.kind() != FileType::RegularFile || !meant(&item) {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        match beneath::open(walk.top(), &item.path, flags) {
            Ok(file) => search.file(file, &shown_path(&top, &item.path))?,
            Err(Errno::NOENT) => {}
            Err(_) => search.skipped += 1,
        }
        if search.full {
            break;
        }
    }
    if let Some((path, errno)) = walk.unreadable.first()
        && path.is_empty()
    {
        return Err(on_path(*errno, "path"));
    }
    Ok(End { truncated: search.full || walk.cut, skipped: search.skipped + walk.skipped })
}

struct Search<'a, F> {
    request: &'a Grep,
    regex: Regex,
    /// The file that is searched.
    buffer: Vec<u8>,
    count: u32,
    skipped: u64,
    full: bool,
    tell: F,
}

impl<F: FnMut(Match) -> Result<bool>> Search<'_, F> {
    /// Searches one file, unless it is too large or not a text.
    fn file(&mut self, file: OwnedFd, path: &str) -> Result<()> {
        self.buffer.clear();
        let most = self.request.max_file_size;
        if File::from(file).take(most + 1).read_to_end(&mut self.buffer).is_err() {
            self.skipped += 1;
            return Ok(());
        }
        if self.buffer.len() as u64 > most || memchr(0, &self.buffer).is_some() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.lines(&buffer, path);
        self.buffer = buffer;
        result
    }

    fn lines(&mut self, buffer: &[u8], path: &str) -> Result<()> {
        let mut in_file = 0;
        let ends = memchr_iter(b'\n', buffer).chain((buffer.last() != Some(&b'\n')).then_some(buffer.len()));
        let mut start = 0;
        for (number, end) in ends.enumerate() {
            let line = &buffer[start..end];
            if let Some(at) = self.regex.find(line) {
                if self.count == self.request.max_matches {
                    self.full = true;
                    return Ok(());
                }
                let found = Match {
                    path: path.to_owned(),
                    line: number as u64 + 1,
                    column: characters(&line[..at.start()]) + 1,
                    text: text(line),
                    before: before(buffer, start, self.request.context),
                    after: after(buffer, end, self.request.context),
                };
                if !(self.tell)(found)? {
                    self.full = true;
                    return Ok(());
                }
                (self.count, in_file) = (self.count + 1, in_file + 1);
                if self.request.max_per_file.is_some_and(|most| in_file >= most) {
                    return Ok(());
                }
            }
            start = end + 1;
        }
        Ok(())
    }
}

fn characters(bytes: &[u8]) -> u64 {
    String::from_utf8_lossy(bytes).chars().count() as u64
}

/// A line as it is reported: without its end, cut, and with bytes that are not UTF-8 replaced.
fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut end = line.len().min(LONGEST_TEXT);
    // Not in the middle of a character.
    while end < line.len() && end > LONGEST_TEXT - 4 && line[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    String::from_utf8_lossy(&line[..end]).into_owned()
}

fn before(buffer: &[u8], start: usize, count: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut end = start;
    while end > 0 && lines.len() < count as usize {
        let from = memchr::memrchr(b'\n', &buffer[..end - 1]).map_or(0, |at| at + 1);
        lines.push(text(&buffer[from..end - 1]));
        end = from;
    }
    lines.reverse();
    lines
}

fn after(buffer: &[u8], end: usize, count: u32) -> Vec<String> {
    let rest = buffer.get(end + 1..).unwrap_or_default();
    let rest = rest.strip_suffix(b"\n").unwrap_or(rest);
    if rest.is_empty() && buffer.get(end + 1).is_none() {
        return Vec::new();
    }
    rest.split(|b| *b == b'\n').take(count as usize).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn search(top: &tempfile::TempDir, change: impl FnOnce(&mut Grep)) -> (Vec<Match>, End) {
        let path = top.path().to_str().unwrap().to_owned();
        let mut request = Grep { path: path.clone(), pattern: "needle".into(), ..Grep::default() };
        change(&mut request);
        let mut seen = Vec::new();
        let end = grep(&request, |mut found| {
            found.path = found.path.strip_prefix(&format!("{path}/")).unwrap().to_owned();
            seen.push(found);
            Ok(true)
        });
        (seen, end.unwrap())
    }

    fn places(found: &[Match]) -> Vec<String> {
        found.iter().map(|m| format!("{}:{}:{}", m.path, m.line, m.column)).collect()
    }

    fn tree() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("d/e/a.txt"), "one\ntwo é needle\nthree\nNeedle").unwrap();
        fs::write(at("b.rs"), "needle needle\r\nx\n").unwrap();
        fs::write(at("binary"), b"needle\0").unwrap();
        fs::write(at(".hidden"), "needle").unwrap();
        symlink("d/e/a.txt", at("link")).unwrap();
        top
    }

    #[test]
    fn lines_are_found_with_their_places() {
        let top = tree();
        let (found, end) = search(&top, |_| {});
        assert_eq!(places(&found), [".hidden:1:1", "b.rs:1:1", "d/e/a.txt:2:7"]);
        assert_eq!((found[1].text.as_str(), end), ("needle needle", End::default()));
        assert_eq!(places(&search(&top, |r| r.ignore_case = true).0).len(), 4);
        assert_eq!(places(&search(&top, |r| r.glob = Some("*.rs".into())).0), ["b.rs:1:1"]);
        assert_eq!(places(&search(&top, |r| r.hidden = false).0), ["b.rs:1:1", "d/e/a.txt:2:7"]);
        assert_eq!(places(&search(&top, |r| r.pattern = "^t\\w+$".into()).0), ["d/e/a.txt:3:1"]);
    }

    #[test]
    fn context_is_around_and_ends_at_the_ends() {
        let top = tree();
        let (found, _) = search(&top, |r| {
            r.context = 2;
            r.glob = Some("a.txt".into());
        });
        assert_eq!(
            (found[0].before.clone(), found[0].after.clone()),
            (vec!["one".into()], vec!["three".into(), "Needle".into()])
        );
        let (found, _) = search(&top, |r| {
            r.context = 1;
            r.pattern = "^x$".into();
        });
        assert_eq!((found[0].before.clone(), found[0].after.len()), (vec!["needle needle".into()], 0));
    }

    #[test]
    fn a_text_is_no_expression() {
        let top = tree();
        fs::write(top.path().join("t"), "a.c\nabc\n").unwrap();
        let (found, _) = search(&top, |r| {
            r.pattern = "a.c".into();
            r.literal = true;
        });
        assert_eq!(places(&found), ["t:1:1"]);
    }

    #[test]
    fn limits_hold_and_are_said() {
        let top = tree();
        let long = format!("{}\n", "needle é ".repeat(2000)).repeat(50);
        fs::write(top.path().join("long"), long).unwrap();
        let (found, end) = search(&top, |r| r.max_matches = 5);
        assert_eq!((found.len(), end.truncated), (5, true));
        assert!(found[4].text.len() <= LONGEST_TEXT && found[4].text.starts_with("needle é"));
        let (found, end) = search(&top, |r| r.max_per_file = Some(2));
        assert_eq!((found.len(), end.truncated), (5, false));
        assert_eq!(search(&top, |r| r.max_file_size = 1000).0.len(), 3);
    }

    #[test]
    fn a_hostile_pattern_is_refused_or_harmless() {
        let top = tree();
        fs::write(top.path().join("as"), "a".repeat(100_000)).unwrap();
        assert_eq!(search(&top, |r| r.pattern = "(a*)*b".into()).0.len(), 0);
        let request = |pattern: &str| Grep {
            path: top.path().to_str().unwrap().into(),
            pattern: pattern.into(),
            ..Grep::default()
        };
        for pattern in ["(", "a{1000}{1000}{1000}", r"\p{Greek}{99999}", "", &"(".repeat(5000)] {
            let error = grep(&request(pattern), |_| Ok(true)).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("pattern"), "{pattern:.20}");
        }
    }
}
