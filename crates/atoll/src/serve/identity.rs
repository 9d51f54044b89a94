//! The user that a server started as root becomes.
//!
//! The process image that faces the network never was root: after it started the launcher, the server
//! executes itself again as that user, under the same process id.

use crate::config::env_file;
use atoll_types::{
    Error, Result,
    passwd::{User, find_user},
};
use std::{
    fs, io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, chown},
            process::CommandExt,
        },
    },
    path::Path,
    process::Command,
};

/// Used where no user was named and there is no `atoll`: an id that no distribution assigns.
const NOBODYS: u32 = 65_530;
const USUAL: &str = "atoll";

/// The user of this name or number; without one, the default.
pub(crate) fn find(wanted: Option<&str>) -> Result<User> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    choose(&passwd, wanted)
}

fn choose(passwd: &str, wanted: Option<&str>) -> Result<User> {
    let user = match wanted {
        None => find_user(passwd, USUAL).unwrap_or(User { uid: NOBODYS, gid: NOBODYS }),
        Some(name) => match (find_user(passwd, name), name.parse()) {
            (Some(user), _) => user,
            (None, Ok(uid)) => User { uid, gid: uid },
            (None, Err(_)) => return Err(Error::invalid("user", format!("there is no user {name}"))),
        },
    };
    if user.uid == 0 {
        return Err(Error::invalid("user", "the server never runs as root; name another user"));
    }
    Ok(user)
}

/// Makes the user the owner of the server's folder, and of what is in it.
pub(crate) fn prepare(folder: &Path, user: &User) -> Result<()> {
    let fault = |e: io::Error| Error::internal(format!("the server's folder cannot be prepared: {e}"));
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(fault(e)),
        _ => {}
    }
    let give = |path: &Path| std::os::unix::fs::lchown(path, Some(user.uid), Some(user.gid));
    chown(folder, Some(user.uid), Some(user.gid)).map_err(fault)?;
    // Files only: the server makes no folders here, but a former owner of this folder may have.
    for entry in fs::read_dir(folder).map_err(fault)?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_file()) {
            give(&entry.path()).map_err(fault)?;
        }
    }
    Ok(())
}

/// Executes this program again as the user, in place of itself, on the same data folder (that user's default
/// would be another), with what only root could read. Returns only when that failed.
pub(crate) fn become_user(
    user: &User,
    data_dir: &Path,
    passed: impl IntoIterator<Item = (&'static str, String)>,
) -> Error {
    let opened = std::env::current_exe().and_then(|path| Ok((fs::File::open(&path)?, path)));
    let (file, path) = match opened {
        Ok(opened) => opened,
        Err(e) => return Error::internal(format!("where is this program? {e}")),
    };
    // That user may not be able to read the file; variables are stronger than it.
    let read = env_file::variables().filter(|(name, _)| std::env::var_os(name).is_none());
    let passed: Vec<_> = passed.into_iter().collect();
    let command = |program: &Path| {
        let mut command = Command::new(program);
        command.arg0(&path).args(std::env::args_os().skip(1));
        command.envs(read.clone()).envs(passed.clone()).env("ATOLL_DATA_DIR", data_dir);
        command
    };
    // Supplementary groups go with the uid: the standard library drops them.
    let mut error = command(&path).uid(user.uid).gid(user.gid).exec();
    if error.kind() == io::ErrorKind::PermissionDenied && is_only(user) {
        // A folder above the program is closed to that user, as root's home is; the program itself may not be.
        error = command(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).exec();
    }
    Error::internal(format!("cannot become an ordinary user: {error}; can that user read the program?"))
}

/// Whether this process is that user already, in every respect: the standard library changes the user before it executes.
fn is_only(user: &User) -> bool {
    use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
    [getuid(), geteuid()].iter().all(|uid| uid.as_raw() == user.uid)
        && [getgid(), getegid()].iter().all(|gid| gid.as_raw() == user.gid)
        && getgroups().is_ok_and(|groups| groups.iter().all(|gid| gid.as_raw() == user.gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_by_name_and_number_and_never_root() {
        let passwd =
            "root:x:0:0::/root:/bin/sh\natoll:x:990:991::/:/sbin/nologin\nann:x:1000:1001::/:/bin/sh\n";
        let find = |wanted| choose(passwd, wanted).map(|i| (i.uid, i.gid));
        assert_eq!(find(None), Ok((990, 991)));
        assert_eq!(choose("", None).map(|i| i.uid), Ok(NOBODYS));
        assert_eq!(find(Some("ann")), Ok((1000, 1001)));
        assert_eq!(find(Some("1000")), Ok((1000, 1001)));
        assert_eq!(find(Some("4242")), Ok((4242, 4242)));
        for refused in ["root", "0", "nosuch"] {
            assert_eq!(choose(passwd, Some(refused)).unwrap_err().field.as_deref(), Some("user"));
        }
    }
}
