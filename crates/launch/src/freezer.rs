//! Freezes and thaws all processes of a cgroup. Callers need not know which cgroup version the machine has.
//! Whether a container is frozen is read from the kernel and recorded nowhere else.

use atoll_types::{Error, ErrorCode, Result};
use libcgroups::{
    common::{CgroupSetup, DEFAULT_CGROUP_ROOT, get_cgroup_setup},
    v1::{ControllerType, util::get_subsystem_mount_point},
};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// How long it may take until every process is frozen. A process that waits for a disk cannot be frozen before
/// the disk answers, and one that has used up its CPU quota must first get some.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// Less than this is not worth the effort of taking it away.
const WORTH_IT: u64 = 1 << 20;
/// Memory is reclaimed in pieces of this size, so that a container that is thawed meanwhile keeps the rest.
const PIECE: u64 = 64 << 20;

/// Where the files are.
pub(crate) enum Freezer {
    /// One hierarchy has all.
    V2(PathBuf),
    /// Each controller has its own.
    V1 { freezer: PathBuf, memory: Option<PathBuf> },
}

impl Freezer {
    /// That of this machine, where it has one.
    pub(crate) fn find() -> Option<Self> {
        match get_cgroup_setup().ok()? {
            CgroupSetup::Unified => Some(Self::V2(DEFAULT_CGROUP_ROOT.into())),
            CgroupSetup::Hybrid | CgroupSetup::Legacy => Some(Self::V1 {
                freezer: get_subsystem_mount_point(&ControllerType::Freezer).ok()?,
                memory: get_subsystem_mount_point(&ControllerType::Memory).ok(),
            }),
        }
    }

    fn folder(&self, cgroup: &Path) -> PathBuf {
        let (Self::V2(root) | Self::V1 { freezer: root, .. }) = self;
        root.join(cgroup.strip_prefix("/").unwrap_or(cgroup))
    }

    /// Whether a process is in the cgroup, and so is frozen with it.
    pub(crate) fn holds(&self, cgroup: &Path, pid: i32) -> bool {
        let processes = fs::read_to_string(self.folder(cgroup).join("cgroup.procs")).unwrap_or_default();
        processes.lines().any(|line| line.parse() == Ok(pid))
    }

    /// Whether the cgroup is frozen or being frozen: no process inside can be relied on to answer.
    pub(crate) fn is_frozen(&self, cgroup: &Path) -> bool {
        let read = |name| fs::read_to_string(self.folder(cgroup).join(name)).unwrap_or_default();
        match self {
            Self::V2(_) => read("cgroup.freeze").trim() == "1",
            Self::V1 { .. } => matches!(read("freezer.state").trim(), "FROZEN" | "FREEZING"),
        }
    }

    /// Whether every process of the cgroup is frozen.
    fn stands_still(&self, cgroup: &Path) -> bool {
        let read = |name| fs::read_to_string(self.folder(cgroup).join(name)).unwrap_or_default();
        match self {
            Self::V2(_) => read("cgroup.events").lines().any(|line| line == "frozen 1"),
            Self::V1 { .. } => read("freezer.state").trim() == "FROZEN",
        }
    }

