//! Snapshots, rollbacks, forks and diffs.

use super::{Outcome, clean, ensure, same, says, spec, with};
use crate::{Container, ContainerSpec, FileAction, FileChange, Provider, Snapshots, Volumes};
use atoll_types::{ErrorCode, SnapshotId, VolumeId};
use std::sync::Arc;

const FORK_BYTES: u64 = 512 << 20;

fn on(volume: VolumeId) -> ContainerSpec {
    ContainerSpec { volume: Some(volume), ..spec() }
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {error}")
}

fn powers(provider: &dyn Provider) -> Option<(&dyn Volumes, &dyn Snapshots)> {
    provider.volumes().zip(provider.snapshots())
}

async fn snapshot(power: &dyn Snapshots, volume: VolumeId) -> Result<SnapshotId, String> {
    let id = SnapshotId::random();
    let made = power.create_snapshot(volume, id).await.map_err(failed("snapshot"))?;
    same("the snapshot", (made.id, made.volume), (id, volume))?;
    Ok(id)
}

/// Removes volumes, and with them what is left of their snapshots.
async fn remove(volumes: &dyn Volumes, power: &dyn Snapshots, all: &[VolumeId], result: Outcome) -> Outcome {
    for volume in all {
        volumes.remove_volume(*volume).await.map_err(failed("remove"))?;
        let left = power.list_snapshots(*volume).await.map_err(failed("list"))?;
        same("snapshots of a removed volume", left, Vec::new())?;
    }
    result
}

/// Writes the same number to two files, again and again, with a rename each: never more than one apart.
const WRITE: &str = "cd /workspace; setsid sh -c 'n=0; while :; do n=$((n+1)); for f in a b; do \
                     echo $n > new; mv new $f; done; done' >/dev/null 2>&1 & until [ -e /workspace/b ]; do sleep 0.01; done";

pub(super) async fn a_snapshot_is_of_one_moment_and_a_rollback_brings_it_back(
    provider: &dyn Provider,
) -> Outcome {
    let Some((volumes, power)) = powers(provider) else { return Ok(()) };
    let volume = VolumeId::random();
    let result = async {
        let (mut made, mut end) = (Vec::new(), String::new());
        with(provider, on(volume), async |container| {
            says(&container, WRITE).await?;
            for _ in 0..5 {
                made.push(snapshot(power, volume).await?);
            }
            // It goes on afterwards.
            let on =
                "n=$(cat /workspace/a); until [ $(cat /workspace/a) -gt $n ]; do sleep 0.01; done; echo on";
            same("the writer", says(&container, on).await?, "on".into())?;
            end = says(&container, "cat /workspace/a").await?;
            Ok(())
        })
        .await?;
        let listed = power.list_snapshots(volume).await.map_err(failed("list"))?;
        same("listed", listed.iter().map(|s| s.id).collect::<Vec<_>>(), made.clone())?;
        same("again", power.create_snapshot(volume, made[0]).await, Ok(listed[0]))?;
        let mut last = 0;
        for id in &made {
            power.roll_back(volume, *id).await.map_err(failed("rollback"))?;
            let at = numbers(provider, volume).await?;
            ensure(at.0 == at.1 || at.0 == at.1 + 1, || format!("not of one moment: {at:?}"))?;
            ensure(at.0 >= last, || format!("a later snapshot has {at:?}, an earlier one {last}"))?;
            last = at.0;
        }
        let end: u64 = end.parse().map_err(failed("the last number"))?;
        ensure(last > 0 && last < end, || format!("the last snapshot has {last}, the volume had {end}"))?;
        for _ in 0..2 {
            power.delete_snapshot(volume, made[0]).await.map_err(failed("delete"))?;
        }
        let listed = power.list_snapshots(volume).await.map_err(failed("list"))?;
        same("listed", listed.iter().map(|s| s.id).collect::<Vec<_>>(), made[1..].to_vec())
    }
    .await;
    remove(volumes, power, &[volume], result).await
}

/// What is in both files. Between the two renames one is ahead, and a moment may lie there.
async fn numbers(provider: &dyn Provider, volume: VolumeId) -> Result<(u64, u64), String> {
    let mut found = (0, 0);
    with(provider, on(volume), async |container| {
        let text = says(&container, "cat /workspace/a /workspace/b").await?;
        let mut lines = text.lines().map(str::parse);
        match (lines.next(), lines.next()) {
            (Some(Ok(a)), Some(Ok(b))) => found = (a, b),
            _ => return Err(format!("the files are torn: {text:?}")),
        }
        Ok(())
    })
    .await?;
    Ok(found)
}

pub(super) async fn a_fork_goes_its_own_way(provider: &dyn Provider) -> Outcome {
    let Some((volumes, power)) = powers(provider) else { return Ok(()) };
    let [volume, then, now] = [(); 3].map(|()| VolumeId::random());
    let result = async {
        let fork = |id, into| power.fork(volume, id, into, FORK_BYTES);
        with(provider, on(volume), async |container| {
            says(&container, "echo one > /workspace/a; echo mine > ~/b").await?;
            let id = snapshot(power, volume).await?;
            says(&container, "echo two > /workspace/a").await?;
            fork(Some(id), then).await.map_err(failed("fork"))?;
            fork(None, now).await.map_err(failed("fork"))?;
            same("taken", fork(None, now).await.err().map(|e| e.code), Some(ErrorCode::AlreadyExists))?;
            says(&container, "echo three > /workspace/a").await.map(|_| ())
        })
        .await?;
        // Its origin may go.
        volumes.remove_volume(volume).await.map_err(failed("remove"))?;
        for (fork, wanted) in [(then, "one"), (now, "two")] {
            with(provider, on(fork), async |container| {
                let said =
                    says(&container, "cat /workspace/a ~/b; echo own > /workspace/a; cat /workspace/a")
                        .await?;
                same("the fork", said, format!("{wanted}\nmine\nown"))
            })
            .await?;
        }
        Ok(())
    }
    .await;
    remove(volumes, power, &[volume, then, now], result).await
}

