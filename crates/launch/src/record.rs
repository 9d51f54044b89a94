//! What is recorded of a container: one folder `c/<id>` in the run folder, with a lock that a worker holds while
//! it changes the container, a record, and how PID 1 ended.
//!
//! The record's pid is zero until the container runs, so a folder whose lock is free and whose pid is
//! zero was left by a worker that died half-way.
//!
//! The folder says what exists: a cgroup, spool, scratch tree, uid range or runtime state without one is an
//! orphan, which the next start frees. The lock is a POSIX lock, because the container's first process must
//! not inherit it.

use crate::{context::Folders, freezer::Freezer};
use atoll_launch_proto::{ContainerState, ContainerStatus};
use atoll_storage::Tree;
use atoll_types::{ContainerId, Death, Error, ErrorCode, Limits, Profile, Result, VolumeId};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

/// What is written down when a container is made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) container: ContainerId,
    pub(crate) profile: Profile,
    pub(crate) limits: Limits,
    pub(crate) volume: Option<VolumeId>,
    pub(crate) created_unix_ms: u64,
    pub(crate) slot: u32,
    pub(crate) pid: i32,
    pub(crate) pid_start: u64,
    /// The token of a PID 1 that listens on TCP.
    pub(crate) token: Option<String>,
    /// Where that one listens.
    #[serde(default = "former_tcp_port")]
    pub(crate) tcp_port: u16,
    /// Which version of its image it was made of.
    #[serde(default)]
    pub(crate) image: String,
}

/// Where PID 1 listens in containers whose record does not say it: an earlier release made them.
fn former_tcp_port() -> u16 {
    2024
}

/// The right to change a container; free when dropped. It is the process's own: the container's first
/// process is forked from a worker and must not inherit it.
pub(crate) struct Lock(#[allow(dead_code)] fs::File);

/// Makes the folder of a new container and locks it.
pub(crate) fn begin(folders: &Folders, container: ContainerId) -> Result<Lock> {
    let folder = folders.container(container);
    fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Error::new(ErrorCode::AlreadyExists, "this container exists").at("container")
        }
        _ => Error::internal(format!("cannot make the container's folder: {e}")),
    })?;
    lock(folders, container)?.ok_or_else(|| Error::internal("the container's folder was removed"))
}

/// Locks a container, waiting for the worker that holds the lock; none when there is no such container.
pub(crate) fn lock(folders: &Folders, container: ContainerId) -> Result<Option<Lock>> {
    lock_with(folders, container, FlockOperation::LockExclusive)
}

/// Locks a container if no other process holds the lock.
pub(crate) fn try_lock(folders: &Folders, container: ContainerId) -> Result<Option<Lock>> {
    lock_with(folders, container, FlockOperation::NonBlockingLockExclusive)
}

fn lock_with(folders: &Folders, container: ContainerId, how: FlockOperation) -> Result<Option<Lock>> {
    let folder = folders.container(container);
    let fault = |e: io::Error| Error::internal(format!("cannot lock the container: {e}"));
    let path = folder.join("lock");
    let file = match fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(fault(e)),
    };
    match fcntl_lock(&file, how) {
        Ok(()) => {}
        Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
        Err(e) => return Err(fault(e.into())),
    }
    // The process that held the lock may have destroyed the container meanwhile.
    Ok(path.exists().then_some(Lock(file)))
}

fn holder(folders: &Folders, container: ContainerId) -> PathBuf {
    folders.container(container).join("holder")
}

/// Records that this worker destroys the container when its connection closes, for as long as the value lives.
pub(crate) fn hold(folders: &Folders, container: ContainerId) -> Result<Lock> {
    let fault = |e: io::Error| Error::internal(format!("cannot hold the container: {e}"));
    let file = fs::File::create(holder(folders, container)).map_err(fault)?;
    fcntl_lock(&file, FlockOperation::LockExclusive).map_err(|e| fault(e.into()))?;
    Ok(Lock(file))
}

/// Whether a living worker holds the container. A shared lock is tried, so that two processes that check at the
/// same time do not take each other for the holder. The holder must never call this: closing this file would drop
/// its lock.
pub(crate) fn is_held(folders: &Folders, container: ContainerId) -> bool {
    let Ok(file) = fs::File::open(holder(folders, container)) else { return false };
    fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

/// The file that is there while a container is frozen for a copy of its volume, made before and removed after that. The
/// worker that copies has it locked: where the lock is free, that worker was killed. The lock is not the container's,
/// which another worker may hold while it waits for a process that is frozen.
pub(crate) fn copying(folders: &Folders, container: ContainerId) -> PathBuf {
    folders.container(container).join("copying")
}

/// Makes and locks the file.
pub(crate) fn begin_copying(folders: &Folders, container: ContainerId) -> Result<Lock> {
    let fault =
        |e: io::Error| Error::internal(format!("cannot write down that the container is frozen: {e}"));
    let path = copying(folders, container);
    loop {
        let file =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(fault)?;
        fcntl_lock(&file, FlockOperation::LockExclusive).map_err(|e| fault(e.into()))?;
        // A repair may have removed it meanwhile.
        let there = fs::metadata(&path).map(|there| there.ino());
        if file.metadata().map_err(fault)?.ino() == there.unwrap_or(0) {
            return Ok(Lock(file));
        }
    }
}

/// Locks the file if a dead worker left it and no repair has it.
pub(crate) fn try_lock_copying(folders: &Folders, container: ContainerId) -> Option<Lock> {
    lock_copying_with(folders, container, FlockOperation::NonBlockingLockExclusive)
}

/// Locks the file if a dead worker left it, and waits for a repair that has it: that is about to thaw the container.
pub(crate) fn lock_copying(folders: &Folders, container: ContainerId) -> Option<Lock> {
    lock_copying_with(folders, container, FlockOperation::LockExclusive)
}

fn lock_copying_with(folders: &Folders, container: ContainerId, how: FlockOperation) -> Option<Lock> {
    let path = copying(folders, container);
    let file = fs::OpenOptions::new().write(true).open(&path).ok()?;
    fcntl_lock(&file, how).ok()?;
    let there = fs::metadata(&path).ok()?.ino();
    (file.metadata().ok()?.ino() == there).then_some(Lock(file))
}

/// Writes a file whole or not at all.
fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, content)?;
    fs::rename(temporary, path)
}

