//! What every request needs to know: the options, the folders, the storage. Made once; workers get a
//! copy by being forked.

use crate::{images::Images, init::InitProgram, options::Options, sysctls::Sysctls};
use atoll_launch_proto::Layout;
use atoll_storage::Storage;
use atoll_types::ContainerId;
use std::{
    fs, io,
    ops::Deref,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

/// What every request needs to know.
pub(crate) struct Context {
    pub(crate) options: Options,
    pub(crate) folders: Folders,
    pub(crate) storage: Storage,
    pub(crate) init: InitProgram,
    pub(crate) images: Images,
    pub(crate) sysctls: Sysctls,
}

impl Deref for Context {
    type Target = Folders;
    fn deref(&self) -> &Folders {
        &self.folders
    }
}

/// The paths of an instance, by the names that the launcher uses.
pub(crate) struct Folders {
    pub(crate) layout: Layout,
}

/// Makes the folders of an instance, each with the mode that it needs. The caller holds its lock: a
/// launcher that is just ending removes them.
pub(crate) fn make_folders(layout: &Layout) -> io::Result<()> {
    let run = layout.run();
    // Traversable, because the container's root must be able to walk to its root filesystem.
    let open = [run.clone(), run.join("stage"), run.join("bin"), run.join("trust")];
    // For root only.
    let closed = [run.join("c"), run.join("lc"), run.join("oci"), run.join("pids"), run.join("volumes")];
    open.iter().try_for_each(|folder| make_folder(folder, 0o755))?;
    closed.iter().try_for_each(|folder| make_folder(folder, 0o700))?;
    fs::write(layout.origin(), layout.data().as_os_str().as_bytes())
}

/// Makes a folder if there is none.
pub(crate) fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Ok(()),
    }
}

impl Folders {
    /// Locked by the process that is this instance's launcher. Beside the run folder, so that the folder can be
    /// removed.
    pub(crate) fn lock(&self) -> PathBuf {
        self.layout.run().with_extension("lock")
    }

    /// The folder of all containers.
    pub(crate) fn containers(&self) -> PathBuf {
        self.layout.run().join("c")
    }

    /// The folder of one.
    pub(crate) fn container(&self, container: ContainerId) -> PathBuf {
        self.containers().join(container.to_string())
    }

    /// The folder that says which containers use a volume.
    pub(crate) fn volume_users(&self) -> PathBuf {
        self.layout.run().join("volumes")
    }

    /// Where PID 1's listening socket is bound.
    pub(crate) fn guest_socket(&self, container: ContainerId) -> PathBuf {
        self.container(container).join("guest.sock")
    }

    /// Where the socket holder of egress sockets listens, for root alone.
    pub(crate) fn holder(&self) -> PathBuf {
        self.layout.run().join("keep.sock")
    }

    /// The certificates that containers trust.
    pub(crate) fn trust(&self) -> PathBuf {
        self.layout.run().join("trust")
    }

    /// An empty folder over which each worker mounts, in a mount namespace of its own.
    pub(crate) fn stage(&self) -> PathBuf {
        self.layout.run().join("stage")
    }

    /// Where libcontainer keeps its state.
    pub(crate) fn libcontainer(&self) -> PathBuf {
        self.layout.run().join("lc")
    }

    /// Where OCI runtimes keep theirs.
    pub(crate) fn oci(&self) -> PathBuf {
        self.layout.run().join("oci")
    }

    /// The name by which PID 1's end finds its container.
    pub(crate) fn pid_link(&self, pid: i32) -> PathBuf {
        self.layout.run().join("pids").join(pid.to_string())
    }

    /// The first process of every container that has one, as the machine numbers it.
    pub(crate) fn running(&self) -> Vec<(i32, ContainerId)> {
        let links = fs::read_dir(self.layout.run().join("pids")).into_iter().flatten().flatten();
        let read = |link: fs::DirEntry| {
            let container = fs::read_link(link.path()).ok()?;
            Some((link.file_name().to_str()?.parse().ok()?, container.to_str()?.parse().ok()?))
        };
        links.filter_map(read).collect()
    }

    /// Removes the names of process ids whose container this does not know.
    pub(crate) fn forget_pids(&self, known: impl Fn(ContainerId) -> bool) {
        for link in fs::read_dir(self.layout.run().join("pids")).into_iter().flatten().flatten() {
            let target = fs::read_link(link.path()).ok();
            let container = target.and_then(|target| target.to_str()?.parse().ok());
            if container.is_some_and(|container| !known(container)) {
                let _ = fs::remove_file(link.path());
            }
        }
    }

    /// The cgroup of a container, below a folder of ours in every hierarchy.
    pub(crate) fn cgroup(&self, container: ContainerId) -> PathBuf {
        self.cgroups().join(container.to_string())
    }

    /// The cgroup that holds those of this instance.
    pub(crate) fn cgroups(&self) -> PathBuf {
        PathBuf::from("/atoll").join(self.layout.instance())
    }
}
