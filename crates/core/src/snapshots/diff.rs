//! The files that differ between two snapshots of a sandbox, or between one and now.
//!
//! A comparison may read gigabytes, so the machine makes few at a time ([`Diffs`]), and one owner has one of them at most:
//! other owners do not wait for all that it asks for.

use super::{PATIENCE, Snapshots, snapshots_for};
use crate::{
    Caller,
    admission::{Turn, Turns},
    operation::OperationSpec,
};
use atoll_provider::Changed;
use atoll_store::SandboxId;
use atoll_types::{
    Error, ErrorCode, Operation, Profile, Result, SnapshotId, attachment::kept_folder, files::FileChange,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

/// How many comparisons the whole machine makes at a time.
const MOST_DIFFS: usize = 4;

/// The comparisons that are being made.
pub(crate) struct Diffs {
    owners: Turns,
    machine: Semaphore,
}

impl Default for Diffs {
    fn default() -> Self {
        Self { owners: Turns::default(), machine: Semaphore::new(MOST_DIFFS) }
    }
}

impl Diffs {
    /// Waits until the owner has no other comparison and the machine has a free permit.
    async fn begin(&self, owner: &str, deadline: Instant) -> Result<(Turn, SemaphorePermit<'_>)> {
        let late = || {
            let message = "too many snapshots are being compared; ask again";
            Error::new(ErrorCode::LimitExceeded, message).retry_after(5)
        };
        let turn = self.owners.take(owner, deadline, late).await?;
        let permit = timeout_at(deadline, self.machine.acquire()).await;
        Ok((turn, permit.map_err(|_| late())?.map_err(|_| late())?))
    }
}

impl Snapshots {
    /// The files that differ between a snapshot and another, or the sandbox's files as they are now. Paths are absolute,
    /// as the sandbox has them.
    pub async fn diff(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        from: SnapshotId,
        to: Option<SnapshotId>,
    ) -> Result<Changed> {
        let to_name = to.map_or_else(|| "now".to_owned(), |to| to.to_string());
        let what = OperationSpec::to(Operation::SnapshotDiff, sandbox).and("from", from).and("to", to_name);
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            let owner = audited.record()?.owner.clone();
            // The provider compares on where the caller goes away, and so the permits are held on.
            self.to_its_end(
                move |snapshots| async move { snapshots.compare(sandbox, &owner, from, to).await },
            )
            .await
        }
        .await;
        audited.done(result).await
    }

    async fn compare(
        &self,
        sandbox: SandboxId,
        owner: &str,
        from: SnapshotId,
        to: Option<SnapshotId>,
    ) -> Result<Changed> {
        let _begun = self.diffs.begin(owner, Instant::now() + PATIENCE).await?;
        let record = self.registry.check_state(sandbox, Operation::SnapshotDiff).await?;
        for id in [Some(from), to].into_iter().flatten() {
            self.find(sandbox, id).await?;
        }
        let power = snapshots_for(self.provider(&record)?, &record.profile)?;
        let Changed { files, truncated } = power.diff(record.volume, from, to).await?;
        Ok(as_inside(files, truncated, &record.profile))
    }
}

/// Files of a volume as its sandbox has them, by path. What it does not have at any path is left out; where that cannot be
/// known, the answer is truncated.
fn as_inside(files: Vec<FileChange>, truncated: bool, profile: &Profile) -> Changed {
    let mut changed = Changed { files: Vec::new(), truncated };
    for file in files {
        match inside(&file.path, profile) {
            PathInside::At(path) => changed.files.push(FileChange { path, ..file }),
            PathInside::Nowhere => {}
            PathInside::Unknown => changed.truncated = true,
        }
    }
    changed.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    changed
}

/// Where a file of a volume is inside.
#[derive(Debug, PartialEq, Eq)]
enum PathInside {
    At(String),
    Nowhere,
    Unknown,
}

/// Where the launcher puts what is at this path of a volume.
fn inside(path: &str, profile: &Profile) -> PathInside {
    let (top, below) = path.split_once('/').unwrap_or((path, ""));
    match top {
        "home" => PathInside::At(format!("{}/{below}", profile.home())),
        // A folder for each path with a rule that the image lacks; a former rule's is attached nowhere.
        "paths" => {
            let (kept, below) = below.split_once('/').unwrap_or((below, ""));
            let rule = profile.paths.iter().find(|(path, _)| kept_folder(path) == kept);
            rule.map_or(PathInside::Nowhere, |(at, _)| PathInside::At(format!("{at}/{below}")))
        }
        // The two halves of an overlay for each tree of the image: the first is the root, and the machine's own image has
        // /usr as the second. Which others a machine has, the launcher alone knows.
        "root" => match below.splitn(3, '/').collect::<Vec<_>>()[..] {
            ["0", "upper", below] => PathInside::At(format!("/{below}")),
            ["1", "upper", below] => PathInside::At(format!("/usr/{below}")),
            [_, "upper", _] => PathInside::Unknown,
            _ => PathInside::Nowhere,
        },
        _ => PathInside::At(format!("/{path}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::{PathRules, files::FileAction};

    #[test]
    fn paths_of_a_volume_are_those_of_its_sandbox() {
        let rule = |path: &str| vec![path.to_owned()];
        let paths =
            PathRules { read_only: rule("/opt/data"), read_write: rule("/srv/out"), ..PathRules::default() };
        let root = Profile { paths, ..Profile::builtin("root").unwrap() };
        let kept = |path: &str| format!("paths/{}/deep/f", kept_folder(path));
        for (path, expected) in [
            ("workspace/a", Some("/workspace/a")),
            ("home/.x/y", Some("/root/.x/y")),
            (&kept("/srv/out"), Some("/srv/out/deep/f")),
            (&kept("/opt/data"), Some("/opt/data/deep/f")),
            (&kept("/gone"), None),
            ("root/0/upper/etc/x", Some("/etc/x")),
            ("root/1/upper/bin/x", Some("/usr/bin/x")),
            ("root/0/work/work/#1", None),
            ("root/0/work/x", None),
        ] {
            let place = expected.map_or(PathInside::Nowhere, |path| PathInside::At(path.into()));
            assert_eq!(inside(path, &root), place, "{path}");
        }
        let file = |path: &str| FileChange { path: path.into(), action: FileAction::Created, size_bytes: 1 };
        let changed =
            as_inside(vec![file("root/2/upper/x"), file("home/b"), file("root/0/upper/a")], false, &root);
        assert_eq!(changed, Changed { files: vec![file("/a"), file("/root/b")], truncated: true });
    }

    #[tokio::test]
    async fn an_owner_has_one_comparison_and_the_machine_a_few() {
        let diffs = Diffs::default();
        let (now, later) = (Instant::now(), Instant::now() + PATIENCE);
        let first = diffs.begin("ann", later).await.unwrap();
        assert_eq!(diffs.begin("ann", now).await.err().unwrap().code, ErrorCode::LimitExceeded);
        let mut others = Vec::new();
        for owner in ["bob", "cat", "dan"] {
            others.push(diffs.begin(owner, later).await.unwrap());
        }
        assert!(diffs.begin("eve", now).await.is_err());
        drop(first);
        assert!(diffs.begin("eve", later).await.is_ok());
    }
}
