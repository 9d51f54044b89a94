//! Volumes beside a sandbox's own, and paths with a rule, as mounts of its root. The rule of the innermost path holds.
//!
//! Every place is found below the root without following a symbolic link, and made if it is missing; where a link is in
//! the way, the start fails. What covers a path is cloned before the first path is covered, so that it shows what was
//! there before any rule. Then the paths are covered, the outer ones first, each found again through what covers those
//! around it. The container's mount namespace belongs to its user namespace and this one does not, so the kernel locks
//! these mounts together: nothing inside can take one away or look beneath it, whatever rights it gets in there.

use crate::{
    mounts::{self, Attributes},
    rootfs::{Parts, READ_ONLY, WRITABLE, attach_at, fault, mount_point, prepare_attached},
};
use atoll_storage::Tree;
use atoll_types::{Error, ErrorCode, PathRule, Profile, Result, RootMode, TENANT_PATH, VolumeMount};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FileType, Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, mkdirat, open, openat},
    io::Errno,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// A folder in which file requests do not work on what commands see, or again do.
pub(crate) struct FileArea {
    pub(crate) path: String,
    /// The name of the tree that they work on there.
    pub(crate) tree: Option<String>,
}

/// The file areas, and one mount with the trees of all of them.
pub(crate) struct FileAreas {
    pub(crate) all: Vec<FileArea>,
    pub(crate) trees: Option<OwnedFd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    Volume(&'a VolumeMount),
    Rule(PathRule),
    /// A folder on the way to a volume or to a path with a rule, mounted on itself: what is mounted on cannot be renamed,
    /// and so the path cannot be led away from what it names.
    Pin,
}

struct Entry<'a> {
    path: String,
    kind: Kind<'a>,
}

/// What a runtime with a kernel of its own mounts by itself, from the specification.
pub(crate) struct Bind {
    pub(crate) source: PathBuf,
    pub(crate) path: String,
    pub(crate) read_only: bool,
}

/// Refuses what a runtime with a kernel of its own cannot mount: it covers no path, and what it mounts lies in the image alone.
/// Links in a folder that a sandbox may write could lead the runtime's mount astray.
pub(crate) fn check_binds(profile: &Profile) -> Result<()> {
    let refuse = |message: String| Err(Error::new(ErrorCode::Unsupported, message).at("profile.isolation"));
    let Profile { paths, volumes, mounts, .. } = profile;
    if !(paths.read_only.is_empty() && paths.blocked.is_empty()) || volumes.iter().any(|mount| mount.whole) {
        let message = "a runtime with a kernel of its own has no read-only and no blocked paths, and shows no snapshots";
        return refuse(message.into());
    }
    let own = ["/workspace", "/tmp", profile.home()].into_iter();
    let own: Vec<&str> = own.chain(mounts.iter().map(|share| share.at.as_str())).collect();
    let volumes = volumes.iter().map(|mount| mount.path.as_str());
    let mounted: Vec<&str> = volumes.chain(mounted_rules(profile, &own)).collect();
    let nested = |path: &&&str| {
        let own = own.iter().any(|folder| Path::new(path).starts_with(folder) || lies_in(folder, path));
        own || mounted.iter().any(|other| lies_in(path, other))
    };
    match mounted.iter().find(nested) {
        Some(path) => refuse(format!(
            "a runtime with a kernel of its own cannot mount {path}: it has to lie beside all other folders that are mounted"
        )),
        None => Ok(()),
    }
}

/// The paths that may be written and do not lie in what the sandbox may write anyway.
fn mounted_rules<'a>(profile: &'a Profile, own: &[&str]) -> impl Iterator<Item = &'a str> {
    let inside = |path: &str| own.iter().any(|folder| Path::new(path).starts_with(folder));
    profile.paths.read_write.iter().map(String::as_str).filter(move |path| !inside(path))
}

fn lies_in(path: &str, folder: &str) -> bool {
    path != folder && Path::new(path).starts_with(folder)
}