    fn order(&self, cgroup: &Path, freeze: bool) -> Result<()> {
        let (name, word) = match (self, freeze) {
            (Self::V2(_), true) => ("cgroup.freeze", "1"),
            (Self::V2(_), false) => ("cgroup.freeze", "0"),
            (Self::V1 { .. }, true) => ("freezer.state", "FROZEN"),
            (Self::V1 { .. }, false) => ("freezer.state", "THAWED"),
        };
        write(&self.folder(cgroup).join(name), word).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::new(ErrorCode::Unsupported, "its cgroup has no freezer"),
            _ => Error::internal(format!("the freezer refused: {e}")),
        })
    }

    /// Freezes every process in the cgroup and returns when all are frozen. On failure the cgroup is thawed.
    pub(crate) fn freeze(&self, cgroup: &Path) -> Result<()> {
        self.freeze_within(cgroup, PATIENCE)
    }

    fn freeze_within(&self, cgroup: &Path, patience: Duration) -> Result<()> {
        let began = Instant::now();
        let mut pause = Duration::from_micros(50);
        let mut loosened = false;
        while began.elapsed() < patience {
            // Again each time: v1 does not catch by itself what is forked while it works.
            self.order(cgroup, true)?;
            if self.stands_still(cgroup) {
                return Ok(());
            }
            sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
            if !loosened && began.elapsed() > patience / 2 {
                // A process that waits for one that is already frozen can only continue when both do.
                loosened = true;
                self.order(cgroup, false)?;
                sleep(Duration::from_millis(1));
            }
        }
        self.order(cgroup, false)?;
        let message = "not every process inside could be frozen in time, so the container was thawed; one waits \
                       for the disk, or starts processes without end";
        Err(Error::new(ErrorCode::Timeout, message))
    }

    /// Thaws the cgroup; succeeds when it is not frozen.
    pub(crate) fn thaw(&self, cgroup: &Path) -> Result<()> {
        self.order(cgroup, false)
    }

    /// Reclaims memory that a frozen cgroup can do without: page cache that can be read again from disk and,
    /// where the machine swaps, the rest. Stops when the cgroup is thawed.
    pub(crate) fn reclaim(&self, cgroup: &Path) {
        if reclaimable(self, cgroup) < WORTH_IT {
            return;
        }
        match self {
            Self::V2(_) => {
                let file = self.folder(cgroup).join("memory.reclaim");
                let mut left = self.number(cgroup, "memory.current");
                while left > 0 && self.is_frozen(cgroup) {
                    let piece = left.min(PIECE);
                    // The kernel fails the write when it reclaims less than requested: then there is no more.
                    if write(&file, &piece.to_string()).is_err() {
                        return;
                    }
                    left -= piece;
                }
            }
            // Reclaims what it can and leaves the processes' own memory, which older kernel documents did not
            // promise.
            Self::V1 { .. } => _ = write(&self.memory(cgroup).join("memory.force_empty"), "0"),
        }
    }

    fn memory(&self, cgroup: &Path) -> PathBuf {
        match self {
            Self::V1 { memory: Some(root), .. } => root.join(cgroup.strip_prefix("/").unwrap_or(cgroup)),
            // Such a machine has none of these files.
            _ => self.folder(cgroup),
        }
    }

    fn number(&self, cgroup: &Path, name: &str) -> u64 {
        let text = fs::read_to_string(self.memory(cgroup).join(name)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

/// Never makes a file: where the kernel has none, there is none.
fn write(path: &Path, word: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(word.as_bytes())
}

/// About how much can be reclaimed.
fn reclaimable(freezer: &Freezer, cgroup: &Path) -> u64 {
    let text = fs::read_to_string(freezer.memory(cgroup).join("memory.stat")).unwrap_or_default();
    let number = |name: &str| -> u64 {
        let found = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        found.unwrap_or(0)
    };
    let (files, anonymous) = match freezer {
        Freezer::V2(_) => (number("file"), number("anon")),
        Freezer::V1 { .. } => (number("cache"), number("rss")),
    };
    // The first line is a heading.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1;
    if swaps { files.saturating_add(anonymous) } else { files.saturating_sub(number("shmem")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CGROUP: &str = "/atoll/0123/c";
    const SHORT: Duration = Duration::from_millis(50);

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join("atoll/0123/c").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn read(root: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(root.path().join("atoll/0123/c").join(name)).unwrap()
    }

    /// A v2 cgroup as files: the kernel's own answers were recorded. A plain file keeps what was written
    /// beyond the last word, so each has room for one character.
    #[test]
    fn a_v2_cgroup_is_paused_and_unpaused() {
        let root = tree(&[
            ("cgroup.freeze", "0"),
            ("cgroup.events", "populated 1\nfrozen 1\n"),
            ("cgroup.procs", "71\n4711\n"),
        ]);
        let freezer = Freezer::V2(root.path().into());
        let cgroup = Path::new(CGROUP);
        assert!(!freezer.is_frozen(cgroup));
        freezer.freeze(cgroup).unwrap();
        assert_eq!(read(&root, "cgroup.freeze"), "1");
        assert!(freezer.is_frozen(cgroup) && freezer.holds(cgroup, 4711) && !freezer.holds(cgroup, 471));
        freezer.thaw(cgroup).unwrap();
        assert_eq!(read(&root, "cgroup.freeze"), "0");
    }

    /// One of its processes waits for a disk that does not answer.
    #[test]
    fn what_cannot_be_stopped_goes_on() {
        let root = tree(&[("cgroup.freeze", "0"), ("cgroup.events", "populated 1\nfrozen 0\n")]);
        let freezer = Freezer::V2(root.path().into());
        let error = freezer.freeze_within(Path::new(CGROUP), SHORT).unwrap_err();
        assert_eq!(error.code, ErrorCode::Timeout);
        assert_eq!(read(&root, "cgroup.freeze"), "0");
    }

    #[test]
    fn v1_words() {
        let root = tree(&[("freezer.state", "THAWED")]);
        let freezer = Freezer::V1 { freezer: root.path().into(), memory: None };
        let cgroup = Path::new(CGROUP);
        assert!(!freezer.is_frozen(cgroup));
        freezer.freeze(cgroup).unwrap();
        assert!(freezer.is_frozen(cgroup));
        freezer.thaw(cgroup).unwrap();
        assert_eq!(read(&root, "freezer.state"), "THAWED");
        fs::write(root.path().join("atoll/0123/c/freezer.state"), "FREEZING\n").unwrap();
        assert!(freezer.is_frozen(cgroup), "who is on the way there does not answer either");
    }

    #[test]
    fn without_a_freezer_it_is_not_supported() {
        let root = tree(&[]);
        for freezer in
            [Freezer::V2(root.path().into()), Freezer::V1 { freezer: root.path().into(), memory: None }]
        {
            let error = freezer.freeze(Path::new(CGROUP)).unwrap_err();
            assert_eq!(error.code, ErrorCode::Unsupported);
            assert!(!freezer.is_frozen(Path::new(CGROUP)) && !freezer.holds(Path::new(CGROUP), 1));
        }
    }

    #[test]
    fn memory_is_taken_away_where_there_is_some() {
        let stat = "anon 1000000\nfile 50000000\nshmem 1000000\n";
        let files = |stat: &'static str| {
            tree(&[
                ("cgroup.freeze", "1"),
                ("memory.stat", stat),
                ("memory.current", "51000000\n"),
                ("memory.reclaim", ""),
            ])
        };
        let root = files(stat);
        Freezer::V2(root.path().into()).reclaim(Path::new(CGROUP));
        assert_eq!(read(&root, "memory.reclaim"), "51000000");
        let little = files("anon 0\nfile 1000000\nshmem 900000\n");
        Freezer::V2(little.path().into()).reclaim(Path::new(CGROUP));
        assert_eq!(read(&little, "memory.reclaim"), "", "it is not worth it");
        let going = files(stat);
        fs::write(going.path().join("atoll/0123/c/cgroup.freeze"), "0").unwrap();
        Freezer::V2(going.path().into()).reclaim(Path::new(CGROUP));
        assert_eq!(read(&going, "memory.reclaim"), "", "it goes on and needs it");
    }
}
