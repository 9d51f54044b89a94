//! What a container has beside its own folders: volumes that several sandboxes of one owner attach, and paths that are
//! read-only, writable or blocked. Both are fixed when the container starts, so they are part of its profile.
//!
//! Every path is one inside the sandbox, and only its text is judged here; the launcher resolves it below the sandbox's
//! root and follows no symbolic link.

use crate::{Error, Millis, ProviderName, Result, VolumeId, VolumeName};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, path::Path};

/// Where the storage of a tenant appears.
pub const TENANT_PATH: &str = "/mnt/user-data";
/// The most volumes of one sandbox.
pub const MOST_VOLUMES: usize = 16;
/// The most snapshots that an export reads.
pub const MOST_WHOLE: usize = 400;
/// The most paths of one sandbox that have a rule.
pub const MOST_RULES: usize = 32;
/// The longest path that is attached or has a rule.
pub const LONGEST_PLACE: usize = 255;
/// The most folders of such a path: each on the way to what is protected is a mount.
const DEEPEST: usize = 16;
/// A path that is attached or has a rule, as a regular expression; which of these are taken is checked beside it.
pub const PLACE_PATTERN: &str =
    r"^(?:/(?:[^/.\u0000][^/\u0000]*|\.[^/.\u0000][^/\u0000]*|\.\.[^/\u0000]+)){1,16}$";

/// Mounted by the start of every container, and the trusted certificates.
const TAKEN: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/etc/atoll"];

/// A volume as it is kept. It belongs to an owner and outlives every sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Which.
    pub id: VolumeId,
    /// Whose.
    pub owner: String,
    /// The owner's display name.
    pub owner_name: String,
    /// One of the owner's; it never changes.
    pub name: VolumeName,
    /// The tenant whose storage it is: one volume for each owner and tenant.
    pub tenant: Option<String>,
    /// The provider that keeps it.
    pub provider: ProviderName,
    /// What it may hold.
    pub disk_bytes: u64,
    /// When it was made.
    pub created_at: Millis,
    /// Its end has begun; it cannot be attached any more.
    pub deleting: bool,
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeMount {
    /// Its name.
    pub name: VolumeName,
    /// Which.
    pub volume: VolumeId,
    /// Where it appears.
    pub path: String,
    /// Whether the sandbox may only read it.
    pub read_only: bool,
    /// It is the volume of a sandbox, and all of its folders appear: an export reads snapshots so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole: bool,
}

/// What a path is for the code in a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRule {
    /// Not to be written. The owner's file requests still write to a folder that has this rule.
    ReadOnly,
    /// To be written, also below a path that is read-only.
    ReadWrite,
    /// Not to be reached, by root neither.
    Blocked,
}

/// Paths with a rule; the one of the innermost path holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathRules {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_write: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
}

impl PathRules {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read_only.is_empty() && self.read_write.is_empty() && self.blocked.is_empty()
    }

    /// Every path and its rule.
    pub fn iter(&self) -> impl Iterator<Item = (&str, PathRule)> {
        let of = |paths, rule| <[String]>::iter(paths).map(move |path| (path.as_str(), rule));
        of(&self.read_only, PathRule::ReadOnly)
            .chain(of(&self.read_write, PathRule::ReadWrite))
            .chain(of(&self.blocked, PathRule::Blocked))
    }
}

/// The name, below `paths` in a sandbox's volume, of the folder that is kept for a path which the image lacks: FNV-1a, short
/// and stable. An owner that makes two of its own paths collide has one folder at both.
#[must_use]
pub fn kept_folder(path: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", path.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Whether a path is absolute, not the root, and without `.`, `..` and empty parts.
fn is_plain(path: &str) -> bool {
    path.len() <= LONGEST_PLACE
        && path.matches('/').count() <= DEEPEST
        && path.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
        })
}

/// Refuses a path at which a start has mounts of its own, and one that is no plain path.
pub(crate) fn check_place(field: &str, path: &str) -> Result<()> {
    if is_plain(path) && !TAKEN.iter().any(|folder| Path::new(path).starts_with(folder)) {
        return Ok(());
    }
    let message = format!(
        "{path:?} is no place in a sandbox: it must be an absolute path without ., .. or a slash at its end, of {DEEPEST} folders at most, and not \
         in {}",
        TAKEN.join(", ")
    );
    Err(Error::invalid(field, message))
}

/// The folders that every sandbox has.
pub(crate) struct OwnFolders {
    pub(crate) all: [&'static str; 3],
    /// They are in memory, and mounted after everything else.
    pub(crate) in_memory: bool,
}

impl OwnFolders {
    fn cover(&self, path: &str) -> bool {
        self.all.iter().any(|folder| Path::new(path).starts_with(folder))
    }

