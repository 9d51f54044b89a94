//! Records of snapshots.

use super::{NOW, Outcome, Shared, add, clashes, ensure, same, sandbox};
use crate::{Change, Clash, NewSandbox, SandboxId, Sha256, Status, StoreError, Thing};
use atoll_types::{
    CheckpointId, ContainerId, InstalledSkill, KernelCheckpoint, KernelId, Millis, SandboxRecord, SkillId,
    SnapshotId, SnapshotKernels, SnapshotKind, SnapshotQuery, SnapshotRecord,
};

fn record(of: &SandboxRecord, kind: SnapshotKind, created_at: Millis) -> SnapshotRecord {
    SnapshotRecord {
        id: SnapshotId::random(),
        sandbox: of.id,
        owner: of.owner.clone(),
        kind,
        label: None,
        made_before: None,
        created_at,
        size_bytes: 0,
        kernels: None,
        skills: None,
        ready: false,
    }
}

fn all(sandbox: SandboxId) -> SnapshotQuery {
    SnapshotQuery { sandbox, offset: 0, limit: 100 }
}

async fn made(store: &Shared, record: SnapshotRecord) -> Result<SnapshotRecord, super::Failure> {
    let (id, at) = (record.id, record.created_at);
    store.insert_snapshot(record).await?;
    Ok(store.finish_snapshot(id, at, 1).await?)
}

fn missing<T: std::fmt::Debug>(what: &str, got: crate::Result<T>, wanted: Thing) -> Outcome {
    let right = matches!(&got, Err(StoreError::NotFound(thing)) if *thing == wanted);
    ensure(right, || format!("{what}: got {got:?}, wanted no {wanted}"))
}

pub(super) async fn a_snapshot_is_listed_once_it_is_there(store: Shared) -> Outcome {
    let (of, other) = (add(&store, sandbox()).await?, add(&store, sandbox()).await?);
    let label = Some("before \"O'Neil\" \u{1f600}".to_owned());
    let first = SnapshotRecord {
        label: label.clone(),
        made_before: Some("x".into()),
        kernels: Some(SnapshotKernels {
            container: ContainerId::random(),
            checkpoints: vec![KernelCheckpoint {
                kernel: KernelId::random(),
                checkpoint: CheckpointId::random(),
            }],
        }),
        skills: Some(vec![InstalledSkill {
            id: SkillId::random(),
            name: "first".parse().map_err(|_| super::Failure("a name".into()))?,
            digest: Sha256([1; 32]),
            installed_at: NOW,
        }]),
        ..record(&of, SnapshotKind::Automatic, NOW)
    };
    store.insert_snapshot(first.clone()).await?;
    clashes("again", store.insert_snapshot(first.clone()).await, Clash::Taken)?;
    same("every record", store.snapshots_of(of.id).await?, vec![first.clone()])?;
    same("not there yet", store.snapshot(of.id, first.id).await?, None)?;
    same("not listed yet", store.list_snapshots(&all(of.id)).await?.total, 0)?;
    missing("labelled", store.label_snapshot(of.id, first.id, None).await, Thing::Snapshot)?;
    let wanted = SnapshotRecord { created_at: NOW + 5, size_bytes: 7, ready: true, ..first };
    same("made", store.finish_snapshot(wanted.id, NOW + 5, 7).await?, wanted.clone())?;
    same("there", store.snapshot(of.id, wanted.id).await?, Some(wanted.clone()))?;
    same("listed", store.list_snapshots(&all(of.id)).await?.items, vec![wanted.clone()])?;
    same("another's", store.snapshot(other.id, wanted.id).await?, None)?;
    same("not removed by another", store.remove_snapshot(other.id, wanted.id).await?, false)?;
    missing("another's label", store.label_snapshot(other.id, wanted.id, None).await, Thing::Snapshot)?;
    let relabelled = store.label_snapshot(of.id, wanted.id, None).await?;
    same("labelled", relabelled, SnapshotRecord { label: None, ..wanted.clone() })?;
    same("removed", store.remove_snapshot(of.id, wanted.id).await?, true)?;
    same("removed again", store.remove_snapshot(of.id, wanted.id).await?, false)?;
    missing("made after it was removed", store.finish_snapshot(wanted.id, NOW, 1).await, Thing::Snapshot)?;
    let nowhere = SnapshotRecord { sandbox: SandboxId::random(), ..wanted };
    missing("of no sandbox", store.insert_snapshot(nowhere).await, Thing::Sandbox)
}

pub(super) async fn snapshots_page_and_go_with_their_sandbox(store: Shared) -> Outcome {
    let (of, other) = (add(&store, sandbox()).await?, add(&store, sandbox()).await?);
    let mut wanted = Vec::new();
    for number in 0..5 {
        // Two of one moment keep their order.
        let one = made(&store, record(&of, SnapshotKind::Manual, NOW + number / 2)).await?;
        wanted.insert(0, one);
    }
    let kept = made(&store, record(&other, SnapshotKind::Manual, NOW)).await?;
    for (offset, limit) in [(0, 2), (2, 2), (4, 2), (6, 2)] {
        let page = store.list_snapshots(&SnapshotQuery { sandbox: of.id, offset, limit }).await?;
        let (from, to) = ((offset as usize).min(5), (offset as usize + 2).min(5));
        same("a page", (page.items, page.total), (wanted[from..to].to_vec(), 5))?;
    }
    wanted.reverse();
    same("the oldest first", store.snapshots_of(of.id).await?, wanted)?;
    let stopped = store.update_sandbox(of.id, of.revision, Change::status(Status::Stopped)).await?;
    same("of a stopped one", store.snapshots_of(of.id).await?.len(), 5)?;
    store.update_sandbox(of.id, stopped.revision, Change::status(Status::Destroyed)).await?;
    same("of a destroyed one", store.snapshots_of(of.id).await?, Vec::new())?;
    let late = record(&of, SnapshotKind::Manual, NOW);
    missing("of a destroyed one, new", store.insert_snapshot(late).await, Thing::Sandbox)?;
    same("of another", store.snapshots_of(other.id).await?, vec![kept])
}

pub(super) async fn retention_finds_the_old_that_no_request_made(store: Shared) -> Outcome {
    let of = add(&store, sandbox()).await?;
    let old = made(&store, record(&of, SnapshotKind::Automatic, NOW + 1)).await?;
    let older = made(&store, record(&of, SnapshotKind::BeforeRollback, NOW)).await?;
    made(&store, record(&of, SnapshotKind::Manual, NOW)).await?;
    made(&store, record(&of, SnapshotKind::Automatic, NOW + 2)).await?;
    let labelled = SnapshotRecord { label: Some("keep".into()), ..record(&of, SnapshotKind::Automatic, NOW) };
    made(&store, labelled).await?;
    store.insert_snapshot(record(&of, SnapshotKind::Automatic, NOW)).await?;
    same("old", store.old_snapshots(NOW + 1, 10).await?, vec![older.clone(), old])?;
    same("some of them", store.old_snapshots(NOW + 1, 1).await?, vec![older.clone()])?;
    // An imported sandbox is younger than its snapshots, and they are here as long as it is.
    let imported = add(&store, NewSandbox { created_at: NOW + 10, ..sandbox() }).await?;
    let ancient = made(&store, record(&imported, SnapshotKind::Automatic, NOW - 1000)).await?;
    same("not of an imported one", store.old_snapshots(NOW + 1, 1).await?, vec![older])?;
    let all = store.old_snapshots(NOW + 10, 10).await?;
    ensure(all.contains(&ancient), || format!("of an imported one, later: {all:?}"))
}
