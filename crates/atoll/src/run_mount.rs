//! Folders of this machine in a throw-away sandbox. Requests to a launcher name no path of the machine, so a
//! run with such folders has a launcher of its own, with the folders on its command line; it ends with the
//! run.

use crate::{cli, own};
use atoll_provider_native::LaunchOptions;
use atoll_types::{Error, Profile, Result, ShareMount};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// A folder of this machine and where it appears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    folder: PathBuf,
    at: String,
    writable: bool,
}

/// Parses `DIR:PATH[:ro]`.
pub(crate) fn parse(text: &str) -> std::result::Result<Mount, String> {
    let (rest, writable) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, false),
        None => (text, true),
    };
    match rest.rsplit_once(':') {
        Some((folder, at)) if !folder.is_empty() && at.starts_with('/') => {
            Ok(Mount { folder: folder.into(), at: at.into(), writable })
        }
        _ => Err("expected DIR:PATH or DIR:PATH:ro, where PATH is absolute".into()),
    }
}

/// Resolves a folder with the caller's permissions: the launcher, as root, could go where the caller may not.
fn find(folder: &Path) -> Result<PathBuf> {
    let cannot =
        |why: &dyn std::fmt::Display| Error::invalid("mount", format!("{}: {why}", folder.display()));
    let found = folder.canonicalize().map_err(|e| cannot(&e))?;
    match found.is_dir() {
        true => Ok(found),
        false => Err(cannot(&"it is not a folder")),
    }
}

/// A launcher's data folder and options for one run, and its mounts in the profile. None without mounts.
pub(crate) fn prepare(
    options: &cli::Run,
    profile: &mut Profile,
) -> Result<Option<(own::Own, LaunchOptions)>> {
    if options.mount.is_empty() {
        return Ok(None);
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut extra: Vec<OsString> = vec!["--share-owner".into(), format!("{uid}:{gid}").into()];
    for (number, Mount { folder, at, writable }) in options.mount.iter().enumerate() {
        let share = format!("mount{number}");
        let mut argument = OsString::from(format!("{share}="));
        argument.push(find(folder)?);
        argument.push(if *writable { ":rw" } else { ":ro" });
        extra.extend(["--share".into(), argument]);
        profile.mounts.push(ShareMount { share, at: at.clone(), writable: *writable });
    }
    profile.validate()?;
    let own = own::Own::make(&options.data.dir().join(own::RUNS))?;
    let launch =
        LaunchOptions { data_dir: own.folder.clone(), client_uids: Vec::new(), ephemeral: true, extra };
    Ok(Some((own, launch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_a_folder_and_an_absolute_path() {
        let mount =
            |folder: &str, at: &str, writable| Ok(Mount { folder: folder.into(), at: at.into(), writable });
        assert_eq!(parse(".:/workspace"), mount(".", "/workspace", true));
        assert_eq!(parse("/a b:/data:ro"), mount("/a b", "/data", false));
        assert_eq!(parse("a:b:/data"), mount("a:b", "/data", true));
        for wrong in ["", "/data", ":/data", "x:data", "x:", "x:/data:rw"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
