//! The user that a command runs as. Names come from the sandbox's own /etc/passwd and /etc/group, which may be
//! anything: a FIFO, a gigabyte, not text. Reading them never blocks and never takes much.

use atoll_guest_proto::GuestConfig;
use atoll_types::{Error, ErrorCode, LONGEST_USER, StartStage};
use rustix::fs::{FileType, Mode, OFlags};
use std::ffi::CStr;

/// The longest /etc/passwd that is read.
const LONGEST_FILE: usize = 1024 * 1024;
const HIGHEST_ID: u32 = 65533;
const MOST_GROUPS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    pub(crate) name: String,
    pub(crate) home: String,
}

/// Why there is no such user: the request is wrong, or the command cannot start.
#[derive(Debug)]
pub(crate) enum UserError {
    Refused(Error),
    Unknown { stage: StartStage, message: String },
}

/// The user that the profile names.
pub(crate) fn profile_user(config: &GuestConfig) -> User {
    let (passwd, group) = (read_small(c"/etc/passwd"), read_small(c"/etc/group"));
    let found = entries(&passwd).find(|e| e.uid == config.uid);
    let fallback = if config.uid == 0 { "root" } else { "user" };
    let name = found.map_or_else(|| fallback.to_owned(), |e| e.name.to_owned());
    let groups = groups_of(&group, &name, config.uid == 0);
    User { uid: config.uid, gid: config.gid, groups, name, home: config.home.clone() }
}

/// The user that a request names: "", "name", "uid" or "uid:gid".
pub(crate) fn resolve(wanted: &str, config: &GuestConfig) -> Result<User, UserError> {
    if wanted.is_empty() {
        return Ok(profile_user(config));
    }
    let root = config.uid == 0;
    let passwd = read_small(c"/etc/passwd");
    let user = match parse_ids(wanted)? {
        Some((uid, gid)) => by_id(uid, gid, &passwd, config),
        None => by_name(wanted, &passwd, root)?,
    };
    let denied =
        |message: &str| Err(UserError::Refused(Error::new(ErrorCode::PermissionDenied, message).at("user")));
    if user.uid > HIGHEST_ID || user.gid > HIGHEST_ID {
        return denied(&format!(
            "uid {} and gid {} must be at most 65533: the sandbox has no higher ids, not even 65534",
            user.uid, user.gid
        ));
    }
    if !root && (user.uid == 0 || (user.gid == 0 && config.gid != 0)) {
        return denied("this sandbox runs nothing as root");
    }
    Ok(user)
}

/// Both ids, if the text is of digits; nothing if it is a name.
fn parse_ids(text: &str) -> Result<Option<(u32, Option<u32>)>, UserError> {
    let wrong = || UserError::Refused(Error::invalid("user", "user must be a name, a uid or uid:gid"));
    // More digits than a number has are an id that no sandbox has.
    let id = |part: &str| part.parse().unwrap_or(u32::MAX);
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match text.split_once(':') {
        Some((uid, gid)) if digits(uid) && digits(gid) => Ok(Some((id(uid), Some(id(gid))))),
        Some(_) => Err(wrong()),
        None if digits(text) => Ok(Some((id(text), None))),
        None if text.chars().count() > LONGEST_USER || text.contains(['\0', '\n']) => Err(wrong()),
        None => Ok(None),
    }
}

fn by_id(uid: u32, gid: Option<u32>, passwd: &str, config: &GuestConfig) -> User {
    let found = entries(passwd).find(|e| e.uid == uid);
    let profile = uid == config.uid;
    let default_gid = || if profile { config.gid } else { found.map_or(uid, |e| e.gid) };
    let home = if profile { &config.home } else { found.map_or("/", |e| e.home) };
    let name = found.map_or_else(|| uid.to_string(), |e| e.name.to_owned());
    User { uid, gid: gid.unwrap_or_else(default_gid), groups: Vec::new(), name, home: home.to_owned() }
}

