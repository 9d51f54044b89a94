//! Hostile packages, byte by byte.

use super::*;
use crate::skills::skill_md::SkillFields;

const SKILL_MD: &str = "---\nname: good\ndescription: Does it\n---\n# Do it\n";

/// A ZIP archive of files with these names, modes and bytes.
fn zip(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, mode, body) in files {
        let options = SimpleFileOptions::default().external_attributes(mode << 16);
        writer.start_file(*name, options).unwrap();
        writer.write_all(body).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn with(name: &str, mode: u32) -> Vec<u8> {
    zip(&[("SKILL.md", 0o100_644, SKILL_MD.as_bytes()), (name, mode, b"x")])
}

fn refused(bytes: &[u8]) -> Error {
    Package::read(bytes).expect_err("it is hostile")
}

/// Every place of these bytes.
fn places(bytes: &[u8], wanted: &[u8]) -> Vec<usize> {
    bytes.windows(wanted.len()).enumerate().filter(|(_, w)| *w == wanted).map(|(at, _)| at).collect()
}

fn tar_of(bytes: &[u8]) -> Vec<(String, u32, usize)> {
    let mut all = Vec::new();
    tar(Cursor::new(bytes), 5000, |piece| {
        all.extend_from_slice(&piece);
        Ok(())
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let fd = std::fs::File::open(folder.path()).unwrap().into();
    let (mut done, mut left_out) = (atoll_guest_tools::Unpacked::default(), Vec::new());
    let links = atoll_guest_tools::archive::Links::Inside;
    atoll_guest_tools::archive::unpack(&fd, false, &all[..], links, &mut done, &mut left_out).unwrap();
    let mut found = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(at) = folders.pop() {
        for entry in std::fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                folders.push(entry.path());
                continue;
            }
            let name = entry.path().strip_prefix(folder.path()).unwrap().to_str().unwrap().to_owned();
            let mode = std::os::unix::fs::MetadataExt::mode(&about) & 0o777;
            found.push((name, mode, about.len() as usize));
        }
    }
    found.sort();
    found
}

#[test]
fn a_package_is_read_from_its_top_or_from_one_folder() {
    let long = format!("{}/{}.py", "d".repeat(90), "f".repeat(90));
    for folder in ["", "good/"] {
        let name = |path: &str| format!("{folder}{path}");
        let bytes = zip(&[
            (&name("skill.MD"), 0o100_600, SKILL_MD.as_bytes()),
            (&name("run.sh"), 0o100_755, b"#!/bin/sh\n"),
            (&name(&long), 0, &vec![b'a'; 100_000]),
            ("__MACOSX/good/._SKILL.md", 0o100_644, b"junk"),
        ]);
        let package = Package::read(&bytes).unwrap();
        assert_eq!((package.skill_md.name.as_str(), package.files()), ("good", 3));
        let expected = vec![
            ("SKILL.md".to_owned(), 0o644, SKILL_MD.len()),
            (long.clone(), 0o644, 100_000),
            ("run.sh".to_owned(), 0o755, 10),
        ];
        assert_eq!(tar_of(&bytes), expected, "{folder}");
        // Its SKILL.md is read without the other files: those may be broken.
        let mut broken = bytes.clone();
        let run = name("run.sh");
        let at = places(&broken, run.as_bytes())[0] + run.len();
        broken[at] ^= 0xff;
        assert_eq!(skill_md_of(Cursor::new(&broken)).unwrap(), SKILL_MD);
        refused(&broken);
    }
}

#[test]
fn a_package_keeps_its_other_files_when_its_instructions_change() {
    let bytes = zip(&[("good/SKILL.md", 0o100_644, SKILL_MD.as_bytes()), ("good/run.sh", 0o100_755, b"1")]);
    let fields = SkillFields { name: Some("better".into()), ..SkillFields::default() };
    let changed = write(&SkillMd::compose(SKILL_MD, fields).unwrap(), Some(&bytes)).unwrap();
    let package = Package::read(&changed).unwrap();
    assert_eq!((package.skill_md.name.as_str(), package.files()), ("better", 2));
    assert_eq!(tar_of(&changed)[1], ("run.sh".to_owned(), 0o755, 1));
}

#[test]
fn one_skill_file_is_expected() {
    let code = |names: &[&str]| {
        let files: Vec<_> = names.iter().map(|name| (*name, 0, SKILL_MD.as_bytes())).collect();
        let error = refused(&zip(&files));
        (error.code, error.refusal.map(|refusal| refusal.facts["found_paths"].clone()))
    };
    let missing = (ErrorCode::SkillFileMissing, None);
    assert_eq!(code(&["README.md"]), missing);
    assert_eq!(code(&["a/b/SKILL.md"]), missing);
    assert_eq!(code(&["__MACOSX/SKILL.md"]), missing);
    let both = serde_json::json!(["a/SKILL.md", "b/skill.md"]);
    assert_eq!(code(&["a/SKILL.md", "b/skill.md"]), (ErrorCode::SkillFileAmbiguous, Some(both)));
    assert_eq!(code(&["SKILL.md", "b/SKILL.md"]).0, ErrorCode::SkillFileAmbiguous);
    assert!(refused(&with("../x", 0)).message.contains("plain relative path"));
    let outside = zip(&[("a/SKILL.md", 0, SKILL_MD.as_bytes()), ("b/x", 0, b"x")]);
    assert!(refused(&outside).message.contains("not in the folder"));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in
        ["../x", "a/../../x", "/etc/passwd", "a//b", "./x", "a/./b", "a\\..\\b", "a\nb", "..", "C:\\x", ""]
    {
        assert!(Package::read(&with(name, 0o100_644)).is_err(), "{name:?}");
    }
    assert!(refused(&with(&"a/".repeat(17), 0)).message.contains("folders"));
    assert!(refused(&with(&"a".repeat(256), 0)).message.contains("bytes"));
}

#[test]
fn links_and_devices_are_refused() {
    for kind in [0o120_000, 0o020_000, 0o060_000, 0o010_000, 0o140_000] {
        assert!(
            refused(&with("x", kind | 0o777)).message.contains("neither a file nor a folder"),
            "{kind:o}"
        );
    }
}

#[test]
fn a_name_is_there_once_and_is_a_file_or_a_folder() {
    // Two names of one length; the second becomes the first in both of its headers.
    let mut bytes = zip(&[
        ("SKILL.md", 0o100_644, SKILL_MD.as_bytes()),
        ("one.txt", 0o100_644, b"1"),
        ("two.txt", 0o100_644, b"2"),
    ]);
    for at in places(&bytes, b"two.txt") {
        bytes[at..at + 7].copy_from_slice(b"one.txt");
    }
    refused(&bytes);
    let both = zip(&[("SKILL.md", 0, SKILL_MD.as_bytes()), ("a", 0, b"1"), ("a/b", 0, b"2")]);
    assert!(refused(&both).message.contains("a file and a folder"));
}

#[test]
fn bombs_are_refused_before_they_are_unpacked() {
    let error = refused(&with(&"x".repeat(5), 0o100_644)[..100]);
    assert!(error.message.contains("no ZIP archive"));
    let zeroes = vec![0; 30 << 20];
    let bomb = zip(&[("SKILL.md", 0, SKILL_MD.as_bytes()), ("a", 0, &zeroes), ("b", 0, &zeroes)]);
    assert!(bomb.len() < LARGEST_PACKAGE);
    assert_eq!(refused(&bomb).code, ErrorCode::TooLarge);
    // The same bomb, which says in every place that it is small.
    let mut liar = zip(&[("SKILL.md", 0, SKILL_MD.as_bytes()), ("a", 0, &zeroes)]);
    let size = u32::try_from(zeroes.len()).unwrap().to_le_bytes();
    let claims = places(&liar, &size);
    assert!(claims.len() >= 2, "{claims:?}");
    for at in claims {
        liar[at..at + 4].copy_from_slice(&100_u32.to_le_bytes());
    }
    refused(&liar);
    let many: Vec<String> = (0..MOST_FILES).map(|n| format!("f{n}")).collect();
    let mut files = vec![("SKILL.md", 0, SKILL_MD.as_bytes())];
    files.extend(many.iter().map(|name| (name.as_str(), 0, &b"x"[..])));
    assert_eq!(refused(&zip(&files)).code, ErrorCode::TooLarge);
    assert!(Package::read(&zip(&files[..MOST_FILES])).is_ok());
    assert_eq!(refused(&vec![0; LARGEST_PACKAGE + 1]).code, ErrorCode::TooLarge);
    assert_eq!(refused(&CENTRAL_HEADER.repeat(MOST_HEADERS + 1)).code, ErrorCode::TooLarge);
    let long = format!("{SKILL_MD}{}", "x".repeat(LONGEST_SKILL_MD));
    assert_eq!(refused(&zip(&[("SKILL.md", 0, long.as_bytes())])).code, ErrorCode::TooLarge);
}

#[test]
fn what_is_encrypted_or_packed_otherwise_is_refused() {
    let good = with("x", 0o100_644);
    // The flags lie 8 bytes behind the name of a central header, 6 behind that of a local one.
    let central = places(&good, CENTRAL_HEADER);
    let local = places(&good, b"PK\x03\x04");
    let changed = |offset: usize, value: u8| {
        let mut bytes = good.clone();
        for at in central.iter().map(|at| at + offset + 2).chain(local.iter().map(|at| at + offset)) {
            bytes[at] = value;
        }
        bytes
    };
    assert!(Package::read(&good).is_ok());
    assert!(refused(&changed(6, 1)).message.contains("encrypted"));
    // Bzip2.
    refused(&changed(8, 12));
}

#[test]
fn entries_that_overlap_or_lie_are_refused() {
    let good = with("x", 0o100_644);
    assert!(Package::read(&good).is_ok());
    let central = places(&good, CENTRAL_HEADER);
    // The second entry has the bytes of the first.
    let mut overlapping = good.clone();
    overlapping[central[1] + 42..central[1] + 46].fill(0);
    refused(&overlapping);
    // A CRC, a compressed size and an offset that are not true.
    for (offset, length) in [(16, 4), (20, 4), (24, 4), (42, 4)] {
        let mut bytes = good.clone();
        for byte in &mut bytes[central[1] + offset..central[1] + offset + length] {
            *byte = 0x7f;
        }
        refused(&bytes);
    }
    // Sizes of 64 bits, of which there are none.
    for offset in [20, 24, 42] {
        let mut bytes = good.clone();
        bytes[central[1] + offset..central[1] + offset + 4].fill(0xff);
        refused(&bytes);
    }
    // More and fewer entries than there are.
    let end = places(&good, b"PK\x05\x06")[0];
    for count in [0_u16, 1, 3, u16::MAX] {
        let mut bytes = good.clone();
        bytes[end + 8..end + 10].copy_from_slice(&count.to_le_bytes());
        bytes[end + 10..end + 12].copy_from_slice(&count.to_le_bytes());
        refused(&bytes);
    }
    // Bytes in front, and an archive within the comment of another.
    refused(&[b"#!/bin/sh\n", &good[..]].concat());
}

#[test]
fn no_broken_byte_breaks_the_reader() {
    let good = zip(&[("a/SKILL.md", 0o100_644, SKILL_MD.as_bytes()), ("a/x", 0o100_755, b"12345")]);
    for at in 0..good.len() {
        let _ = Package::read(&good[..at]);
        for bit in [1, 0x80] {
            let mut bytes = good.clone();
            bytes[at] ^= bit;
            let _ = Package::read(&bytes);
        }
    }
}

#[test]
fn two_archives_in_one_file_are_refused() {
    let one = zip(&[("SKILL.md", 0o100_644, SKILL_MD.as_bytes())]);
    let two = zip(&[("a/SKILL.md", 0o100_644, SKILL_MD.as_bytes())]);
    for (first, second) in [(&one, &two), (&one, &one), (&two, &one)] {
        assert_eq!(refused(&[first.as_slice(), second].concat()).field.as_deref(), Some("file"));
    }
}
