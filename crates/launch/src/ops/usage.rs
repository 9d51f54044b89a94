//! What containers use. One worker reads for all of them, so a reading costs one fork however many there are; no
//! process inside takes part and no tree is walked.

use super::inspect::load;
use crate::{
    context::Context,
    meter::Meter,
    record::{self, Record},
    socket_guard,
};
use atoll_launch_proto::MAX_USAGES;
use atoll_storage::QuotaKind;
use atoll_types::{ContainerId, Error, ErrorCode, Result, Storage, Usage};
use rustix::{
    param::clock_ticks_per_second,
    time::{ClockId, clock_gettime},
};

/// What one container uses.
pub(crate) fn usage(context: &Context, container: ContainerId) -> Result<(ContainerId, Usage)> {
    let record = load(context, container)?;
    match record.death(context) {
        Some(death) => Err(Error::died(death)),
        None if record.pid == 0 => Err(Error::new(ErrorCode::NotRunning, "the container is being made")),
        None => Ok((container, measure(context, Meter::find().as_ref(), &record))),
    }
}

/// What every living container uses, in the order of their ids.
pub(crate) fn usages(context: &Context) -> Vec<(ContainerId, Usage)> {
    let mut all = record::containers(context);
    all.sort_unstable();
    let meter = Meter::find();
    let living = all.into_iter().filter_map(|id| record::load(context, id)).filter(Record::alive);
    living.take(MAX_USAGES).map(|r| (r.container, measure(context, meter.as_ref(), &r))).collect()
}

fn measure(context: &Context, meter: Option<&Meter>, record: &Record) -> Usage {
    let counted = meter.map(|meter| meter.read(&context.cgroup(record.container))).unwrap_or_default();
    let on_disk = record.profile.storage == Storage::Volume;
    let limited = on_disk && context.storage.quota() != QuotaKind::None;
    Usage {
        age_usec: age(record.pid_start),
        disk_bytes: if on_disk { context.storage.counted(record.tree()) } else { None },
        disk_limit_bytes: limited.then_some(record.limits.disk_bytes),
        socket_kills: Some(socket_guard::kills(context, record.container)),
        ..counted
    }
}

/// How long ago a process started that did so this many clock ticks after boot.
fn age(started: u64) -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let now = seconds.saturating_mul(1_000_000) + u64::try_from(now.tv_nsec).unwrap_or(0) / 1000;
    let tick = 1_000_000 / clock_ticks_per_second().max(1);
    now.saturating_sub(started.saturating_mul(tick))
}
