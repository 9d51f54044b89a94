//! Puts a container's root filesystem together in the worker's own mount namespace: the image,
//! idmapped and read-only or under an overlay, and the volume's folders in their places.
//!
//! Invariant: what the sandbox can write lies on its volume or on a tmpfs that the container's own
//! user namespace mounts; nothing of the host is ever attached writable, except a share that the
//! operator made so.

use crate::{
    attachments::{Bind, FileAreas},
    context::{Context, make_folder},
    mounts::{self, Attributes},
    options::{Owner, Share},
    places,
    runtime::INIT_IN_ROOT,
    sys, trust,
    uids::Range,
    userns,
};
use atoll_storage::{DATA, Image, Tree, image::NETWORK_FILES};
use atoll_types::{Error, ErrorCode, Profile, Result, RootMode};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{CWD, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2},
    io::Errno,
};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

pub(crate) const READ_ONLY: Attributes = Attributes { read_only: true, no_exec: false };
pub(crate) const WRITABLE: Attributes = Attributes { read_only: false, no_exec: false };

/// Where certificates appear; a folder is there in every root.
const TRUST: &str = "etc/atoll";

/// The trees of an image, and where each is attached.
type Layers = Vec<(String, OwnedFd)>;

/// What a root filesystem is made of.
pub(crate) struct Parts<'a> {
    pub(crate) context: &'a Context,
    pub(crate) profile: &'a Profile,
    pub(crate) image: &'a Image,
    /// The sandbox's files, unless the profile has them in memory.
    pub(crate) disk: Option<&'a Disk>,
    /// The ids that it shows; without one, those on disk.
    pub(crate) userns: Option<BorrowedFd<'a>>,
    pub(crate) range: Range,
    /// PID 1's program, for a runtime that must find it in the root.
    pub(crate) init: Option<&'a Path>,
}

/// A root filesystem.
pub(crate) struct Assembled {
    pub(crate) root: PathBuf,
    /// Where file requests must not work on what the sandbox sees.
    pub(crate) areas: FileAreas,
    /// What its runtime still has to mount in it.
    pub(crate) binds: Vec<Bind>,
}

pub(crate) fn fault(doing: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |e| Error::internal(format!("cannot {doing}: {e}"))
}

/// The same for a volume, whose disk may be full by now although there was room when it was made.
fn volume_fault(doing: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |e| match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::new(ErrorCode::DiskFull, format!("the disk has no room to {doing}"))
        }
        _ => fault(doing)(e),
    }
}

/// Makes a folder at the top of a volume, where no sandbox can put anything in its place. Its mode comes last: one
/// without any was left by a start that was killed before it, and is finished.
fn make_volume_folder(path: &Path, mode: u32, uid: u32, gid: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o0).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    if fs::metadata(path)?.mode() & 0o777 != 0 {
        return Ok(());
    }
    chown(path, Some(uid), Some(gid))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Makes the folders of a volume. On disk they have the ids that are seen inside.
pub(crate) fn prepare_volume(volume: &Path, profile: &Profile) -> Result<()> {
    make_volume_folder(&volume.join("workspace"), 0o755, profile.uid, profile.gid)
        .and_then(|()| make_volume_folder(&volume.join("home"), 0o750, profile.uid, profile.gid))
        .map_err(volume_fault("prepare the volume"))
}

/// The folder of a volume that containers attach beside their own. The users of different profiles may write to it.
pub(crate) fn prepare_attached(volume: &Path) -> Result<PathBuf> {
    let data = volume.join(DATA);
    make_volume_folder(&data, 0o777, 1000, 1000).map_err(volume_fault("prepare the volume"))?;
    Ok(data)
}

/// Where the files of a sandbox are on this machine.
pub(crate) struct Disk {
    /// What survives.
    pub(crate) volume: PathBuf,
    /// Its /tmp, a tree of its own: one container's, and gone with it, however much is in it.
    pub(crate) temporary: PathBuf,
    /// The tree whose limit holds for both.
    pub(crate) tree: Tree,
}

