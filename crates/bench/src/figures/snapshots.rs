//! A volume of each size remembered, taken back and forked, all of it written back before; then a fork until its
//! first command has printed, and what many forks take of the disk. Compared with a copy by `cp -a`, and on
//! btrfs with a snapshot made by hand.

use super::Bench;
use crate::{
    Result, baseline,
    instance::{spec, tree},
    pace::{Pace, Scale, timed, timed_here},
    report::{Baseline, Row},
    stats::Samples,
};
use atoll_provider::{Command, Container, ContainerSpec, Provider, Snapshots, Volumes};
use atoll_types::{Limits, SnapshotId, VolumeId};
use std::{fs, path::PathBuf};

const DISK: u64 = 4 << 30;
pub(super) const COPY: &str = "cp -a of the same";
pub(super) const BY_HAND: &str = "btrfs subvolume snapshot";

/// Bytes of each file, and how many there are.
pub(super) struct Content {
    pub(super) name: &'static str,
    files: usize,
    bytes: usize,
}

/// What a volume is filled with; the quick run makes neither a gibibyte nor a hundred thousand files.
pub(super) fn contents(scale: Scale) -> Vec<Content> {
    scale.pick(vec![SMALL], vec![SMALL, LARGE, MANY], vec![SMALL, LARGE, MANY])
}

pub(super) const SMALL: Content = Content { name: "10 MB", files: 10, bytes: 1 << 20 };
const LARGE: Content = Content { name: "1 GiB", files: 16, bytes: 64 << 20 };
const MANY: Content = Content { name: "100,000 files", files: 100_000, bytes: 1 };

/// The powers that this figure is about, and the volume that it works on.
struct Work<'a> {
    bench: &'a Bench<'a>,
    volumes: &'a dyn Volumes,
    power: &'a dyn Snapshots,
    volume: VolumeId,
    files: VolumeFiles,
}

/// A volume's files on this machine.
pub(super) struct VolumeFiles(pub(super) PathBuf);

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for content in contents(bench.scale) {
        let work = Work::new(bench).await?;
        let taken = work.take(&content).await;
        work.volumes.remove_volume(work.volume).await?;
        rows.extend(taken?);
    }
    Ok(rows)
}

fn on(volume: VolumeId) -> Result<ContainerSpec> {
    let limits = Limits { disk_bytes: DISK, ..Limits::default() };
    Ok(ContainerSpec { volume: Some(volume), limits, ..spec()? })
}

/// What a container says first.
async fn first_output(container: &dyn Container) -> Result<()> {
    let finished = container.guest().run(&Command::new(["/bin/echo", "here"])).await?;
    if finished.report.exit_code == Some(0) { Ok(()) } else { Err("a fork's first command failed".into()) }
}

impl VolumeFiles {
    pub(super) fn fill(&self, content: &Content) -> Result<()> {
        // Nothing that a file system could compress.
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let body: Vec<u8> = (0..content.bytes).map(|_| next()).collect();
        for n in 0..content.files {
            let folder = self.0.join("workspace").join((n / 1000).to_string());
            if n % 1000 == 0 {
                fs::create_dir_all(&folder)?;
            }
            fs::write(folder.join(n.to_string()), &body)?;
        }
        self.write_back()
    }

    pub(super) fn write_back(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(&self.0)?)?)
    }

    /// A copy of the files beside the volume, and how long it took.
    pub(super) fn copy(&self) -> Result<(f64, PathBuf)> {
        let to = self.0.with_file_name(format!("bench-{}", VolumeId::random()));
        let (from, into) = (self.0.to_string_lossy(), to.to_string_lossy());
        let (took, ()) = timed_here(|| baseline::spawn(&["cp", "-a", "--reflink=never", &from, &into]))?;
        Ok((took, to))
    }

    /// A snapshot as an operator makes it; none where the volume is no subvolume.
    pub(super) fn by_hand(&self) -> Result<Option<f64>> {
        let to = self.0.with_file_name(format!("bench-{}", VolumeId::random()));
        let (from, into) = (self.0.to_string_lossy(), to.to_string_lossy());
        let made = timed_here(|| baseline::spawn(&["btrfs", "subvolume", "snapshot", &from, &into]));
        let Ok((took, ())) = made else { return Ok(None) };
        baseline::spawn(&["btrfs", "subvolume", "delete", &into])?;
        Ok(Some(took))
    }

    pub(super) fn used(&self) -> Result<f64> {
        self.write_back()?;
        let disk = rustix::fs::statvfs(&self.0)?;
        Ok(((disk.f_blocks - disk.f_bfree) * disk.f_frsize) as f64 / (1 << 20) as f64)
    }
}

