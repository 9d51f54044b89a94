//! What every container finds in its root, whatever image it starts from: folders to mount on, the files that describe the
//! sandbox's network, and an entry for its user. The `host` image has all of it. One that was sealed may lack anything, or
//! have a file or a link in its place.
//!
//! Over an image they are laid as the upper half of an overlay, which hides what the image has at these paths. In the
//! volume of a build root they are made, and a file or a link that is in the way is removed: the container that starts from
//! the finished image would not see it either. No symbolic link of an image is followed, except below the image's own root
//! to read its users; a file that is not small and regular is not read.

use crate::{context::make_folder, rootfs::fault};
use atoll_storage::image::NETWORK_FILES;
use atoll_types::{Error, ErrorCode, Profile, Result};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        AtFlags, FileType, Mode, OFlags, ResolveFlags, fchmod, mkdirat, open, openat, openat2, statat,
        unlinkat,
    },
    io::Errno,
};
use std::{
    fs, io,
    io::Read,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

/// What is mounted on at every start, with the modes that a root of its own shows. Parents come first.
const MOUNT_POINTS: &[(&str, u32)] = &[
    ("dev", 0o755),
    ("etc", 0o755),
    ("etc/atoll", 0o755),
    ("proc", 0o755),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
    ("workspace", 0o755),
];

/// The longest file of users that is read; what is laid out lies in a small tmpfs.
const LONGEST_USERS: u64 = 64 << 10;

/// Lays out what goes over an image. All of it belongs to `owner`, the sandbox's root.
pub(crate) fn lay_out(over: &Path, image: &OwnedFd, profile: &Profile, owner: u32) -> io::Result<()> {
    for (path, mode) in MOUNT_POINTS {
        make_owned(&over.join(path), *mode, owner)?;
    }
    let mut home = over.to_owned();
    for part in profile.home().trim_start_matches('/').split('/') {
        home.push(part);
        make_owned(&home, 0o755, owner)?;
    }
    let write = |path: &str, text: &str| {
        let path = over.join(path);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        chown(&path, Some(owner), Some(owner))
    };
    NETWORK_FILES.iter().try_for_each(|(path, text)| write(path, text))?;
    let name = |taken: &str| user_name(taken, profile.uid);
    let passwd = read_small(image, "etc/passwd")?;
    if let Some(text) =
        with_entry(passwd.as_deref(), profile.uid, "root:x:0:0:root:/root:/bin/sh\n", |taken| {
            let name = name(taken);
            format!("{name}:x:{}:{}:{name}:{}:/bin/sh\n", profile.uid, profile.gid, profile.home())
        })
    {
        write("etc/passwd", &text)?;
    }
    let group = read_small(image, "etc/group")?;
    if let Some(text) = with_entry(group.as_deref(), profile.gid, "root:x:0:\n", |taken| {
        format!("{}:x:{}:\n", name(taken), profile.gid)
    }) {
        write("etc/group", &text)?;
    }
    Ok(())
}

fn make_owned(folder: &Path, mode: u32, owner: u32) -> io::Result<()> {
    make_folder(folder, 0o755)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
    chown(folder, Some(owner), Some(owner))
}

/// The text of a file of an image, in which links end at the image's root; empty where there is none, and nothing where it
/// is not for us to add to.
fn read_small(image: &OwnedFd, path: &str) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = match openat2(image, path, flags, Mode::empty(), how) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Some(String::new())),
        Err(_) => return Ok(None),
    };
    let meta = file.metadata()?;
    let mut text = String::new();
    let small = meta.is_file() && meta.len() <= LONGEST_USERS;
    Ok((small && file.take(LONGEST_USERS).read_to_string(&mut text).is_ok()).then_some(text))
}