    /// Whether one of them is this path or below it.
    fn below(&self, path: &str) -> bool {
        self.all.iter().any(|folder| Path::new(folder).starts_with(path))
    }
}

/// Refuses volumes and rules that cannot be, or that would hide each other or what a sandbox needs.
pub(crate) fn check(volumes: &[VolumeMount], rules: &PathRules, own: &OwnFolders) -> Result<()> {
    const VOLUMES: &str = "volumes";
    const FILESYSTEM: &str = "filesystem";
    let fail = |field: &str, message: String| Err(Error::invalid(field, message));
    let (whole, named): (Vec<_>, Vec<_>) = volumes.iter().partition(|mount| mount.whole);
    if whole.len() > MOST_WHOLE || whole.iter().any(|mount| !mount.read_only) {
        return fail(VOLUMES, format!("{MOST_WHOLE} volumes of sandboxes can be attached, to be read"));
    }
    if named.len() > MOST_VOLUMES {
        return fail(VOLUMES, format!("a sandbox may have {MOST_VOLUMES} volumes"));
    }
    if rules.iter().count() > MOST_RULES {
        return fail(FILESYSTEM, format!("a sandbox may have {MOST_RULES} paths with a rule"));
    }
    let mut taken: Vec<&str> = Vec::new();
    let mut names = HashSet::new();
    for VolumeMount { path, name, .. } in volumes {
        check_place(VOLUMES, path)?;
        if own.below(path) || path == "/etc" {
            return fail(
                VOLUMES,
                format!("a volume cannot be at {path}, which every sandbox has of its own"),
            );
        }
        if own.in_memory && own.cover(path) {
            return fail(
                VOLUMES,
                format!("with this profile, whose files are in memory, nothing can be at {path}"),
            );
        }
        if !names.insert(name) {
            return fail(VOLUMES, format!("the volume {name} is named twice"));
        }
        taken.push(path);
    }
    for (path, rule) in rules.iter() {
        check_place(FILESYSTEM, path)?;
        if rule == PathRule::Blocked && own.below(path) {
            return fail(FILESYSTEM, format!("{path} cannot be blocked: every sandbox works there"));
        }
        if own.in_memory && (rule != PathRule::Blocked || own.cover(path)) {
            let message = "with this profile, whose files are in memory, a path can only be blocked, and only outside \
                           of them";
            return fail(FILESYSTEM, message.into());
        }
        taken.push(path);
    }
    taken.sort_unstable();
    if let Some(pair) = taken.windows(2).find(|pair| pair[0] == pair[1]) {
        let volumes = volumes.iter().filter(|mount| mount.path == *pair[0]).count();
        let field = if volumes > 1 { VOLUMES } else { FILESYSTEM };
        return fail(field, format!("{} is named twice", pair[0]));
    }
    for blocked in &rules.blocked {
        let inside = |path: &&&str| **path != blocked && Path::new(path).starts_with(blocked);
        if let Some(path) = taken.iter().find(inside) {
            return fail(FILESYSTEM, format!("{path} lies in {blocked}, which is blocked"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn at(profile: &str, paths: &[&str]) -> Result<()> {
        let volumes = paths.iter().enumerate().map(|(number, path)| VolumeMount {
            name: format!("v{number}").parse().unwrap(),
            volume: VolumeId::random(),
            path: (*path).into(),
            read_only: false,
            whole: false,
        });
        Profile { volumes: volumes.collect(), ..Profile::builtin(profile).unwrap() }.validate()
    }

    fn ruled(profile: &str, read_only: &[&str], read_write: &[&str], blocked: &[&str]) -> Result<()> {
        let of = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
        let paths = PathRules { read_only: of(read_only), read_write: of(read_write), blocked: of(blocked) };
        Profile { paths, ..Profile::builtin(profile).unwrap() }.validate()
    }

    #[test]
    fn volumes_have_places_of_their_own() {
        for path in ["/data", "/mnt/user-data", "/workspace/shared", "/home/user/x", "/opt/a b", "/etc/mine"]
        {
            assert_eq!(at("default", &[path]), Ok(()), "{path}");
        }
        for path in [
            "/",
            "",
            "data",
            "/a/",
            "/a//b",
            "/a/../b",
            "/a/.",
            "/workspace",
            "/home",
            "/home/user",
            "/tmp",
            "/proc/x",
            "/sys",
            "/dev/shm",
            "/run/x",
            "/etc",
            "/etc/atoll",
            "/a\0b",
            "/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a",
        ] {
            assert_eq!(at("default", &[path]).unwrap_err().field.as_deref(), Some("volumes"), "{path:?}");
        }
        assert!(at("default", &["/data", "/data/inner"]).is_ok());
        assert_eq!(at("default", &["/data", "/data"]).unwrap_err().field.as_deref(), Some("volumes"));
        assert!(at("tools", &["/data"]).is_ok() && at("tools", &["/workspace/x"]).is_err());
        assert!(at("root", &["/root"]).is_err() && at("root", &["/home"]).is_ok());
        let many: Vec<String> = (0..=MOST_VOLUMES).map(|n| format!("/v/{n}")).collect();
        assert!(at("default", &many.iter().map(String::as_str).collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn rules_may_lie_in_each_other_but_not_in_what_is_blocked() {
        // The example of the reference API.
        assert_eq!(
            ruled("default", &["/workspace/data"], &["/workspace/output"], &["/etc", "/root"]),
            Ok(())
        );
        assert_eq!(ruled("default", &["/workspace"], &["/workspace/out"], &["/workspace/out/x"]), Ok(()));
        for (read_only, read_write, blocked) in [
            (&["/a"][..], &["/a"][..], &[][..]),
            (&["/a", "/a"], &[], &[]),
            (&["/a/b"], &[], &["/a"]),
            (&[], &[], &["/a", "/a/b"]),
            (&[], &[], &["/workspace"]),
            (&[], &[], &["/home"]),
            (&[], &[], &["/"]),
            (&["/proc/self"], &[], &[]),
            (&[], &["x"], &[]),
        ] {
            let refused = ruled("default", read_only, read_write, blocked).unwrap_err();
            assert_eq!(
                refused.field.as_deref(),
                Some("filesystem"),
                "{read_only:?} {read_write:?} {blocked:?}"
            );
        }
        assert!(ruled("root", &[], &[], &["/root"]).is_err(), "its home");
        assert!(ruled("tools", &[], &[], &["/etc"]).is_ok() && ruled("tools", &["/data"], &[], &[]).is_err());
    }
}