/// The outer ones first.
fn sort(entries: &mut [Entry<'_>]) {
    entries.sort_by(|a, b| {
        let depth = |entry: &Entry<'_>| entry.path.matches('/').count();
        depth(a).cmp(&depth(b)).then_with(|| a.path.cmp(&b.path))
    });
}

/// Whether the innermost rule above a path is that it is read-only.
fn is_read_only(path: &str, entries: &[Entry<'_>]) -> bool {
    let above = entries.iter().filter(|entry| lies_in(path, &entry.path) && entry.kind != Kind::Pin);
    let innermost = above.max_by_key(|entry| entry.path.len());
    innermost.is_some_and(|entry| entry.kind == Kind::Rule(PathRule::ReadOnly))
}

impl Parts<'_> {
    /// Attaches the volumes and covers the paths. `made` are the paths that the image lacked.
    pub(crate) fn attach_all(&self, root: &OwnedFd, stage: &Path, made: &[String]) -> Result<FileAreas> {
        let volumes = self.profile.volumes.iter();
        let volumes = volumes.map(|mount| Entry { path: mount.path.clone(), kind: Kind::Volume(mount) });
        let rules = self.profile.paths.iter();
        let rules = rules.map(|(path, rule)| Entry { path: path.to_owned(), kind: Kind::Rule(rule) });
        let mut entries: Vec<Entry<'_>> = volumes.chain(rules).collect();
        sort(&mut entries);
        let writable = self.attach_folders(root, &entries, made)?;
        pin(&mut entries, &writable);
        self.cover(root, stage, &entries, &writable)
    }

    /// Attaches volumes, and the kept folders of paths that are neither in the image nor in what the sandbox may write.
    /// Returns the folders that it may write.
    fn attach_folders(&self, root: &OwnedFd, entries: &[Entry<'_>], made: &[String]) -> Result<Vec<String>> {
        let own = self.disk.map(|disk| disk.places(self.profile)).into_iter().flatten();
        let own = own.map(|(_, at)| at.to_owned());
        let shares = self.profile.mounts.iter().map(|share| share.at.clone());
        let all = (self.profile.root == RootMode::Writable).then(|| "/".to_owned());
        let mut writable: Vec<String> = own.chain(shares).chain(all).collect();
        for Entry { path, kind } in entries {
            let lies_there = writable.iter().any(|folder| Path::new(path).starts_with(folder));
            match kind {
                Kind::Volume(mount) => attach_at(&self.volume(mount)?, root, path)?,
                Kind::Rule(PathRule::ReadOnly | PathRule::ReadWrite) if !lies_there => {
                    let holds_another = writable.iter().any(|folder| lies_in(folder, path));
                    match (made.contains(path) && !holds_another, kind) {
                        (true, _) => attach_at(&self.mapped(&self.kept(path)?, WRITABLE)?, root, path)?,
                        (false, Kind::Rule(PathRule::ReadWrite)) => return Err(of_the_image(path)),
                        // The image is read-only, and what lies below the path is covered with it.
                        (false, _) => continue,
                    }
                }
                Kind::Rule(_) | Kind::Pin => continue,
            }
            writable.push(path.clone());
        }
        Ok(writable)
    }

    /// The same for a runtime with a kernel of its own, whose profile passed [`check_binds`].
    pub(crate) fn binds(&self, made: &[String]) -> Result<Vec<Bind>> {
        let volumes = self.profile.volumes.iter().map(|mount| {
            let VolumeMount { path, read_only, .. } = mount;
            Ok(Bind { source: self.volume_folder(mount)?, path: path.clone(), read_only: *read_only })
        });
        let own: Vec<(PathBuf, &str)> = self.disk.map(|disk| disk.places(self.profile)).unwrap_or_default();
        let own: Vec<&str> = own.into_iter().map(|(_, at)| at).collect();
        let kept = mounted_rules(self.profile, &own).map(|path| match made.iter().any(|one| one == path) {
            true => Ok(Bind { source: self.kept(path)?, path: path.to_owned(), read_only: false }),
            false => Err(of_the_image(path)),
        });
        volumes.chain(kept).collect()
    }

    fn volume(&self, mount: &VolumeMount) -> Result<OwnedFd> {
        let attributes = Attributes { read_only: mount.read_only, no_exec: false };
        self.mapped(&self.volume_folder(mount)?, attributes)
    }

    /// Where the files of a volume are on this machine.
    fn volume_folder(&self, mount: &VolumeMount) -> Result<PathBuf> {
        let storage = &self.context.storage;
        // The container's record claims it, so from here on it is not removed.
        storage.wait_for(mount.volume)?;
        let path = storage.path(Tree::Volume(mount.volume));
        if !path.exists() {
            let message = format!("there is no volume {}", mount.name);
            return Err(Error::new(ErrorCode::Conflict, message).at("volumes"));
        }
        let data = if mount.whole { path } else { prepare_attached(&path)? };
        if mount.path == TENANT_PATH && !mount.read_only {
            make_outputs(&data);
        }
        Ok(data)
    }

    fn kept(&self, path: &str) -> Result<PathBuf> {
        let disk = self.disk.ok_or_else(|| Error::internal("a path is kept, and there is no volume"))?;
        disk.kept(path, self.profile)
    }

    /// Puts each rule in force.
    fn cover(
        &self,
        root: &OwnedFd,
        stage: &Path,
        entries: &[Entry<'_>],
        writable: &[String],
    ) -> Result<FileAreas> {
        let mut areas = FileAreas { all: Vec::new(), trees: None };
        let mut covers: Vec<(&str, OwnedFd)> = Vec::new();
        let trees = stage.join("areas");
        let is_rule = |entry: &Entry<'_>, rule| entry.kind == Kind::Rule(rule);
        for Entry { path, kind } in entries {
            let place = mount_point(root, path, OFlags::empty())?;
            let clone = |read_only| mounts::clone_place(&place, read_only).map_err(fault("clone a path"));
            let hidden =
                entries.iter().any(|entry| is_rule(entry, PathRule::ReadOnly) && lies_in(path, &entry.path));
            let mut tree = None;
            match kind {
                Kind::Pin => covers.push((path, clone(false)?)),
                Kind::Volume(_) | Kind::Rule(PathRule::ReadWrite) if hidden => {
                    covers.push((path, clone(false)?));
                }
                Kind::Volume(_) | Kind::Rule(PathRule::ReadWrite) => {}
                Kind::Rule(PathRule::Blocked) => covers.push((path, blocked(stage, is_folder(&place)?)?)),
                Kind::Rule(PathRule::ReadOnly) => {
                    let lies_there = writable.iter().any(|folder| Path::new(path).starts_with(folder));
                    let below = || writable.iter().filter(|folder| lies_in(folder, path));
                    if lies_there && is_folder(&place)? {
                        tree = Some(keep_tree(&trees, &clone(false)?)?);
                    }
                    // The home is a file area by itself, so it needs a tree by itself, unless its own rule is another.
                    for folder in below().filter(|folder| !entries.iter().any(|e| e.path == **folder)) {
                        let place = mount_point(root, folder, OFlags::DIRECTORY)?;
                        let all = mounts::clone_place(&place, false).map_err(fault("clone a path"))?;
                        let tree = Some(keep_tree(&trees, &all)?);
                        areas.all.push(FileArea { path: folder.clone(), tree });
                    }
                    if lies_there || below().next().is_some() {
                        covers.push((path, clone(true)?));
                    }
                }
            }
            if tree.is_some() || (hidden && *kind != Kind::Pin) {
                areas.all.push(FileArea { path: path.clone(), tree });
            }
        }
        for FileArea { path, tree } in &areas.all {
            let Some(tree) = tree else { continue };
            let top = open(trees.join(tree), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| fault("open a file area")(e.into()))?;
            let inside = |e: &&Entry<'_>| is_rule(e, PathRule::Blocked) && lies_in(&e.path, path);
            for entry in entries.iter().filter(inside) {
                let place = mount_point(&top, &entry.path[path.len()..], OFlags::empty())?;
                let cover = blocked(stage, is_folder(&place)?)?;
                mounts::attach(&cover, place.as_fd(), Path::new("")).map_err(fault("cover a path"))?;
            }
        }
        if trees.exists() {
            let tree = mounts::clone_tree(&trees, true, WRITABLE, None).map_err(fault("clone file areas"))?;
            areas.trees = Some(tree);
        }
        for (path, cover) in covers {
            let place = mount_point(root, path, OFlags::empty())?;
            mounts::attach(&cover, place.as_fd(), Path::new("")).map_err(fault("cover a path"))?;
        }
        Ok(areas)
    }
}

/// Makes the folder in a tenant's storage that programs of the reference system write to. A sandbox may have put
/// something else there, or filled the volume; then it is left as it is.
fn make_outputs(data: &Path) {
    let made =
        open(data, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .and_then(|data| {
                match mkdirat(&data, "outputs", Mode::empty()) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let outputs = openat(&data, "outputs", flags, Mode::empty())?;
                // One without a mode is new, or was left by a start that was killed here.
                if fstat(&outputs)?.st_mode & 0o777 == 0 {
                    fchown(&outputs, Some(Uid::from_raw(1000)), Some(Gid::from_raw(1000)))?;
                    fchmod(&outputs, Mode::from_raw_mode(0o777))?;
                }
                Ok(())
            });
    if let Err(error) = made {
        tracing::warn!(%error, "the folder for outputs of a tenant's storage is not made");
    }
}

fn of_the_image(path: &str) -> Error {
    let message = format!(
        "{path} belongs to the image, which is read-only; name a path that it does not have, or use a profile whose \
         root can be written"
    );
    Error::new(ErrorCode::InvalidArgument, message).at("filesystem")
}

/// Adds the folders on the way to volumes and to what is protected, as far as the sandbox could rename them.
fn pin(entries: &mut Vec<Entry<'_>>, writable: &[String]) {
    let mut pins: Vec<String> = Vec::new();
    for Entry { path, kind } in &*entries {
        if *kind == Kind::Rule(PathRule::ReadWrite) {
            continue;
        }
        let could_be_renamed = |folder: &&str| {
            writable.iter().any(|f| lies_in(folder, f)) && !writable.iter().any(|f| f == folder)
        };
        let folders = Path::new(path).ancestors().skip(1).filter_map(Path::to_str);
        for folder in folders.filter(could_be_renamed) {
            // A path that may be written has no mount of its own, so it is pinned as any other folder.
            let mounted = |e: &Entry<'_>| e.path == folder && e.kind != Kind::Rule(PathRule::ReadWrite);
            let known = pins.iter().any(|pin| pin == folder) || entries.iter().any(mounted);
            if !known && !is_read_only(folder, entries) {
                pins.push(folder.to_owned());
            }
        }
    }
    entries.extend(pins.into_iter().map(|path| Entry { path, kind: Kind::Pin }));
    sort(entries);
}

/// A folder or a file without any permission, whose owner is no user of the sandbox: there not even root's capabilities
/// count.
fn blocked(stage: &Path, folder: bool) -> Result<OwnedFd> {
    let path = stage.join(if folder { "blocked" } else { "blocked-file" });
    if !path.exists() {
        let made = if folder { fs::create_dir(&path) } else { fs::File::create(&path).map(drop) };
        made.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o0)))
            .map_err(fault("make what covers a blocked path"))?;
    }
    mounts::clone_tree(&path, false, Attributes { no_exec: true, ..READ_ONLY }, None)
        .map_err(fault("clone what covers a blocked path"))
}

fn is_folder(place: &OwnedFd) -> Result<bool> {
    let stat = fstat(place).map_err(|e| fault("look at a path")(e.into()))?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Puts a tree among those that PID 1 inherits, and returns its name there.
fn keep_tree(trees: &Path, tree: &OwnedFd) -> Result<String> {
    let attach = || {
        if !trees.exists() {
            fs::create_dir(trees)?;
            mounts::attach(&mounts::small_tmpfs()?, CWD.as_fd(), trees)?;
        }
        let name = fs::read_dir(trees)?.count().to_string();
        let place = trees.join(&name);
        fs::create_dir(&place)?;
        mounts::attach(tree, CWD.as_fd(), &place)?;
        Ok(name)
    };
    attach().map_err(fault("keep a file area"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::{PathRules, VolumeId};

    fn pinned(rules: &[(&str, PathRule)], writable: &[&str]) -> Vec<String> {
        let entry = |(path, rule): &(&str, PathRule)| Entry { path: (*path).into(), kind: Kind::Rule(*rule) };
        let mut entries: Vec<Entry<'_>> = rules.iter().map(entry).collect();
        let writable: Vec<String> = writable.iter().map(ToString::to_string).collect();
        pin(&mut entries, &writable);
        entries.into_iter().filter(|entry| entry.kind == Kind::Pin).map(|entry| entry.path).collect()
    }

    #[test]
    fn what_a_runtime_mounts_by_itself_lies_beside_all_else() {
        let check = |volumes: &[&str], rules: PathRules| {
            let mount = |path: &&str| VolumeMount {
                name: "v".parse().unwrap(),
                volume: VolumeId::random(),
                path: (*path).into(),
                read_only: false,
                whole: false,
            };
            let volumes = volumes.iter().map(mount).collect();
            check_binds(&Profile { volumes, paths: rules, ..Profile::builtin("default").unwrap() })
        };
        let writable = |paths: &[&str]| PathRules {
            read_write: paths.iter().map(ToString::to_string).collect(),
            ..PathRules::default()
        };
        assert_eq!(check(&["/data", "/mnt/user-data"], writable(&["/mnt/out", "/workspace/a/b"])), Ok(()));
        for (volumes, rules) in [
            (&["/workspace/data"][..], writable(&[])),
            (&["/data", "/data/more"], writable(&[])),
            (&["/data"], writable(&["/data/out"])),
            (&["/data/in"], writable(&["/data"])),
            (&[], writable(&["/home"])),
            (&[], PathRules { read_only: vec!["/data".into()], ..PathRules::default() }),
            (&[], PathRules { blocked: vec!["/data".into()], ..PathRules::default() }),
        ] {
            let refused = check(volumes, rules.clone()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Unsupported, "{volumes:?} {rules:?}");
        }
    }

    #[test]
    fn folders_on_the_way_to_what_is_protected_are_pinned() {
        use PathRule::{Blocked, ReadOnly, ReadWrite};
        let own = ["/workspace", "/tmp"];
        assert_eq!(pinned(&[("/workspace/a", ReadOnly)], &own), [""; 0]);
        assert_eq!(pinned(&[("/workspace/a/b/c", ReadOnly)], &own), ["/workspace/a", "/workspace/a/b"]);
        assert_eq!(pinned(&[("/workspace/a/b", ReadWrite)], &own), [""; 0]);
        assert_eq!(pinned(&[("/etc/a/b", Blocked)], &own), [""; 0], "the image cannot be written");
        assert_eq!(pinned(&[("/etc/a", Blocked)], &["/", "/workspace"]), ["/etc"]);
        // What lies in a read-only folder cannot be renamed anyway, and a pin would make it writable.
        let nested = [("/workspace/a", ReadOnly), ("/workspace/a/b/c", Blocked)];
        assert_eq!(pinned(&nested, &own), [""; 0]);
        let nested =
            [("/workspace/a", ReadOnly), ("/workspace/a/b", ReadWrite), ("/workspace/a/b/c/d", Blocked)];
        assert_eq!(pinned(&nested, &own), ["/workspace/a/b/c"]);
        let within = [("/workspace/a", ReadWrite), ("/workspace/a/b", ReadOnly)];
        assert_eq!(pinned(&within, &own), ["/workspace/a"], "a rule that allows writing mounts nothing");
        let volume = ["/workspace", "/workspace/a/vol"];
        assert_eq!(pinned(&[("/workspace/a/vol/x", ReadOnly)], &volume), ["/workspace/a"]);
        assert_eq!(pinned(&[("/data/v/x/y", ReadOnly)], &["/", "/data/v"]), ["/data", "/data/v/x"]);
    }
}