/// The file with an entry more, where none of its third fields is this id.
fn with_entry(file: Option<&str>, id: u32, root: &str, entry: impl Fn(&str) -> String) -> Option<String> {
    let mut text = file?.to_owned();
    if text.is_empty() {
        text.push_str(root);
    }
    let has = |line: &str| line.split(':').nth(2).and_then(|field| field.parse().ok()) == Some(id);
    if text.lines().any(has) {
        return file?.is_empty().then_some(text);
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    let added = entry(&text);
    text.push_str(&added);
    Some(text)
}

/// A name that the file has not.
fn user_name(taken: &str, uid: u32) -> String {
    let usual = match uid {
        0 => "root",
        65532 => "sandbox",
        _ => "user",
    };
    let is_taken = taken.lines().any(|line| line.split(':').next() == Some(usual));
    if is_taken { format!("{usual}{uid}") } else { usual.into() }
}

/// Makes all of it in the files of a volume that will be a root, except the user.
pub(crate) fn make_in(data: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root =
        open(data, flags, Mode::empty()).map_err(|e| fault("open the root that is built")(e.into()))?;
    for (path, mode) in MOUNT_POINTS {
        make_at(&root, path, FileType::Directory, *mode)?;
    }
    NETWORK_FILES.iter().try_for_each(|(path, _)| make_at(&root, path, FileType::RegularFile, 0o644))
}

/// Makes a folder or an empty file, in a folder that was made before.
fn make_at(root: &OwnedFd, path: &str, kind: FileType, mode: u32) -> Result<()> {
    let failed = |cause: Errno| match cause {
        Errno::NOSPC | Errno::DQUOT => Error::new(
            ErrorCode::DiskFull,
            format!("the volume has no room for /{path}, which a start needs"),
        ),
        cause => fault("make a place in the root that is built")(cause.into()),
    };
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = openat2(root, folder, flags, Mode::empty(), beneath).map_err(failed)?;
    match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        Ok(there) if there == kind => return Ok(()),
        Ok(FileType::Directory) => {
            let message = format!("the image has a folder at /{path}, where a start needs a file");
            return Err(Error::new(ErrorCode::Conflict, message).at("image"));
        }
        Ok(_) => unlinkat(&parent, name, AtFlags::empty()).map_err(failed)?,
        Err(Errno::NOENT) => {}
        Err(cause) => return Err(failed(cause)),
    }
    // The mode is set by descriptor, so that nothing put there meanwhile gets it.
    match kind {
        FileType::Directory => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o755))
                .and_then(|()| openat(&parent, name, flags, Mode::empty()))
        }
        _ => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&parent, name, flags, Mode::from_raw_mode(0o644))
        }
    }
    .and_then(|made| fchmod(made, Mode::from_raw_mode(mode)))
    .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn open_tree(path: &Path) -> OwnedFd {
        open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_user_that_the_image_lacks_gets_an_entry() {
        let add = |taken: &str| format!("{}:x:1000\n", user_name(taken, 1000));
        let added = |file| with_entry(file, 1000, "root:x:0\n", add);
        assert_eq!(added(Some("")).unwrap(), "root:x:0\nuser:x:1000\n");
        assert_eq!(added(Some("root:x:0:0")).unwrap(), "root:x:0:0\nuser:x:1000\n");
        assert_eq!(added(Some("user:x:7\n")).unwrap(), "user:x:7\nuser1000:x:1000\n", "the name is taken");
        assert_eq!(added(Some("node:x:1000:1000\n")), None, "it has one");
        assert_eq!(added(None), None, "it cannot be read");
        assert_eq!(with_entry(Some(""), 0, "root:x:0\n", add).unwrap(), "root:x:0\n");
    }

    #[test]
    fn what_goes_over_an_image_follows_none_of_its_links() {
        let (image, over) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("passwd"), "secret:x:1:1::/:\n").unwrap();
        symlink(outside.path(), image.path().join("etc")).unwrap();
        let owner = over.path().metadata().unwrap().uid();
        lay_out(over.path(), &open_tree(image.path()), &Profile::builtin("default").unwrap(), owner).unwrap();
        let passwd = fs::read_to_string(over.path().join("etc/passwd")).unwrap();
        assert_eq!(passwd, "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n");
        assert!(over.path().join("home/user").is_dir() && over.path().join("etc/resolv.conf").is_file());
    }

    #[test]
    fn a_root_that_is_built_has_its_places_and_no_link_leads_out_of_it() {
        let (data, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), data.path().join("tmp")).unwrap();
        fs::create_dir(data.path().join("etc")).unwrap();
        symlink("../run/systemd/resolve/stub-resolv.conf", data.path().join("etc/resolv.conf")).unwrap();
        fs::write(data.path().join("etc/hosts"), "kept").unwrap();
        fs::write(data.path().join("proc"), "a file").unwrap();
        for _ in 0..2 {
            make_in(data.path()).unwrap();
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        let mode = |path: &str| fs::symlink_metadata(data.path().join(path)).unwrap().mode();
        assert_eq!((mode("tmp"), mode("etc/resolv.conf")), (0o41777, 0o100_644));
        assert_eq!((mode("proc"), mode("workspace")), (0o40755, 0o40755));
        assert_eq!(fs::read_to_string(data.path().join("etc/hosts")).unwrap(), "kept");
        // A folder above one that is a link leads nowhere.
        fs::remove_dir_all(data.path().join("etc")).unwrap();
        symlink(outside.path(), data.path().join("etc")).unwrap();
        make_in(data.path()).unwrap();
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        fs::remove_file(data.path().join("etc/hosts")).unwrap();
        fs::create_dir(data.path().join("etc/hosts")).unwrap();
        assert_eq!(make_in(data.path()).unwrap_err().code, ErrorCode::Conflict);
    }
}