impl<'a> Work<'a> {
    /// A volume without files.
    async fn new(bench: &'a Bench<'a>) -> Result<Self> {
        let provider = &bench.instance.provider;
        let powers = provider.volumes().zip(provider.snapshots());
        let (volumes, power) = powers.ok_or("this provider has no snapshots")?;
        let volume = VolumeId::random();
        let container = provider.create(on(volume)?).await?;
        provider.destroy(container.id()).await?;
        let files = VolumeFiles(tree(&bench.instance.layout, "volumes", &volume.to_string())?);
        Ok(Self { bench, volumes, power, volume, files })
    }

    async fn take(&self, content: &Content) -> Result<Vec<Row>> {
        self.files.fill(content)?;
        let mut rows = self.latencies(content).await?;
        if content.name == SMALL.name {
            rows.push(self.first_output_of_a_fork().await?);
            rows.push(self.storage_of_forks().await?);
        }
        Ok(rows)
    }

    async fn latencies(&self, content: &Content) -> Result<Vec<Row>> {
        let pace = Pace::tight(self.bench.scale.pick(2, 20, 60));
        let by_hand = self.files.by_hand()?.is_some();
        let series = pace.take(async || self.round(by_hand).await).await?;
        // Once: it takes seconds, and what is left of it is in the way of the others.
        let (copied, copy) = self.files.copy()?;
        fs::remove_dir_all(copy)?;
        let mut series = series.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let own = [("snapshot", next()?), ("rollback", next()?), ("fork", next()?)];
        let mut baselines = vec![Baseline::new(COPY, [copied].into_iter().collect())];
        baselines.extend(series.next().map(|samples| Baseline::new(BY_HAND, samples)));
        let row = |(what, samples): (&str, Samples)| {
            Row::latency(format!("{what}, {}", content.name), pace.name, samples, baselines.clone())
        };
        Ok(own.into_iter().map(row).collect())
    }

    /// Snapshot, rollback, fork, and a snapshot by hand where that is possible.
    async fn round(&self, by_hand: bool) -> Result<Vec<f64>> {
        let (id, into) = (SnapshotId::random(), VolumeId::random());
        let (snapshot, _) = timed(self.power.create_snapshot(self.volume, id)).await?;
        let (rollback, ()) = timed(self.power.roll_back(self.volume, id)).await?;
        let (fork, ()) = timed(self.power.fork(self.volume, Some(id), into, DISK)).await?;
        let mut values = vec![snapshot, rollback, fork];
        if by_hand {
            values.extend(self.files.by_hand()?);
        }
        self.volumes.remove_volume(into).await?;
        self.power.delete_snapshot(self.volume, id).await?;
        self.files.write_back()?;
        Ok(values)
    }

    /// A fork, a container on it and its first output; beside a container on a new volume.
    async fn first_output_of_a_fork(&self) -> Result<Row> {
        let provider = &self.bench.instance.provider;
        let pace = Pace::tight(self.bench.scale.pick(2, 20, 60));
        let round = async || {
            let mut values = Vec::new();
            for forked in [true, false] {
                let volume = VolumeId::random();
                let work = async {
                    if forked {
                        self.power.fork(self.volume, None, volume, DISK).await?;
                    }
                    let container = provider.create(on(volume)?).await?;
                    first_output(&*container).await.map(|()| container)
                };
                let (took, container) = timed(work).await?;
                provider.destroy(container.id()).await?;
                self.volumes.remove_volume(volume).await?;
                values.push(took);
            }
            Ok(values)
        };
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, empty) = (next()?, Baseline::new("the same on a new volume", next()?));
        Ok(Row::latency("fork to first output", pace.name, own, vec![empty]).by_difference())
    }

    /// What many forks of ten megabytes take of the disk; beside one copy.
    async fn storage_of_forks(&self) -> Result<Row> {
        let count = self.bench.scale.pick(5, 100, 100);
        let before = self.files.used()?;
        let mut forks = Vec::new();
        for _ in 0..count {
            let into = VolumeId::random();
            self.power.fork(self.volume, None, into, DISK).await?;
            forks.push(into);
        }
        let forked = self.files.used()? - before;
        for fork in forks {
            self.volumes.remove_volume(fork).await?;
        }
        let before = self.files.used()?;
        let (_, copy) = self.files.copy()?;
        let copied = self.files.used()? - before;
        fs::remove_dir_all(copy)?;
        let one = |value: f64| [value].into_iter().collect();
        Ok(Row::memory(
            "storage of 100 forks",
            one(forked),
            Baseline::new("one cp -a of the same", one(copied)),
        ))
    }
}