pub(super) async fn a_diff_names_what_changed(provider: &dyn Provider) -> Outcome {
    let Some((volumes, power)) = powers(provider) else { return Ok(()) };
    let volume = VolumeId::random();
    let result = with(provider, on(volume), async |container| {
        let before = "cd /workspace; echo 1 > same; echo 1 > gone; echo 1 > changed; echo 1 > hidden; touch -d @9 hidden";
        says(&container, before).await?;
        let from = snapshot(power, volume).await?;
        let after = "cd /workspace; rm gone; echo 22 > changed; echo 2 > hidden; touch -d @9 hidden; mkdir d; \
                     echo 1 > d/new; ln -s / link";
        says(&container, after).await?;
        let change = |path: &str, action, size_bytes| FileChange { path: path.into(), action, size_bytes };
        let wanted = vec![
            change("workspace/changed", FileAction::Modified, 3),
            change("workspace/d/new", FileAction::Created, 2),
            change("workspace/gone", FileAction::Deleted, 0),
            change("workspace/hidden", FileAction::Modified, 2),
            change("workspace/link", FileAction::Created, 1),
        ];
        let ours = |files: Vec<FileChange>| -> Vec<FileChange> {
            files.into_iter().filter(|c| c.path.starts_with("workspace/")).collect()
        };
        let now = power.diff(volume, from, None).await.map_err(failed("diff"))?;
        same("with the volume", ours(now.files), wanted.clone())?;
        let to = snapshot(power, volume).await?;
        says(&container, "rm -r /workspace/*").await?;
        let two = power.diff(volume, from, Some(to)).await.map_err(failed("diff"))?;
        same("of two snapshots", ours(two.files), wanted)?;
        let none = power.diff(volume, from, Some(from)).await.map_err(failed("diff"))?;
        same("with itself", none.files, Vec::new())
    })
    .await;
    remove(volumes, power, &[volume], result).await
}

pub(super) async fn what_is_in_use_is_not_rolled_back_and_what_is_not_there_is_said(
    provider: &dyn Provider,
) -> Outcome {
    let Some((volumes, power)) = powers(provider) else { return Ok(()) };
    let (volume, unknown) = (VolumeId::random(), SnapshotId::random());
    let first = on(volume);
    let id = first.id;
    let container = provider.create(first).await.map_err(failed("create"))?;
    let result = refused(power, &container, volume).await;
    clean(provider, id).await?;
    let missing = power.roll_back(volume, unknown).await.err().map(|e| e.code);
    remove(volumes, power, &[volume], result).await?;
    same("no such snapshot", missing, Some(ErrorCode::NotFound))?;
    let nowhere = power.create_snapshot(volume, unknown).await.err().map(|e| e.code);
    same("no such volume", nowhere, Some(ErrorCode::NotFound))?;
    let forked = power.fork(volume, None, VolumeId::random(), FORK_BYTES).await.err().map(|e| e.code);
    same("no such volume", forked, Some(ErrorCode::NotFound))?;
    power.delete_snapshot(volume, unknown).await.map_err(failed("delete"))
}

/// Processes stay, and what they have open of files that both states have is what it was.
pub(super) async fn a_rollback_in_place_keeps_the_container(provider: &dyn Provider) -> Outcome {
    let Some((volumes, power)) = powers(provider) else { return Ok(()) };
    let volume = VolumeId::random();
    let result = with(provider, on(volume), async |container| {
        let begin = "cd /workspace; mkdir d; echo one > d/a; echo one > b; echo gone > gone; \
                     setsid sh -c 'cd d; exec 3<../b; touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.01; done; \
                     { cat a; cat <&3; } > /tmp/new; mv /tmp/new /tmp/seen' >/dev/null 2>&1 & \
                     until [ -e /tmp/begun ]; do sleep 0.01; done";
        says(&container, begin).await?;
        let id = snapshot(power, volume).await?;
        says(&container, "cd /workspace; echo two! > d/a; echo two! > b; rm gone; mkdir e; echo x > e/x").await?;
        match power.roll_back_in_place(volume, id).await {
            Err(error) if error.code == ErrorCode::Unsupported => return Ok(()),
            rolled => rolled.map_err(failed("rollback in place"))?,
        }
        let seen = "touch /tmp/go; until [ -e /tmp/seen ]; do sleep 0.01; done; cat /tmp/seen; ls /workspace";
        same("what it sees", says(&container, seen).await?, "one\none\nb\nd\ngone".into())
    })
    .await;
    let unused = power.roll_back_in_place(volume, SnapshotId::random()).await.err().map(|e| e.code);
    remove(volumes, power, &[volume], result).await?;
    same("without a container", unused, Some(ErrorCode::NotRunning))
}

async fn refused(power: &dyn Snapshots, container: &Arc<dyn Container>, volume: VolumeId) -> Outcome {
    says(container, "echo one > /workspace/a").await?;
    let made = snapshot(power, volume).await?;
    says(container, "echo two > /workspace/a").await?;
    let rolled = power.roll_back(volume, made).await.err().map(|e| e.code);
    same("in use", rolled, Some(ErrorCode::Conflict))?;
    power.check_roll_back(volume, made).await.map_err(failed("check a rollback"))?;
    let unknown = power.check_roll_back(volume, SnapshotId::random()).await.err().map(|e| e.code);
    same("no such snapshot is found before anything ends", unknown, Some(ErrorCode::NotFound))?;
    same("the file", says(container, "cat /workspace/a").await?, "two".into())
}
