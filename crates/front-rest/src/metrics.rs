//! Figures about sandboxes and the pool, in the text form that Prometheus reads.

use atoll_core::{DiskRoom, PoolKey, PoolView, UsageTotals};
use atoll_types::Status;
use std::{collections::BTreeMap, fmt::Write};

/// The whole page, but for the figures about requests.
pub(crate) fn render(
    sandboxes: &BTreeMap<Status, u64>,
    used: &UsageTotals,
    disk: Option<DiskRoom>,
    pool: &PoolView,
) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    writeln!(page, "# TYPE atoll_sandboxes gauge")?;
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (status, count) in sandboxes {
        *by_name.entry(status.shown()).or_insert(0) += count;
    }
    for (status, count) in by_name {
        writeln!(page, "atoll_sandboxes{{status=\"{status}\"}} {count}")?;
    }
    // Sums only: a series for each sandbox would have no end.
    let UsageTotals { cpu_usec, memory_bytes, processes, disk_bytes } = *used;
    writeln!(page, "# TYPE atoll_sandboxes_cpu_seconds_total counter")?;
    writeln!(page, "atoll_sandboxes_cpu_seconds_total {}", cpu_usec as f64 / 1e6)?;
    for (name, value) in
        [("memory_bytes", memory_bytes), ("processes", processes), ("disk_bytes", disk_bytes)]
    {
        writeln!(page, "# TYPE atoll_sandboxes_{name} gauge\natoll_sandboxes_{name} {value}")?;
    }
    if let Some(DiskRoom { capacity_bytes, free_bytes, low }) = disk {
        for (name, value) in
            [("capacity_bytes", capacity_bytes), ("free_bytes", free_bytes), ("low", low.into())]
        {
            writeln!(page, "# TYPE atoll_storage_{name} gauge\natoll_storage_{name} {value}")?;
        }
    }
    render_pool(&mut page, pool)?;
    Ok(page)
}

/// What is kept ready, by image: those are the operator's, and few.
fn render_pool(page: &mut String, pool: &PoolView) -> std::fmt::Result {
    type Figure = fn(&PoolKey) -> f64;
    let figures: [(&str, &str, Figure); 9] = [
        ("hits_total", "counter", |key| key.hits as f64),
        ("misses_total", "counter", |key| key.misses as f64),
        ("failures_total", "counter", |key| key.failures as f64),
        ("refill_seconds_sum", "counter", |key| key.refill_time.as_secs_f64()),
        ("refill_seconds_count", "counter", |key| key.refills as f64),
        ("ready", "gauge", |key| key.ready.into()),
        ("starting", "gauge", |key| key.starting.into()),
        ("target", "gauge", |key| key.target.into()),
        ("oldest_seconds", "gauge", |key| key.oldest.map_or(0.0, |age| age.as_secs_f64())),
    ];
    for (name, kind, figure) in figures {
        writeln!(page, "# TYPE atoll_pool_{name} {kind}")?;
        for key in &pool.keys {
            writeln!(page, "atoll_pool_{name}{{image=\"{}\"}} {}", key.image, figure(key))?;
        }
    }
    Ok(())
}