impl Disk {
    /// The folder of a path that is neither in the image nor in one of the folders below: it is kept with the volume.
    pub(crate) fn kept(&self, path: &str, profile: &Profile) -> Result<PathBuf> {
        let (all, name) = (self.volume.join("paths"), format!("{:016x}", hash(path.as_bytes())));
        let folder = all.join(name);
        make_volume_folder(&all, 0o755, 0, 0)
            .and_then(|()| make_volume_folder(&folder, 0o755, profile.uid, profile.gid))
            .map_err(fault("make the folder of a path"))?;
        Ok(folder)
    }

    /// The folders, and where they appear. What is built keeps its home.
    pub(crate) fn places(&self, profile: &Profile) -> Vec<(PathBuf, &'static str)> {
        let home = profile.build_root.is_none().then(|| (self.volume.join("home"), profile.home()));
        let own = [(self.volume.join("workspace"), "/workspace"), (self.temporary.clone(), "/tmp")];
        own.into_iter().chain(home).collect()
    }
}

/// FNV-1a: short and stable. An owner that makes two of its own paths collide has one folder at both.
fn hash(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

/// Opens a path below a root. No symbolic link is followed, in any part of it.
pub(crate) fn open_beneath(root: &OwnedFd, path: &str, kind: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, OFlags::PATH | OFlags::CLOEXEC | kind, Mode::empty(), resolve)
}

/// Why a path below the root cannot be opened, as a sentence that names it.
fn reason(path: &str, cause: Errno) -> String {
    let path = path.trim_start_matches('.');
    match cause {
        Errno::LOOP => format!(
            "{path} in the sandbox's root is a symbolic link, or lies behind one, and none is followed"
        ),
        Errno::NOTDIR => format!("{path} in the sandbox's root is no folder"),
        Errno::NOENT => format!("{path} is not in the sandbox's root"),
        cause => format!("{path} in the sandbox's root: {cause}"),
    }
}

/// Opens a folder below the root to attach to, making the folders that are missing. The root may hold
/// what a sandbox left there, so no symbolic link is followed, in any part of the path. A folder that is made belongs to
/// the owner of the one above: ids of the machine's root are none on a mount that maps ids.
fn folder_at(root: &OwnedFd, path: &str) -> Result<OwnedFd> {
    mount_point(root, path, OFlags::DIRECTORY)
}

/// The same, where what is there may also be a file.
pub(crate) fn mount_point(root: &OwnedFd, path: &str, kind: OFlags) -> Result<OwnedFd> {
    let path = path.trim_start_matches('/');
    let mut so_far = String::from(".");
    for part in path.split('/').filter(|p| !p.is_empty()) {
        let parent = open_beneath(root, &so_far, OFlags::DIRECTORY).map_err(|e| {
            Error::new(ErrorCode::Conflict, format!("/{path} cannot be mounted on: {}", reason(&so_far, e)))
        })?;
        let owner = fstat(&parent).map_err(|e| fault("look at a place in the root")(e.into()))?.st_uid;
        let made = sys::with_file_ids(owner, || Ok(mkdirat(&parent, part, Mode::from_raw_mode(0o755))?));
        match made.map_err(|e| (Errno::from_io_error(&e), e)) {
            Ok(()) | Err((Some(Errno::EXIST | Errno::ROFS), _)) => {}
            Err((_, e)) => return Err(fault("make a place in the root")(e)),
        }
        so_far = format!("{so_far}/{part}");
    }
    open_beneath(root, &so_far, kind).map_err(|e| {
        Error::new(ErrorCode::Conflict, format!("/{path} cannot be mounted on: {}", reason(&so_far, e)))
    })
}

