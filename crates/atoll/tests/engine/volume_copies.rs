//! Snapshots and rollbacks through the launcher, with containers that start, write and are killed meanwhile.

use super::{
    fixture::{Instance, Stopped, eventually, says, spec},
    repair::workers,
};
use atoll_provider::{Container, ContainerSpec, Provider, Snapshots, State, Volumes};
use atoll_types::{ErrorCode, SnapshotId, VolumeId};
use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

fn on(volume: VolumeId) -> ContainerSpec {
    ContainerSpec { volume: Some(volume), ..spec("default") }
}

fn snapshots(instance: &Instance) -> &dyn Snapshots {
    instance.provider.snapshots().unwrap()
}

fn volumes(instance: &Instance) -> &dyn Volumes {
    instance.provider.volumes().unwrap()
}

/// The file that is there while a container is frozen because its volume is copied.
fn copying(instance: &Instance, c: &Arc<dyn Container>) -> PathBuf {
    instance.layout.run().join("c").join(c.id().to_string()).join("copying")
}

#[tokio::test]
async fn a_worker_killed_while_it_copies_leaves_no_container_frozen_and_no_half_copy() {
    let instance = Instance::start_with(&["--storage", "dir"]).await;
    let volume = VolumeId::random();
    let c = instance.provider.create(on(volume)).await.unwrap();
    says(&c, "for i in $(seq 30); do head -c 10000000 /dev/urandom > /workspace/$i; done").await;
    let launcher = instance.launcher_pids()[1];
    let marker = copying(&instance, &c);
    let mut interrupted = 0;
    for _ in 0..5 {
        let (made, ()) =
            tokio::join!(snapshots(&instance).create_snapshot(volume, SnapshotId::random()), async {
                while !marker.exists() {
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
                // It is frozen for a moment, and not paused.
                assert!(!matches!(c.state().await, Ok(State::Paused)));
                for worker in workers(launcher) {
                    let _ = process::Command::new("kill").args(["-KILL", &worker.to_string()]).status();
                }
            });
        interrupted += usize::from(made.is_err_and(|error| error.code == ErrorCode::Unavailable));
        eventually("it is thawed", || !marker.exists());
        assert_eq!(says(&c, "echo runs").await, "runs");
        assert_eq!(c.state().await.unwrap(), State::Running);
    }
    assert!(interrupted > 0, "no worker was hit");
    let half_made = instance.data().join("storage/dir/new");
    eventually("half copies are freed", || fs::read_dir(&half_made).unwrap().count() == 0);
    for left in snapshots(&instance).list_snapshots(volume).await.unwrap() {
        snapshots(&instance).delete_snapshot(volume, left.id).await.unwrap();
    }
    // The next one is whole.
    let made = SnapshotId::random();
    snapshots(&instance).create_snapshot(volume, made).await.unwrap();
    assert_eq!(snapshots(&instance).diff(volume, made, None).await.unwrap().files, vec![]);
    instance.provider.destroy(c.id()).await.unwrap();
    volumes(&instance).remove_volume(volume).await.unwrap();
}

/// A paused container is copied as it is, and stays paused.
#[tokio::test]
async fn a_paused_container_stays_paused_while_its_volume_is_copied() {
    for extra in [&[][..], &["--storage", "dir"]] {
        let instance = Instance::start_with(extra).await;
        let volume = VolumeId::random();
        let c = instance.provider.create(on(volume)).await.unwrap();
        says(&c, "echo one > /workspace/a").await;
        c.pause().unwrap().pause().await.unwrap();
        let made = SnapshotId::random();
        snapshots(&instance).create_snapshot(volume, made).await.unwrap();
        assert_eq!(c.state().await.unwrap(), State::Paused);
        c.pause().unwrap().resume().await.unwrap();
        says(&c, "echo two > /workspace/a").await;
        instance.provider.destroy(c.id()).await.unwrap();
        snapshots(&instance).roll_back(volume, made).await.unwrap();
        let c = instance.provider.create(on(volume)).await.unwrap();
        assert_eq!(says(&c, "cat /workspace/a").await, "one");
        instance.provider.destroy(c.id()).await.unwrap();
        volumes(&instance).remove_volume(volume).await.unwrap();
    }
}

/// A rollback either comes before a start or is refused: no container has a volume that is thrown away under it.
#[tokio::test]
async fn a_start_and_a_rollback_at_once_lose_no_write() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    let c = instance.provider.create(on(volume)).await.unwrap();
    instance.provider.destroy(c.id()).await.unwrap();
    let base = SnapshotId::random();
    snapshots(&instance).create_snapshot(volume, base).await.unwrap();
    let mut both = [0, 0];
    for round in 0..12 {
        let (c, rolled) = tokio::join!(instance.provider.create(on(volume)), async {
            tokio::time::sleep(Duration::from_micros(round * 400)).await;
            snapshots(&instance).roll_back(volume, base).await
        });
        let c = c.unwrap();
        match rolled {
            Ok(()) => both[0] += 1,
            Err(error) => {
                assert_eq!(error.code, ErrorCode::Conflict, "{error:?}");
                both[1] += 1;
            }
        }
        says(&c, &format!("echo {round} > /workspace/written")).await;
        instance.provider.destroy(c.id()).await.unwrap();
        let changed = snapshots(&instance).diff(volume, base, None).await.unwrap();
        assert!(changed.files.iter().any(|c| c.path == "workspace/written"), "{round} {changed:?}");
    }
    assert!(both[1] > 0, "{both:?}");
    volumes(&instance).remove_volume(volume).await.unwrap();
}

