//! The memory of an idle container, counted by its cgroup, which includes the kernel's share and charges in
//! batches, so it says too much; by PID 1's pages; and as a check by how much the whole machine's memory in
//! use grows, which includes other processes too.

use super::Bench;
use crate::{
    Result,
    baseline::Sleepers,
    instance::small_spec,
    machine::{kibibytes, meminfo},
    report::{Baseline, Row},
    stats::Samples,
};
use atoll_provider::{Container, Provider};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Long enough for freed memory to be counted as such.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Counted {
    cgroup: Samples,
    pss: Samples,
    rss: Samples,
    kernel: Samples,
    machine: Samples,
    bare_pss: Samples,
    bare_rss: Samples,
    bare_kernel: Samples,
    bare_machine: Samples,
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let count = bench.scale.pick(3, 20, 20);
    let mut counted = Counted::default();
    // The first one allocates what all share.
    bench.destroy(&bench.container().await?).await?;
    for _ in 0..bench.scale.pick(1, 3, 10) {
        containers(bench, count, &mut counted).await?;
        sleepers(count, &mut counted).await?;
    }
    let Counted { cgroup, pss, rss, kernel, machine, bare_pss, bare_rss, bare_kernel, bare_machine } =
        counted;
    let bare = |samples| Baseline::new("a bare sleep: PSS", samples);
    Ok(vec![
        Row::memory("memory, cgroup", cgroup, bare(bare_pss.clone())),
        Row::memory("memory, PID 1 PSS", pss, bare(bare_pss)),
        Row::memory("memory, PID 1 RSS", rss, Baseline::new("a bare sleep: RSS", bare_rss)),
        Row::memory("memory, in use", kernel, Baseline::new("bare sleeps, each", bare_kernel)),
        Row::memory("memory, MemAvailable", machine, Baseline::new("bare sleeps, each", bare_machine)),
    ])
}

async fn containers(bench: &Bench<'_>, count: usize, counted: &mut Counted) -> Result<()> {
    let before = Machine::look().await?;
    let mut all: Vec<Arc<dyn Container>> = Vec::new();
    for _ in 0..count {
        let container = bench.instance.provider.create(small_spec()?).await?;
        counted.cgroup.push(mebibytes(cgroup_usage(bench, &container)?));
        all.push(container);
    }
    let after = Machine::look().await?;
    counted.kernel.push((after.in_use - before.in_use) / count as f64);
    counted.machine.push((before.available - after.available) / count as f64);
    for container in &all {
        let pid = u32::try_from(bench.instance.status(container.id()).await?.pid)?;
        let (pss, rss) = pages(pid)?;
        counted.pss.push(pss);
        counted.rss.push(rss);
    }
    for container in &all {
        bench.destroy(container).await?;
    }
    Ok(())
}

async fn sleepers(count: usize, counted: &mut Counted) -> Result<()> {
    let before = Machine::look().await?;
    let sleepers = Sleepers::start(count)?;
    let after = Machine::look().await?;
    counted.bare_kernel.push((after.in_use - before.in_use) / count as f64);
    counted.bare_machine.push((before.available - after.available) / count as f64);
    for pid in sleepers.pids() {
        let (pss, rss) = pages(pid)?;
        counted.bare_pss.push(pss);
        counted.bare_rss.push(rss);
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The whole machine's memory, in mebibytes.
pub(super) struct Machine {
    /// Memory that a new process could have.
    available: f64,
    /// Memory that processes and the kernel hold and that cannot be reclaimed.
    pub(super) in_use: f64,
}

impl Machine {
    /// Reads it after a pause.
    pub(super) async fn look() -> Result<Self> {
        tokio::time::sleep(SETTLE).await;
        let mut in_use = 0;
        for line in ["AnonPages:", "Shmem:", "SUnreclaim:", "KernelStack:", "PageTables:", "Percpu:"] {
            in_use += meminfo(line)?;
        }
        Ok(Self { available: mebibytes(meminfo("MemAvailable:")?), in_use: mebibytes(in_use) })
    }
}

/// A process's proportional and resident set.
fn pages(pid: u32) -> Result<(f64, f64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok((mebibytes(kibibytes(&text, "Pss:")?), mebibytes(kibibytes(&text, "Rss:")?)))
}

/// What the container's memory cgroup counts, of either version.
fn cgroup_usage(bench: &Bench<'_>, container: &Arc<dyn Container>) -> Result<u64> {
    let below =
        PathBuf::from("atoll").join(bench.instance.layout.instance()).join(container.id().to_string());
    let root = Path::new("/sys/fs/cgroup");
    let files = [
        root.join("memory").join(&below).join("memory.usage_in_bytes"),
        root.join(&below).join("memory.current"),
    ];
    let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
    Ok(text.ok_or("the container has no memory cgroup")?.trim().parse()?)
}
