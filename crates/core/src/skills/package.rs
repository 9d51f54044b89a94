//! The package of a skill: a ZIP archive, which is untrusted. It is read only where the central directory and the local
//! headers say the same, no two entries share a byte or a name, every entry is a plain file or folder with a plain
//! relative name, and all of them unpack to what they say within the limits. Nothing is written from here: what is
//! installed is sent to the sandbox as a tar archive, which its user unpacks.

use super::skill_md::{LONGEST_SKILL_MD, SkillMd};
use atoll_guest_tools::archive::{BLOCK, END_MARK, file_head};
use atoll_types::{Error, ErrorCode, Millis, Result};
use bytes::Bytes;
use std::{
    collections::BTreeSet,
    io::{Cursor, Read, Seek, Write},
};
use zip::{
    CompressionMethod, ZipArchive, ZipWriter,
    read::{ArchiveOffset, Config, ZipFile},
    result::ZipError,
    write::SimpleFileOptions,
};

/// The largest package, in bytes.
pub const LARGEST_PACKAGE: usize = 10 << 20;
/// The most files of a package.
pub const MOST_FILES: usize = 100;
/// What the files of a package may have in all, in bytes.
pub const MOST_UNPACKED: u64 = 50 << 20;
/// The longest path of a file, in bytes.
const LONGEST_PATH: usize = 255;
/// The most folders above a file.
const DEEPEST: usize = 16;
/// Headers of a central directory that are read at all, and with them folders.
const MOST_HEADERS: usize = 4096;
/// The end record of an archive without its comment.
const END_RECORD: usize = 22;
const CENTRAL_HEADER: &[u8] = b"PK\x01\x02";
/// What macOS adds to archives that it makes.
const LEFT_OUT: &str = "__MACOSX/";

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PackedFile {
    index: usize,
    /// As it is installed.
    path: String,
    executable: bool,
    size: u64,
}

/// A package that was read to its end.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Package {
    pub(super) skill_md: SkillMd,
    files: Vec<PackedFile>,
}

fn wrong(message: impl Into<String>) -> Error {
    Error::invalid("file", message)
}

fn broken(error: &ZipError) -> Error {
    wrong(format!("the package is no ZIP archive that can be read: {error}"))
}

fn too_large(message: String) -> Error {
    Error::new(ErrorCode::TooLarge, message).at("file")
}

/// A name of the archive; none where it is a folder's or left out.
fn file_name(entry: &ZipFile<'_, impl Read>) -> Result<Option<String>> {
    let name = entry.name().map_err(|e| broken(&e))?.into_owned();
    let shown = name.escape_debug();
    if entry.encrypted() {
        return Err(wrong(format!("{shown} is encrypted")));
    }
    if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
        return Err(wrong(format!("{shown} is compressed by another method than deflate")));
    }
    let is_folder = name.ends_with('/');
    let kind = entry.unix_mode().map_or(0, |mode| mode & 0o170_000);
    if !(kind == 0 || kind == 0o100_000 && !is_folder || kind == 0o040_000 && is_folder) {
        return Err(wrong(format!("{shown} is neither a file nor a folder")));
    }
    let plain = name.strip_suffix('/').unwrap_or(&name);
    let part = |part: &str| !matches!(part, "" | "." | "..");
    let depth = plain.split('/').count();
    if !plain.split('/').all(part) || name.contains(|c: char| c.is_control() || c == '\\') {
        return Err(wrong(format!("{shown} is no plain relative path")));
    }
    if name.len() > LONGEST_PATH || depth > DEEPEST {
        return Err(wrong(format!("{shown:.80} has more than {LONGEST_PATH} bytes or {DEEPEST} folders")));
    }
    Ok(Some(name).filter(|name| !is_folder && !name.starts_with(LEFT_OUT)))
}

/// The one SKILL.md, which is at the top or in a folder at the top.
fn skill_file(files: &[PackedFile]) -> Result<&PackedFile> {
    let is_it = |file: &&PackedFile| {
        let mut parts = file.path.rsplit('/');
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("SKILL.md")) && parts.count() <= 1
    };
    let found: Vec<&PackedFile> = files.iter().filter(is_it).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let message = "the package has no SKILL.md, neither at its top nor in a folder there";
            Err(Error::new(ErrorCode::SkillFileMissing, message))
        }
        several => {
            let paths: Vec<&str> = several.iter().map(|file| file.path.as_str()).collect();
            let message = format!("the package has several SKILL.md: {}", paths.join(", "));
            Err(Error::new(ErrorCode::SkillFileAmbiguous, message).fact("found_paths", paths))
        }
    }
}