impl Parts<'_> {
    /// Puts everything together.
    pub(crate) fn assemble(&self) -> Result<Assembled> {
        let stage = self.context.stage();
        mounts::enter_private_namespace().map_err(fault("enter a mount namespace"))?;
        mounts::small_tmpfs()
            .and_then(|tmpfs| mounts::attach(&tmpfs, CWD.as_fd(), &stage))
            .map_err(fault("mount the stage"))?;
        let root = stage.join("root");
        fs::create_dir(&root).map_err(fault("make the stage"))?;
        let (layers, made) = match (self.profile.build_root, self.profile.root) {
            (Some(_), _) => (self.build_layers()?, Vec::new()),
            (None, RootMode::ReadOnly) => self.plain_layers(&stage)?,
            (None, RootMode::Writable) => (self.overlay_layers(&stage)?, Vec::new()),
        };
        let mut layers = layers.into_iter();
        let (_, first) = layers.next().ok_or_else(|| Error::internal("an image without a tree"))?;
        mounts::attach(&first, CWD.as_fd(), &root).map_err(fault("attach the image"))?;
        let root_fd = rustix::fs::open(&root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| fault("open the root")(e.into()))?;
        for (at, layer) in layers {
            attach_at(&layer, &root_fd, at.trim_start_matches('/'))?;
        }
        let trusted = self.image_tree(&trust::folder(self.context, self.image)?)?;
        attach_at(&trusted, &root_fd, TRUST)?;
        if self.profile.build_root.is_some() {
            attach_network_files(&root_fd, &stage)?;
        }
        self.attach_volume(&root_fd)?;
        self.attach_shares(&root_fd)?;
        let (areas, binds) = match self.userns {
            Some(_) => (self.attach_all(&root_fd, &stage, &made)?, Vec::new()),
            None => (FileAreas { all: Vec::new(), trees: None }, self.binds(&made)?),
        };
        self.attach_disk_figures(&root_fd, &stage)?;
        self.attach_init(&root, &root_fd)?;
        Ok(Assembled { root, areas, binds })
    }

    pub(crate) fn mapped(&self, source: &Path, attributes: Attributes) -> Result<OwnedFd> {
        mounts::clone_tree(source, false, attributes, self.userns)
            .map_err(fault("map a folder's ids for the sandbox"))
    }

    /// An image tree. A file system that cannot map ids shows its files with the overflow ids, which is enough
    /// for a read-only image.
    fn image_tree(&self, source: &Path) -> Result<OwnedFd> {
        let mapped = mounts::clone_tree(source, true, READ_ONLY, self.userns);
        mapped
            .or_else(|e| match e.raw_os_error() {
                Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPERM) => {
                    mounts::clone_tree(source, true, READ_ONLY, None)
                }
                _ => Err(e),
            })
            .map_err(fault("clone the image"))
    }

    /// The image's trees, and the paths that are mounted on or have a rule and that it lacked.
    fn plain_layers(&self, stage: &Path) -> Result<(Layers, Vec<String>)> {
        let trees = self.image.trees.iter();
        let mut layers: Layers =
            trees.map(|tree| Ok((tree.at.clone(), self.image_tree(&tree.source)?))).collect::<Result<_>>()?;
        let mut made = Vec::new();
        for path in self.image_places() {
            let inside = |at: &str| at.is_empty() || Path::new(path).starts_with(at);
            let holder =
                (0..layers.len()).filter(|n| inside(&layers[*n].0)).max_by_key(|n| layers[*n].0.len());
            let (at, tree) = &layers[holder.unwrap_or(0)];
            let relative = path[at.len().min(path.len())..].trim_start_matches('/');
            match open_beneath(tree, if relative.is_empty() { "." } else { relative }, OFlags::empty()) {
                Ok(_) => {}
                Err(Errno::NOENT) => made.push((holder.unwrap_or(0), relative, path)),
                Err(e) => {
                    let message =
                        format!("{path} cannot be mounted on: a part of it in the image is no folder ({e})");
                    return Err(Error::new(ErrorCode::Conflict, message));
                }
            }
        }
        for (number, (_, tree)) in layers.iter_mut().enumerate() {
            let missing: Vec<&str> = made.iter().filter(|one| one.0 == number).map(|one| one.1).collect();
            if !missing.is_empty() || self.is_sealed() {
                let stage = stage.join(format!("image{number}"));
                *tree = self.with_places(tree, &stage, &missing).map_err(fault("make room in the image"))?;
            }
        }
        Ok((layers, made.into_iter().map(|(_, _, path)| path.to_owned()).collect()))
    }

    /// What is mounted or has a rule, and lies in the image and not on the sandbox's own volume.
    fn image_places(&self) -> impl Iterator<Item = &str> {
        let own = self.disk.map(|disk| disk.places(self.profile));
        let Profile { mounts, volumes, paths, .. } = self.profile;
        let all = mounts.iter().map(|share| share.at.as_str()).chain(volumes.iter().map(|v| v.path.as_str()));
        let all = all.chain(paths.iter().map(|(path, _)| path));
        all.filter(move |path| !own.iter().flatten().any(|(_, at)| Path::new(path).starts_with(at)))
    }

    /// Whether the image came from outside and may lack what every container needs.
    fn is_sealed(&self) -> bool {
        self.profile.image.id().is_some()
    }

    /// The machine's id of the sandbox's root.
    fn root_owner(&self) -> u32 {
        if self.userns.is_some() { self.range.base } else { 0 }
    }

    /// The volume in which an image is built, as the root.
    fn build_layers(&self) -> Result<Layers> {
        let tree = self.image.trees.first().ok_or_else(|| Error::internal("an image without a tree"))?;
        places::make_in(&tree.source)?;
        Ok(vec![(tree.at.clone(), self.mapped(&tree.source, WRITABLE)?)])
    }

    /// A tree of the image with folders that it lacks, and with what every container needs.
    fn with_places(&self, tree: &OwnedFd, stage: &Path, missing: &[&str]) -> io::Result<OwnedFd> {
        let (places, lower) = (stage.join("places"), stage.join("lower"));
        fs::create_dir_all(&places)?;
        fs::create_dir(&lower)?;
        let owner = self.root_owner();
        if self.is_sealed() {
            places::lay_out(&places, tree, self.profile, owner)?;
        }
        for path in missing {
            let mut folder = places.clone();
            for part in path.split('/') {
                folder.push(part);
                make_folder(&folder, 0o755)?;
                chown(&folder, Some(owner), Some(owner))?;
            }
        }
        chown(&places, Some(owner), Some(owner))?;
        mounts::attach(tree, CWD.as_fd(), &lower)?;
        mounts::union(&places, &lower)
    }

    /// The image under overlays whose upper halves lie on the volume, one for each of its trees.
    fn overlay_layers(&self, stage: &Path) -> Result<Layers> {
        let disk = self.disk.ok_or_else(|| Error::internal("a writable root without a volume"))?;
        let uppers = disk.volume.join("root");
        let upper_mount = stage.join("upper");
        fs::create_dir(&upper_mount).map_err(fault("make the stage"))?;
        for number in 0..self.image.trees.len() {
            for name in ["upper", "work"] {
                fs::create_dir_all(uppers.join(number.to_string()).join(name))
                    .map_err(volume_fault("prepare the writable root"))?;
            }
        }
        mounts::attach(&self.mapped(&uppers, WRITABLE)?, CWD.as_fd(), &upper_mount)
            .map_err(fault("attach the writable root"))?;
        let owner = self.root_owner();
        let mut layers = Vec::new();
        for (number, tree) in self.image.trees.iter().enumerate() {
            let lower = stage.join(format!("lower{number}"));
            fs::create_dir(&lower).map_err(fault("make the stage"))?;
            let image = self.image_tree(&tree.source)?;
            mounts::attach(&image, CWD.as_fd(), &lower).map_err(fault("attach the image"))?;
            let mut lowers = vec![lower.as_path()];
            let places = stage.join(format!("places{number}"));
            if self.is_sealed() {
                fs::create_dir(&places)
                    .and_then(|()| chown(&places, Some(owner), Some(owner)))
                    .and_then(|()| places::lay_out(&places, &image, self.profile, owner))
                    .map_err(fault("make room in the image"))?;
                lowers.insert(0, &places);
            }
            let half = upper_mount.join(number.to_string());
            // The overlay works with the identity that it was mounted with, and the upper half, whose ids
            // are mapped, knows the container's root and not the host's.
            let overlay = sys::with_file_ids(owner, || {
                mounts::overlay(&lowers, &half.join("upper"), &half.join("work"))
            })
            .map_err(volume_fault("mount the writable root"))?;
            layers.push((tree.at.clone(), overlay));
        }
        Ok(layers)
    }

    fn attach_volume(&self, root: &OwnedFd) -> Result<()> {
        // A runtime with its own kernel mounts them by itself, from the specification.
        let (Some(disk), Some(_)) = (self.disk, self.userns) else { return Ok(()) };
        for (folder, at) in disk.places(self.profile) {
            attach_at(&self.mapped(&folder, WRITABLE)?, root, at.trim_start_matches('/'))?;
        }
        Ok(())
    }

    /// Lays PID 1's program into a small /run. The image's own /run is empty, and no sandbox has been
    /// here: a root with its own kernel is never writable.
    fn attach_init(&self, root: &Path, root_fd: &OwnedFd) -> Result<()> {
        let Some(program) = self.init else { return Ok(()) };
        let room = mounts::small_tmpfs().map_err(fault("make room for PID 1"))?;
        attach_at(&room, root_fd, "run")?;
        let at = root.join(INIT_IN_ROOT);
        fs::File::create(&at).map_err(fault("make room for PID 1"))?;
        mounts::clone_tree(program, false, READ_ONLY, None)
            .and_then(|tree| mounts::attach(&tree, CWD.as_fd(), &at))
            .map_err(fault("attach PID 1's program"))
    }

    fn attach_shares(&self, root: &OwnedFd) -> Result<()> {
        for wanted in &self.profile.mounts {
            let known = self.context.options.shares.iter().find(|s| s.name == wanted.share);
            let Share { path, writable, .. } = known.ok_or_else(|| {
                let message = format!("nothing is shared under the name {}", wanted.share);
                Error::invalid("profile.mounts.share", message)
            })?;
            let attributes = Attributes { read_only: !(wanted.writable && *writable), no_exec: false };
            attach_at(&self.share(path, attributes)?, root, wanted.at.trim_start_matches('/'))?;
        }
        Ok(())
    }

    /// A shared folder with the ids on disk, or with one owner's as the sandbox user's.
    fn share(&self, source: &Path, attributes: Attributes) -> Result<OwnedFd> {
        let Some(owner) = self.context.options.share_owner else { return self.mapped(source, attributes) };
        if self.userns.is_none() {
            let message = "a runtime with a kernel of its own cannot mount a folder of this machine";
            return Err(Error::new(ErrorCode::Unsupported, message));
        }
        let inside = Owner { uid: self.profile.uid, gid: self.profile.gid };
        let ids = userns::make_for_owner(self.range, owner, inside).map_err(fault("map an owner's ids"))?;
        mounts::clone_folder(source, attributes, ids.as_fd()).map_err(|e| {
            if e.raw_os_error() == Some(libc::ELOOP) {
                let message = format!(
                    "{} cannot be mounted: a symbolic link was put into its path after it was checked",
                    source.display()
                );
                return Error::new(ErrorCode::Conflict, message);
            }
            let message = format!(
                "{} cannot be mounted: {e}; its file system must be able to map ids, as ext4, xfs, btrfs and tmpfs can",
                source.display()
            );
            Error::new(ErrorCode::Unsupported, message)
        })
    }
}

