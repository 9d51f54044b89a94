//! How long a container was frozen, for its PID 1: time spent paused does not count towards the timeout of a
//! command. The file lies with the container's record; PID 1 has it open to read.
//!
//! It holds two numbers of nanoseconds: how long the container was frozen in all, and when it was frozen last.
//! PID 1 reads only the first, and the launcher updates it before any process inside runs again.

use crate::context::Folders;
use atoll_types::ContainerId;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::PathBuf,
};

fn path(folders: &Folders, container: ContainerId) -> PathBuf {
    folders.container(container).join("clock")
}

/// The clock by which PID 1 measures timeouts.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

fn write(file: &File, total: u64, since: u64) -> io::Result<()> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&total.to_le_bytes());
    bytes[8..].copy_from_slice(&since.to_le_bytes());
    file.write_all_at(&bytes, 0)
}

fn read(file: &File) -> io::Result<(u64, u64)> {
    let (mut total, mut since) = ([0; 8], [0; 8]);
    file.read_exact_at(&mut total, 0)?;
    file.read_exact_at(&mut since, 8)?;
    Ok((u64::from_le_bytes(total), u64::from_le_bytes(since)))
}

/// Makes a new container's clock; what is returned can only be read.
pub(crate) fn make(folders: &Folders, container: ContainerId) -> io::Result<File> {
    let path = path(folders, container);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    write(&file, 0, 0)?;
    File::open(path)
}

fn open(folders: &Folders, container: ContainerId) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path(folders, container))
}

/// The container is about to be frozen.
pub(crate) fn stops(folders: &Folders, container: ContainerId) -> io::Result<()> {
    let file = open(folders, container)?;
    let (total, _) = read(&file)?;
    write(&file, total, now())
}

/// The frozen container is about to be thawed. May be repeated while it is frozen.
pub(crate) fn goes_on(folders: &Folders, container: ContainerId) -> io::Result<()> {
    let file = open(folders, container)?;
    let (total, since) = read(&file)?;
    let now = now();
    write(&file, total.saturating_add(now.saturating_sub(since)), now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_launch_proto::Layout;

    #[test]
    fn time_adds_up_and_none_counts_twice() {
        let data = tempfile::tempdir().unwrap();
        let folders = Folders { layout: Layout::new(data.path()) };
        let container = ContainerId::random();
        std::fs::create_dir_all(folders.container(container)).unwrap();
        let given = make(&folders, container).unwrap();
        assert_eq!(read(&given).unwrap(), (0, 0));
        assert!(given.write_all_at(&[1], 0).is_err(), "who gets it can only read");
        let before = now();
        stops(&folders, container).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        goes_on(&folders, container).unwrap();
        goes_on(&folders, container).unwrap();
        let (total, since) = read(&given).unwrap();
        assert!((2_000_000..=now() - before).contains(&total) && since > before, "{total} {since}");
        std::fs::remove_dir_all(folders.layout.run()).unwrap();
    }
}