/// Refuses two files of one path, and a file where another has a folder.
fn check_paths(files: &[PackedFile]) -> Result<()> {
    let mut taken = BTreeSet::new();
    for file in files {
        if !taken.insert(file.path.as_str()) {
            return Err(wrong(format!("{} is there twice", file.path.escape_debug())));
        }
    }
    for file in files {
        let above = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
        if let Some(path) = above.into_iter().find(|above| taken.contains(above)) {
            return Err(wrong(format!("{} is a file and a folder", path.escape_debug())));
        }
    }
    Ok(())
}

/// Opens an archive whose parts agree with each other.
fn open<R: Read + Seek>(reader: R) -> Result<ZipArchive<R>> {
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let mut archive = ZipArchive::with_config(config, reader).map_err(|e| broken(&e))?;
    archive.validate_header_consistency().map_err(|e| broken(&e))?;
    Ok(archive)
}

/// Refuses an archive whose end record does not come right after the central directory that it names: of two archives in one file
/// other programs read the second.
fn check_end(bytes: &[u8], comment: usize) -> Result<()> {
    let end = bytes.len().checked_sub(END_RECORD + comment);
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
    };
    let directory = |end: usize| number(end + 12)?.checked_add(number(end + 16)?);
    match end.is_some_and(|end| bytes[end..].starts_with(b"PK\x05\x06") && directory(end) == Some(end)) {
        true => Ok(()),
        false => {
            Err(wrong("the package is no ZIP archive of one piece: its end names another central directory"))
        }
    }
}

/// Reads what an entry holds, and that it is as much as it says.
fn unpack(entry: &mut ZipFile<'_, impl Read>, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (mut left, mut buffer) = (entry.size(), [0; 16 << 10]);
    loop {
        let got = entry.read(&mut buffer).map_err(|e| wrong(format!("a file cannot be unpacked: {e}")))?;
        if got == 0 {
            break;
        }
        let rest = left.checked_sub(got as u64);
        left = rest.ok_or_else(|| wrong("a file is larger than the package says"))?;
        each(&buffer[..got])?;
    }
    if left == 0 { Ok(()) } else { Err(wrong("a file is smaller than the package says")) }
}

/// The files of an archive with the paths that they have in it.
fn files_of<R: Read + Seek>(archive: &mut ZipArchive<R>) -> Result<Vec<PackedFile>> {
    let mut files = Vec::new();
    let mut unpacked = 0_u64;
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(|e| broken(&e))?;
        let Some(path) = file_name(&entry)? else { continue };
        unpacked = unpacked.saturating_add(entry.size());
        if files.len() >= MOST_FILES || unpacked > MOST_UNPACKED {
            let most = MOST_UNPACKED >> 20;
            return Err(too_large(format!(
                "a package has at most {MOST_FILES} files, with {most} MiB in all when unpacked"
            )));
        }
        let executable = entry.unix_mode().is_some_and(|mode| mode & 0o100 != 0);
        files.push(PackedFile { index, path, executable, size: entry.size() });
    }
    Ok(files)
}

/// The archive's SKILL.md, and the files with the paths that they get in a sandbox.
fn layout(mut files: Vec<PackedFile>) -> Result<(usize, Vec<PackedFile>)> {
    check_paths(&files)?;
    let PackedFile { index, path, .. } = skill_file(&files)?.clone();
    let folder = path.rfind('/').map_or("", |at| &path[..=at]);
    for file in &mut files {
        let Some(inside) = file.path.strip_prefix(folder) else {
            let message = format!("{} is not in the folder of SKILL.md", file.path.escape_debug());
            return Err(wrong(message));
        };
        file.path = if file.index == index { "SKILL.md".into() } else { inside.to_owned() };
    }
    check_paths(&files)?;
    Ok((index, files))
}