#[tokio::test]
async fn a_worker_killed_while_it_rolls_back_in_place_leaves_files_of_one_state() {
    for driver in ["dir", "btrfs"] {
        let instance = Instance::start_with(&["--storage", driver]).await;
        let volume = VolumeId::random();
        let c = instance.provider.create(on(volume)).await.unwrap();
        let fill = |what: &str| {
            format!(
                "cd /workspace; for i in $(seq 3000); do echo {what}{what}{what}{what} > $i; done; cat [0-9]* | sort -u"
            )
        };
        assert_eq!(says(&c, &fill("a")).await, "aaaa");
        let to = SnapshotId::random();
        snapshots(&instance).create_snapshot(volume, to).await.unwrap();
        let launcher = instance.launcher_pids()[1];
        let marker = copying(&instance, &c);
        let mut interrupted = 0;
        for round in 0..6_u64 {
            assert_eq!(says(&c, &fill("bb")).await, "bbbbbbbb");
            let (rolled, ()) = tokio::join!(snapshots(&instance).roll_back_in_place(volume, to), async {
                while !marker.exists() {
                    tokio::time::sleep(Duration::from_micros(200)).await;
                }
                tokio::time::sleep(Duration::from_millis(3 * round)).await;
                for worker in workers(launcher) {
                    let _ = process::Command::new("kill").args(["-KILL", &worker.to_string()]).status();
                }
            });
            interrupted += usize::from(rolled.is_err());
            eventually("it is thawed", || !marker.exists());
            // The worker may have been killed before it began, and what it began is complete when anything runs again.
            let seen = says(&c, "cat /workspace/[0-9]* | sort -u; ls /workspace | wc -l").await;
            assert!(
                matches!(seen.as_str(), "aaaa\n3000" | "bbbbbbbb\n3000"),
                "{driver}, round {round}: {seen}"
            );
        }
        assert!(interrupted > 0, "{driver}: no worker was hit");
        snapshots(&instance).roll_back_in_place(volume, to).await.unwrap();
        assert_eq!(snapshots(&instance).diff(volume, to, None).await.unwrap().files, vec![]);
        instance.provider.destroy(c.id()).await.unwrap();
        volumes(&instance).remove_volume(volume).await.unwrap();
    }
}

/// Where the kernel says what the instance's pool has not written back, by the group of everything.
fn dirty_file(instance: &Instance) -> PathBuf {
    let data = instance.data().to_str().unwrap().to_owned();
    let is_ours = |device: &Path| {
        let name = device.file_name().unwrap().to_str().unwrap();
        let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        backing.is_ok_and(|backing| backing.contains(&data))
    };
    let mut all = fs::read_dir("/sys/fs/btrfs").unwrap().flatten().map(|one| one.path());
    let pool = all.find(|one| {
        let devices = fs::read_dir(one.join("devices"));
        devices.is_ok_and(|devices| devices.flatten().any(|device| is_ours(&device.path())))
    });
    pool.expect("the pool of the instance").join(format!("qgroups/{}_0/rsv_data", 0x0A72))
}

fn dirty(file: &Path) -> u64 {
    fs::read_to_string(file).unwrap().trim().parse().unwrap()
}

/// Makes a snapshot, and says what was dirty when its container was first seen frozen for it; nothing where it was not.
async fn dirty_when_frozen(instance: &Instance, c: &Arc<dyn Container>, volume: VolumeId) -> Option<u64> {
    let (marker, file) = (copying(instance, c), dirty_file(instance));
    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    // It never sleeps: a container is frozen for a moment.
    let watching = thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            if marker.exists() {
                return Some(dirty(&file));
            }
        }
        None
    });
    let id = SnapshotId::random();
    let made = snapshots(instance).create_snapshot(volume, id).await;
    done.store(true, Ordering::Relaxed);
    let seen = watching.join().unwrap();
    made.unwrap();
    snapshots(instance).delete_snapshot(volume, id).await.unwrap();
    seen
}

/// A container is frozen for the moment of a snapshot, and not while what it wrote is written back.
#[tokio::test]
async fn a_container_is_frozen_after_what_is_dirty_is_written_back() {
    let instance = Instance::start().await;
    let volume = VolumeId::random();
    let c = instance.provider.create(on(volume)).await.unwrap();
    // It needs no launcher from here on.
    says(&c, "true").await;
    let mut seen = None;
    for _ in 0..10 {
        // Otherwise the launcher would write it back before the snapshot is asked for.
        let stopped = Stopped::new(instance.launcher_pids()[1]);
        says(&c, "head -c 64M /dev/zero > /workspace/f").await;
        let much = dirty(&dirty_file(&instance)) >= 48 << 20;
        drop(stopped);
        // A moment may be too short to be seen.
        seen = dirty_when_frozen(&instance, &c, volume).await.filter(|_| much);
        if seen.is_some() {
            break;
        }
    }
    let seen = seen.expect("it was never seen frozen with much to write back before");
    assert!(seen < 16 << 20, "{seen} bytes were to be written back while it was frozen");
    instance.provider.destroy(c.id()).await.unwrap();
    volumes(&instance).remove_volume(volume).await.unwrap();
}

#[tokio::test]
async fn dirty_data_is_written_back_before_the_kernel_does_it() {
    let instance = Instance::start().await;
    let c = instance.container("default").await;
    let expiry = fs::read_to_string("/proc/sys/vm/dirty_expire_centisecs").unwrap();
    let kernel = Duration::from_millis(expiry.trim().parse::<u64>().unwrap() * 10);
    says(&c, "head -c 24M /dev/urandom > /workspace/f").await;
    let (began, file) = (Instant::now(), dirty_file(&instance));
    while dirty(&file) >= 16 << 20 {
        assert!(began.elapsed() < kernel / 2, "the launcher leaves it to the kernel");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    instance.provider.destroy(c.id()).await.unwrap();
}