/// Covers the files that describe the network in a root that is built. They stay empty in what is sealed.
fn attach_network_files(root: &OwnedFd, stage: &Path) -> Result<()> {
    for (number, (path, text)) in NETWORK_FILES.iter().enumerate() {
        let file = stage.join(format!("network{number}"));
        fs::write(&file, text)
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o644)))
            .map_err(fault("write the files of the network"))?;
        let tree = mounts::clone_tree(&file, false, READ_ONLY, None).map_err(fault("clone a file"))?;
        mounts::attach(&tree, mount_point(root, path, OFlags::empty())?.as_fd(), Path::new(""))
            .map_err(fault("attach a file"))?;
    }
    Ok(())
}

pub(crate) fn attach_at(mount: &OwnedFd, root: &OwnedFd, at: &str) -> Result<()> {
    mounts::attach(mount, folder_at(root, at)?.as_fd(), Path::new("")).map_err(fault("attach a mount"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_a_killed_start_left_is_finished_and_any_other_is_left_as_it_is() {
        let volume = tempfile::tempdir().unwrap();
        let owner = fs::metadata(volume.path()).map(|top| (top.uid(), top.gid())).unwrap();
        let (top, mode) =
            (volume.path().join("data"), |path: &Path| fs::metadata(path).unwrap().mode() & 0o777);
        fs::DirBuilder::new().mode(0o0).create(&top).unwrap();
        make_volume_folder(&top, 0o777, owner.0, owner.1).unwrap();
        assert_eq!(mode(&top), 0o777);
        fs::set_permissions(&top, fs::Permissions::from_mode(0o700)).unwrap();
        make_volume_folder(&top, 0o777, owner.0, owner.1).unwrap();
        assert_eq!(mode(&top), 0o700);
    }
}