impl Package {
    /// Checks a package by unpacking all of it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > LARGEST_PACKAGE {
            let message = format!("a package has at most {} MiB", LARGEST_PACKAGE >> 20);
            return Err(too_large(message));
        }
        // The library holds each header in memory, however many there are.
        let headers = bytes.windows(CENTRAL_HEADER.len()).filter(|window| *window == CENTRAL_HEADER);
        if headers.take(MOST_HEADERS + 1).count() > MOST_HEADERS {
            return Err(too_large(format!("a package has at most {MOST_FILES} files")));
        }
        let mut archive = open(Cursor::new(bytes))?;
        check_end(bytes, archive.comment().len())?;
        let (skill_file, files) = layout(files_of(&mut archive)?)?;
        let mut text = Vec::new();
        for file in &files {
            let mut entry = archive.by_index(file.index).map_err(|e| broken(&e))?;
            let is_skill_md = file.index == skill_file;
            if is_skill_md && file.size > LONGEST_SKILL_MD as u64 {
                return Err(too_large(format!("SKILL.md has at most {LONGEST_SKILL_MD} bytes")));
            }
            unpack(&mut entry, |piece| {
                if is_skill_md {
                    text.extend_from_slice(piece);
                }
                Ok(())
            })?;
        }
        let text = String::from_utf8(text).map_err(|_| {
            let message = "SKILL.md is no UTF-8";
            Error::new(ErrorCode::SkillMalformedFrontmatter, message).fact("parse_error", message)
        })?;
        Ok(Self { skill_md: SkillMd::parse(text)?, files })
    }

    /// How many files it has.
    pub(super) fn files(&self) -> u32 {
        u32::try_from(self.files.len()).unwrap_or(u32::MAX)
    }
}

/// The SKILL.md of a package that was checked before. No other file of it is unpacked.
pub(super) fn skill_md_of<R: Read + Seek>(package: R) -> Result<String> {
    let mut archive = open(package)?;
    let (skill_file, _) = layout(files_of(&mut archive)?)?;
    let mut entry = archive.by_index(skill_file).map_err(|e| broken(&e))?;
    let mut text = Vec::new();
    unpack(&mut entry, |piece| {
        text.extend_from_slice(piece);
        Ok(())
    })?;
    String::from_utf8(text).map_err(|_| wrong("SKILL.md is no UTF-8"))
}

/// Unpacks a package that was checked before, as a tar archive of what a sandbox gets, piece by piece.
pub(super) fn tar<R: Read + Seek>(
    package: R,
    changed_at: Millis,
    mut send: impl FnMut(Bytes) -> Result<()>,
) -> Result<()> {
    let mut archive = open(package)?;
    let (_, files) = layout(files_of(&mut archive)?)?;
    let seconds = u64::try_from(changed_at / 1000).unwrap_or(0);
    for file in files {
        let mode = if file.executable { 0o755 } else { 0o644 };
        send(file_head(&file.path, mode, seconds, file.size).into())?;
        let mut entry = archive.by_index(file.index).map_err(|e| broken(&e))?;
        unpack(&mut entry, |piece| send(Bytes::copy_from_slice(piece)))?;
        let padding = file.size.next_multiple_of(BLOCK as u64) - file.size;
        send(vec![0; usize::try_from(padding).unwrap_or(0)].into())?;
    }
    send(Bytes::from_static(&END_MARK))
}

fn write_failed(error: impl std::fmt::Display) -> Error {
    Error::internal(format!("a package cannot be written: {error}"))
}

/// A package with this SKILL.md, and with the other files of another one.
pub(super) fn write(skill_md: &SkillMd, others: Option<&[u8]>) -> Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let name = match others {
        None => "SKILL.md".to_owned(),
        Some(bytes) => {
            let mut archive = open(Cursor::new(bytes))?;
            let files = files_of(&mut archive)?;
            let PackedFile { index: skill_file, path, .. } = skill_file(&files)?.clone();
            for file in files.iter().filter(|file| file.index != skill_file) {
                let entry = archive.by_index_raw(file.index).map_err(|e| broken(&e))?;
                writer.raw_copy_file(entry).map_err(write_failed)?;
            }
            path
        }
    };
    writer.start_file(name, SimpleFileOptions::default()).map_err(write_failed)?;
    writer.write_all(skill_md.text.as_bytes()).map_err(write_failed)?;
    Ok(writer.finish().map_err(write_failed)?.into_inner())
}

#[cfg(test)]
mod tests;