/// Writes the record down.
pub(crate) fn save(folders: &Folders, record: &Record) -> Result<()> {
    let content = serde_json::to_vec(record).map_err(|e| Error::internal(e.to_string()))?;
    write_whole(&folders.container(record.container).join("record.json"), &content)
        .map_err(|e| Error::internal(format!("cannot write the container's record: {e}")))
}

/// Reads the record; none when there is no container, or not yet a record.
pub(crate) fn load(folders: &Folders, container: ContainerId) -> Option<Record> {
    let content = fs::read(folders.container(container).join("record.json")).ok()?;
    serde_json::from_slice(&content).ok()
}

/// Every container that has a folder.
pub(crate) fn containers(folders: &Folders) -> Vec<ContainerId> {
    let Ok(entries) = fs::read_dir(folders.containers()) else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// A process that has not ended: its flags in the kernel, and when it started, in clock ticks since boot.
fn stat(pid: i32) -> Option<(u64, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    Some((fields.nth(5)?.parse().ok()?, fields.nth(12)?.parse().ok()?))
}

/// When a process started: with its number it names it for good.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|(_, start)| start)
}

/// The kernel's PF_EXITING.
const EXITING: u64 = 4;

/// Whether a process has ended or is about to. The kernel takes a killed process's descriptors and namespaces away
/// before its state says that it has ended.
pub(crate) fn is_ending(pid: i32) -> bool {
    stat(pid).is_none_or(|(flags, _)| flags & EXITING != 0)
}

impl Record {
    /// What holds the sandbox's files: its volume, or a scratch tree that goes with the container.
    pub(crate) fn tree(&self) -> Tree {
        self.volume.map_or(Tree::Scratch(self.container), Tree::Volume)
    }

    /// The volumes that it has: its own, its root and those beside them.
    pub(crate) fn volumes(&self) -> impl Iterator<Item = VolumeId> {
        let beside = self.profile.volumes.iter().map(|mount| mount.volume);
        self.volume.into_iter().chain(self.profile.build_root).chain(beside)
    }

    /// Whether it has a volume.
    pub(crate) fn uses(&self, volume: VolumeId) -> bool {
        self.volumes().any(|own| own == volume)
    }

    /// Whether PID 1 lives.
    pub(crate) fn alive(&self) -> bool {
        self.pid > 0 && start_time(self.pid) == Some(self.pid_start)
    }

    /// How PID 1 ended, if it ran and is gone.
    pub(crate) fn death(&self, folders: &Folders) -> Option<Death> {
        if self.pid == 0 || self.alive() {
            return None;
        }
        let seen = fs::read(folders.container(self.container).join("exit.json")).ok();
        Some(seen.and_then(|s| serde_json::from_slice(&s).ok()).unwrap_or_else(Death::lost))
    }

    /// The status for the caller. On a machine without a freezer no container is paused.
    pub(crate) fn status(&self, folders: &Folders, freezer: Option<&Freezer>) -> ContainerStatus {
        let death = self.death(folders);
        let state = match (self.pid, &death) {
            (0, _) => ContainerState::Creating,
            // One that is frozen for a moment, for a copy, is not paused.
            (_, None)
                if !copying(folders, self.container).exists()
                    && freezer.is_some_and(|f| f.is_frozen(&folders.cgroup(self.container))) =>
            {
                ContainerState::Paused
            }
            (_, None) => ContainerState::Running,
            (_, Some(_)) => ContainerState::Dead,
        };
        let Self {
            container,
            profile,
            limits,
            volume,
            created_unix_ms,
            slot: _,
            pid,
            pid_start: _,
            token: _,
            tcp_port: _,
            image: _,
        } = self.clone();
        ContainerStatus {
            container,
            state,
            volume,
            profile: profile.name,
            limits,
            created_unix_ms,
            pid,
            death,
            held: false,
        }
    }
}

/// Records how a container's PID 1 ended. The first record is kept.
pub(crate) fn save_death(folders: &Folders, container: ContainerId, death: &Death) {
    let path = folders.container(container).join("exit.json");
    if !path.exists()
        && let Ok(content) = serde_json::to_vec(death)
        && let Err(error) = write_whole(&path, &content)
    {
        tracing::warn!(%container, %error, "cannot write down how the container ended");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn start_times_name_a_process() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(super::start_time(me).is_some());
        assert_eq!(super::start_time(me), super::start_time(me));
        assert_eq!(super::start_time(-5), None);
        assert!(!super::is_ending(me) && super::is_ending(-5));
    }
}
