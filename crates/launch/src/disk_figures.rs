//! What `df` inside a container says of volumes. A volume's limit is a quota group, of which statfs knows nothing, so the
//! image's own `df` would show the whole pool. The kernel has a folder in sysfs for each group: those of a container's
//! volumes are mounted read-only in it, and the `df` of PID 1's program, which reads them, is mounted over the image's.
//!
//! A writable root keeps the `df` of its image: nothing can be renamed onto a mount, so a package manager could not
//! upgrade the package that has it.

use crate::{
    mounts,
    rootfs::{Disk, Parts, READ_ONLY, attach_at, fault, open_beneath},
};
use atoll_storage::Tree;
use atoll_types::{Result, RootMode};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FileType, OFlags, fstat, major, minor},
};
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The folder of the figures, in that of the certificates, which every root has.
pub(crate) const FOLDER: &str = "disks";
const AT: &str = "etc/atoll/disks";
/// Where images have their `df`. One that is a link, as busybox has it, stays.
const PROGRAMS: &[&str] = &["usr/bin/df", "bin/df"];

impl Parts<'_> {
    /// Mounts the figures of the container's volumes, and the `df` that reads them.
    pub(crate) fn attach_disk_figures(&self, root: &OwnedFd, stage: &Path) -> Result<()> {
        let (Some(disk), Some(_)) = (self.disk, self.userns) else { return Ok(()) };
        if self.profile.root != RootMode::ReadOnly || self.profile.build_root.is_some() {
            return Ok(());
        }
        // Where a rule blocks the folder, the image's own `df` stays.
        if open_beneath(root, AT, OFlags::DIRECTORY).is_err() {
            return Ok(());
        }
        let program = PROGRAMS.iter().find_map(|path| {
            let file = open_beneath(root, path, OFlags::NOFOLLOW).ok()?;
            let is_file = FileType::from_raw_mode(fstat(&file).ok()?.st_mode) == FileType::RegularFile;
            is_file.then_some(file)
        });
        let Some(program) = program else { return Ok(()) };
        let figures = self.figures(disk);
        if figures.is_empty() {
            return Ok(());
        }
        let folder = stage.join(FOLDER);
        lay_out(&folder, &figures).map_err(fault("lay out the figures of the disk"))?;
        let folder = mounts::clone_tree(&folder, true, READ_ONLY, None);
        attach_at(&folder.map_err(fault("mount the figures of the disk"))?, root, AT)?;
        mounts::clone_tree(self.context.init.path(), false, READ_ONLY, None)
            .and_then(|df| mounts::attach(&df, program.as_fd(), Path::new("")))
            .map_err(fault("mount df"))
    }

    /// The groups of the container's volumes, by the number of the device that a process inside sees.
    fn figures(&self, disk: &Disk) -> BTreeMap<String, (PathBuf, u64)> {
        let storage = &self.context.storage;
        let own = [(disk.volume.clone(), disk.tree), (disk.temporary.clone(), disk.tree)];
        let attached = self.profile.volumes.iter().map(|mount| Tree::Volume(mount.volume));
        let attached = attached.map(|tree| (storage.path(tree), tree));
        let figures = own.into_iter().chain(attached).filter_map(|(path, tree)| {
            let device = fs::metadata(path).ok()?.dev();
            Some((format!("{}:{}", major(device), minor(device)), storage.live_figures(tree)?))
        });
        figures.collect()
    }
}

fn lay_out(folder: &Path, figures: &BTreeMap<String, (PathBuf, u64)>) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (device, (group, shared)) in figures {
        let of_device = folder.join(device);
        let place = of_device.join("group");
        fs::create_dir_all(&place)?;
        fs::write(of_device.join("shared"), shared.to_string())?;
        mounts::clone_tree(group, false, READ_ONLY, None)
            .and_then(|group| mounts::attach(&group, CWD.as_fd(), &place))?;
    }
    Ok(())
}
