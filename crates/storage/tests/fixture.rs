//! A folder for one test. Dropping it takes away every mount and loop device in it, and fails the test
//! when the test itself had left one.

use atoll_storage::{Storage, StorageConfig, Tree};
use atoll_types::VolumeId;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) struct Fixture {
    base: TempDir,
    disk: Option<PathBuf>,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self { base: tempfile::tempdir().unwrap(), disk: None }
    }

    /// The disk below is a tmpfs of this size.
    pub(crate) fn on_tmpfs(bytes: u64) -> Self {
        let fixture = Self::new().with_disk();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "none", fixture.disk()]);
        fixture
    }

    /// The disk below is a file system of this type and size.
    pub(crate) fn on(kind: &str, bytes: u64) -> Self {
        let fixture = Self::new().with_disk();
        let file = fixture.base.path().join("disk.img");
        fs::File::create(&file).unwrap().set_len(bytes).unwrap();
        run(&format!("mkfs.{kind}"), &["-q", file.to_str().unwrap()]);
        run("mount", &["-o", "loop", file.to_str().unwrap(), fixture.disk()]);
        fixture
    }

    fn with_disk(mut self) -> Self {
        let disk = self.base.path().join("disk");
        fs::create_dir(&disk).unwrap();
        self.disk = Some(disk);
        self
    }

    pub(crate) fn disk(&self) -> &str {
        self.disk.as_ref().unwrap().to_str().unwrap()
    }

    /// The file of the disk below, which is not mounted any more.
    pub(crate) fn unmounted_disk(&self) -> PathBuf {
        run("umount", &[self.disk()]);
        self.base.path().join("disk.img")
    }

    pub(crate) fn path(&self) -> &Path {
        self.disk.as_deref().unwrap_or(self.base.path())
    }

    /// A small pool and a small reserve.
    pub(crate) fn config(&self) -> StorageConfig {
        StorageConfig {
            reserve_bytes: Some(32 * MIB),
            pool_bytes: 1024 * MIB,
            ..StorageConfig::new(self.path().join("storage"), self.base.path().join("pool"))
        }
    }

    pub(crate) fn open(&self) -> Storage {
        Storage::open(&self.config()).unwrap()
    }

    pub(crate) fn pool_file(&self) -> PathBuf {
        self.config().dir.join("pool.img")
    }

    /// Loop devices with a file in this folder, that of the disk below left out.
    pub(crate) fn loops(&self) -> Vec<String> {
        let base = self.base.path().to_str().unwrap();
        let backed = |name: &String| {
            fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"))
                .is_ok_and(|file| file.starts_with(base) && !file.trim_end().ends_with("disk.img"))
        };
        let names = fs::read_dir("/sys/block")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(backed).collect()
    }

    /// Mount points in this folder, that of the disk below left out.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        let disk = self.disk.as_deref().and_then(Path::to_str);
        let ours =
            points.filter(|point| Path::new(point).starts_with(self.base.path()) && Some(*point) != disk);
        ours.map(str::to_owned).collect()
    }

    /// A device frees itself a moment after its last mount.
    fn wait_for_loops(&self) -> Vec<String> {
        comes_about(|| self.loops().is_empty());
        self.loops()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let mounts = self.mounts();
        for mount in mounts.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
        let loops = self.wait_for_loops();
        for name in &loops {
            let _ = Command::new("losetup").args(["-d", &format!("/dev/{name}")]).status();
        }
        if let Some(disk) = &self.disk {
            let _ = Command::new("umount").arg(disk).status();
        }
        if !std::thread::panicking() {
            assert!(mounts.is_empty() && loops.is_empty(), "left behind: {mounts:?} {loops:?}");
        }
    }
}

/// Waits for something that takes a moment; whether it came about in a minute.
pub(crate) fn comes_about(mut holds: impl FnMut() -> bool) -> bool {
    (0..3000).any(|_| {
        let done = holds();
        if !done {
            std::thread::sleep(Duration::from_millis(20));
        }
        done
    })
}

/// Waits until the kernel counts no more than this for a tree. It counts a removed file until its last writes are done
/// and committed, and that file's end is in the background.
pub(crate) fn shrinks(storage: &Storage, tree: Tree, bytes: u64) {
    let used = || storage.usage(tree).unwrap().used_bytes;
    let done = comes_about(|| {
        run("sync", &["-f", storage.path(tree).to_str().unwrap()]);
        used() <= bytes
    });
    assert!(done, "{} bytes are used", used());
}

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn volume() -> Tree {
    Tree::Volume(VolumeId::random())
}

/// Writes until it fails or is done; says how much went in, and the error.
pub(crate) fn fill(file: &Path, bytes: u64) -> (u64, Option<i32>) {
    let mut out = match fs::OpenOptions::new().create(true).append(true).open(file) {
        Ok(out) => out,
        Err(cause) => return (0, cause.raw_os_error()),
    };
    let block = vec![7_u8; MIB as usize];
    let mut written = 0;
    while written < bytes {
        match out.write(&block[..block.len().min((bytes - written) as usize)]) {
            Ok(count) => written += count as u64,
            Err(cause) => return (written, cause.raw_os_error()),
        }
    }
    (written, out.sync_all().err().and_then(|cause| cause.raw_os_error()))
}