fn by_name(name: &str, passwd: &str, root: bool) -> Result<User, UserError> {
    let Some(entry) = entries(passwd).find(|e| e.name == name) else {
        let message = format!("there is no user {name:?} in this image");
        return Err(UserError::Unknown { stage: StartStage::User, message });
    };
    let groups = groups_of(&read_small(c"/etc/group"), name, root);
    let (name, home) = (entry.name.to_owned(), entry.home.to_owned());
    Ok(User { uid: entry.uid, gid: entry.gid, groups, name, home })
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// The well-formed lines of a passwd file.
fn entries(passwd: &str) -> impl Iterator<Item = Entry<'_>> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|n| !n.is_empty())?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        let home = fields.nth(1).filter(|h| h.starts_with('/') && !h.contains('\0')).unwrap_or("/");
        Some(Entry { name, uid, gid, home })
    })
}

/// The groups that list this member; root's own only for root.
fn groups_of(group: &str, name: &str, root: bool) -> Vec<u32> {
    let listed = group.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let gid: u32 = fields.nth(2)?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == name).then_some(gid)
    });
    listed.filter(|gid| *gid <= HIGHEST_ID && (root || *gid != 0)).take(MOST_GROUPS).collect()
}

/// The group that terminals belong to, where the image has one.
pub(crate) fn tty_group() -> Option<u32> {
    find_group(&read_small(c"/etc/group"), "tty")
}

fn find_group(group: &str, name: &str) -> Option<u32> {
    group.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name);
        let gid: u32 = fields.nth(1)?.parse().ok()?;
        (found && gid <= HIGHEST_ID).then_some(gid)
    })
}

/// A regular file's text, up to the limit; empty if there is none to be had.
fn read_small(path: &CStr) -> String {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Ok(fd) = rustix::fs::open(path, flags, Mode::empty()) else { return String::new() };
    let Ok(stat) = rustix::fs::fstat(&fd) else { return String::new() };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return String::new();
    }
    let room = usize::try_from(stat.st_size).unwrap_or(0).min(LONGEST_FILE);
    let mut text = vec![0; room];
    let mut filled = 0;
    while let Ok(length @ 1..) = rustix::io::read(&fd, &mut text[filled..]) {
        filled += length;
    }
    text.truncate(filled);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\nbroken\n:x:1:1::/:\nann:x:1000:1001::/home/ann:/bin/sh\n";

    #[test]
    fn users_are_found_by_name() {
        let user = by_name("ann", PASSWD, false).unwrap();
        assert_eq!((user.uid, user.gid, user.home.as_str()), (1000, 1001, "/home/ann"));
        assert!(matches!(by_name("bob", PASSWD, false), Err(UserError::Unknown { .. })));
        assert_eq!(entries(PASSWD).count(), 2);
    }

    #[test]
    fn groups_list_their_members() {
        let group = "root:x:0:ann\na:x:7:bob,ann\nb:x:8:anna\nbad\nc:x:70000:ann\n";
        assert_eq!(groups_of(group, "ann", false), [7]);
        assert_eq!(groups_of(group, "ann", true), [0, 7]);
        assert_eq!((find_group(group, "a"), find_group(group, "tty")), (Some(7), None));
        assert_eq!((find_group(group, "bad"), find_group(group, "c")), (None, None));
    }

    #[test]
    fn ids_and_names_are_told_apart() {
        assert_eq!(parse_ids("12").unwrap(), Some((12, None)));
        assert_eq!(parse_ids("12:34").unwrap(), Some((12, Some(34))));
        assert_eq!(parse_ids("ann").unwrap(), None);
        assert_eq!(parse_ids("99999999999").unwrap(), Some((u32::MAX, None)));
        for wrong in ["1:", ":1", "a:b", "a\0b"] {
            assert!(parse_ids(wrong).is_err(), "{wrong:?}");
        }
    }
}
