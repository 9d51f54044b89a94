//! The history of each sandbox's usage. It does no I/O: samples are put in and read out.
//!
//! At most 360 samples of a sandbox, of 48 bytes each, are kept, and one sampling returns 4096 containers at
//! most: about 70 MB in the worst case. Cores are processor time over the container's own age, so setting the
//! clock changes no figure. Processor time for Prometheus adds up the increase at each sampling, because a
//! sum over live sandboxes would fall whenever one is destroyed.

use atoll_store::SandboxId;
use atoll_types::{ContainerId, Usage};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Samples of one sandbox.
pub const KEPT: usize = 360;
/// Cores from less time than this would be noise.
const SHORTEST_USEC: u64 = 200_000;

/// A sandbox's usage at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageSample {
    /// Milliseconds since 1970.
    pub at: i64,
    /// Cores used since the sample before, or since the container began.
    pub cpu_cores: Option<f32>,
    pub cpu_usec: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub processes: Option<u32>,
    pub disk_bytes: Option<u64>,
    pub oom_kills: Option<u32>,
}

/// A sandbox's present usage, with its limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageNow {
    pub sample: UsageSample,
    pub throttled_usec: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub processes_limit: Option<u64>,
    pub disk_limit_bytes: Option<u64>,
    pub socket_kills: Option<u64>,
}

/// Sums over the sandboxes that lived at the last sampling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageTotals {
    /// Processor time of all that were seen since this server started; it never falls.
    pub cpu_usec: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Volumes, where that is known.
    pub disk_bytes: u64,
}

/// A container's processor time at a moment, to compute the cores since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) container: ContainerId,
    age_usec: u64,
    cpu_usec: Option<u64>,
}

pub(super) type Marks = [Option<Mark>; 2];

/// A sample as it is stored, compactly because there are very many: an absent figure is a reserved value.
#[derive(Debug, Clone, Copy)]
struct Packed {
    at: i64,
    cpu_usec: u64,
    memory_bytes: u64,
    disk_bytes: u64,
    cpu_cores: f32,
    processes: u32,
    oom_kills: u32,
}

const _: () = assert!(size_of::<Packed>() == 48);

impl From<&UsageSample> for Packed {
    fn from(sample: &UsageSample) -> Self {
        let UsageSample { at, cpu_cores, cpu_usec, memory_bytes, processes, disk_bytes, oom_kills } = *sample;
        Self {
            at,
            cpu_usec: cpu_usec.unwrap_or(u64::MAX),
            memory_bytes: memory_bytes.unwrap_or(u64::MAX),
            disk_bytes: disk_bytes.unwrap_or(u64::MAX),
            cpu_cores: cpu_cores.unwrap_or(f32::NAN),
            processes: processes.unwrap_or(u32::MAX),
            oom_kills: oom_kills.unwrap_or(u32::MAX),
        }
    }
}

impl From<&Packed> for UsageSample {
    fn from(packed: &Packed) -> Self {
        let Packed { at, cpu_usec, memory_bytes, disk_bytes, cpu_cores, processes, oom_kills } = *packed;
        let wide = |n: u64| (n != u64::MAX).then_some(n);
        let short = |n: u32| (n != u32::MAX).then_some(n);
        Self {
            at,
            cpu_cores: (!cpu_cores.is_nan()).then_some(cpu_cores),
            cpu_usec: wide(cpu_usec),
            memory_bytes: wide(memory_bytes),
            processes: short(processes),
            disk_bytes: wide(disk_bytes),
            oom_kills: short(oom_kills),
        }
    }
}

#[derive(Default)]
pub(super) struct Track {
    /// The last sampling, and the one before.
    pub(super) marks: Marks,
    samples: VecDeque<Packed>,
}

impl Track {
    fn push(&mut self, sample: &UsageSample, mark: Mark) {
        let len = self.samples.len();
        if len >= KEPT {
            self.samples.pop_front();
        } else if len == self.samples.capacity() {
            // Never more capacity than is needed in the end.
            self.samples.reserve_exact(len.clamp(4, KEPT - len));
        }
        self.samples.push_back(sample.into());
        self.marks = [Some(mark), self.marks[0]];
    }
}

/// The history of all sandboxes.
#[derive(Default)]
pub(crate) struct UsageHistory {
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// The sandbox of each container.
    pub(super) owners: HashMap<ContainerId, SandboxId>,
    pub(super) tracks: HashMap<SandboxId, Track>,
    pub(super) totals: UsageTotals,
    /// How often commands of each container had been ended for their sockets at the last sampling.
    socket_kills: HashMap<ContainerId, u64>,
}

fn small(count: Option<u64>) -> Option<u32> {
    count.map(|n| u32::try_from(n).unwrap_or(u32::MAX))
}

/// Cores between two moments of one container, or since it began.
fn cores(before: Option<&Mark>, container: ContainerId, usage: &Usage) -> Option<f32> {
    let before = before.filter(|mark| mark.container == container);
    let time = usage.age_usec.saturating_sub(before.map_or(0, |mark| mark.age_usec));
    let used = usage.cpu_usec?.saturating_sub(before.map_or(Some(0), |mark| mark.cpu_usec)?);
    (time > 0).then(|| (used as f64 / time as f64) as f32)
}

impl UsageSample {
    fn new(at: i64, cpu_cores: Option<f32>, usage: &Usage) -> Self {
        Self {
            at,
            cpu_cores,
            cpu_usec: usage.cpu_usec,
            memory_bytes: usage.memory_bytes,
            processes: small(usage.processes),
            disk_bytes: usage.disk_bytes,
            oom_kills: small(usage.oom_kills),
        }
    }
}

impl State {
    /// Of which sandboxes commands were ended for their sockets since the last sampling, and how often. What was before
    /// the first sampling counts for containers that are younger than this.
    pub(super) fn ended_for_sockets(
        &mut self,
        young_usec: u64,
        all: &[(ContainerId, Usage)],
    ) -> Vec<(SandboxId, u64)> {
        let mut ended = Vec::new();
        let mut counted = HashMap::new();
        for (container, usage) in all {
            let Some(sandbox) = self.owners.get(container) else { continue };
            let now = usage.socket_kills.unwrap_or(0);
            let first = if usage.age_usec < young_usec { 0 } else { now };
            let more = now.saturating_sub(self.socket_kills.get(container).copied().unwrap_or(first));
            counted.insert(*container, now);
            if more > 0 {
                ended.push((*sandbox, more));
            }
        }
        self.socket_kills = counted;
        ended
    }

    /// Takes in one sampling of all containers, and forgets what is older than `oldest`.
    pub(super) fn take(&mut self, at: i64, oldest: i64, all: &[(ContainerId, Usage)]) {
        let mut totals = UsageTotals { cpu_usec: self.totals.cpu_usec, ..UsageTotals::default() };
        for (container, usage) in all {
            let Some(sandbox) = self.owners.get(container) else { continue };
            let track = self.tracks.entry(*sandbox).or_default();
            let before = track.marks[0].filter(|mark| mark.container == *container);
            let known = before.and_then(|mark| mark.cpu_usec).unwrap_or(0);
            totals.cpu_usec += usage.cpu_usec.unwrap_or(0).saturating_sub(known);
            totals.memory_bytes += usage.memory_bytes.unwrap_or(0);
            totals.processes += usage.processes.unwrap_or(0);
            totals.disk_bytes += usage.disk_bytes.unwrap_or(0);
            let Usage { age_usec, cpu_usec, .. } = *usage;
            let mark = Mark { container: *container, age_usec, cpu_usec };
            track.push(&UsageSample::new(at, cores(before.as_ref(), *container, usage), usage), mark);
        }
        self.totals = totals;
        self.tracks.retain(|_, track| {
            while track.samples.front().is_some_and(|sample| sample.at < oldest) {
                track.samples.pop_front();
            }
            !track.samples.is_empty()
        });
    }
}

impl UsageHistory {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a container was last sampled, and the cores that it used until then.
    pub(crate) fn cores(&self, id: SandboxId, container: ContainerId) -> Option<(i64, f32)> {
        let state = self.state();
        let track = state.tracks.get(&id)?;
        track.marks[0].filter(|mark| mark.container == container)?;
        let sample = UsageSample::from(track.samples.back()?);
        Some((sample.at, sample.cpu_cores?))
    }

    pub(super) fn history(
        &self,
        id: SandboxId,
        since: Option<i64>,
        limit: usize,
    ) -> (Marks, Vec<UsageSample>) {
        let state = self.state();
        let Some(track) = state.tracks.get(&id) else { return (Marks::default(), Vec::new()) };
        let from = track.samples.partition_point(|sample| since.is_some_and(|since| sample.at < since));
        let from = from.max(track.samples.len().saturating_sub(limit));
        (track.marks, track.samples.range(from..).map(UsageSample::from).collect())
    }
}

impl UsageNow {
    /// Cores are since the last sample, or the one before when that is too short ago, or since the
    /// container began.
    pub(super) fn new(at: i64, marks: &Marks, container: ContainerId, usage: &Usage) -> Self {
        let far = |mark: &&Mark| usage.age_usec.saturating_sub(mark.age_usec) >= SHORTEST_USEC;
        let own = marks.iter().flatten().filter(|mark| mark.container == container);
        let cores = cores(own.into_iter().find(far), container, usage);
        Self {
            sample: UsageSample::new(at, cores, usage),
            throttled_usec: usage.throttled_usec,
            memory_peak_bytes: usage.memory_peak_bytes,
            memory_limit_bytes: usage.memory_limit_bytes,
            processes_limit: usage.processes_limit,
            disk_limit_bytes: usage.disk_limit_bytes,
            socket_kills: usage.socket_kills,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(seconds: u64, cpu_seconds: u64) -> Usage {
        Usage {
            age_usec: seconds * 1_000_000,
            cpu_usec: Some(cpu_seconds * 1_000_000),
            memory_bytes: Some(100),
            processes: Some(3),
            ..Usage::default()
        }
    }

    fn usage_history(owners: &[(ContainerId, SandboxId)]) -> UsageHistory {
        let usage_history = UsageHistory::default();
        usage_history.state().owners.extend(owners.iter().map(|(container, id)| (*container, *id)));
        usage_history
    }

    #[test]
    fn commands_that_were_ended_for_their_sockets_are_told_once() {
        let (mut state, container, sandbox) = (State::default(), ContainerId::random(), SandboxId::random());
        let sampled = |age, kills| [(container, Usage { socket_kills: Some(kills), ..usage(age, 0) })];
        assert_eq!(state.ended_for_sockets(10_000_000, &sampled(1, 1)), [], "it has no owner yet");
        state.owners.insert(container, sandbox);
        assert_eq!(state.ended_for_sockets(10_000_000, &sampled(2, 1)), [(sandbox, 1)]);
        assert_eq!(state.ended_for_sockets(10_000_000, &sampled(3, 1)), []);
        assert_eq!(state.ended_for_sockets(10_000_000, &sampled(4, 3)), [(sandbox, 2)]);
        // The server before this one has told of it.
        let mut later = State::default();
        later.owners.insert(container, sandbox);
        assert_eq!(later.ended_for_sockets(10_000_000, &sampled(100, 3)), []);
        assert_eq!(later.ended_for_sockets(10_000_000, &sampled(101, 4)), [(sandbox, 1)]);
    }

    #[test]
    fn cores_are_those_between_two_samples_of_one_container() {
        let (sandbox, [first, second]) = (SandboxId::random(), [(); 2].map(|()| ContainerId::random()));
        let usage_history = usage_history(&[(first, sandbox), (second, sandbox)]);
        for (at, container, usage) in [
            (1, first, usage(10, 5)),
            (2, first, usage(20, 25)),
            // Stopped and resumed: both clocks begin again.
            (3, second, usage(4, 1)),
            (4, second, usage(8, 1)),
        ] {
            usage_history.state().take(at, 0, &[(container, usage)]);
        }
        let (marks, history) = usage_history.history(sandbox, None, KEPT);
        let cores: Vec<_> = history.iter().map(|sample| sample.cpu_cores).collect();
        assert_eq!(cores, [0.5, 2.0, 0.25, 0.0].map(Some));
        assert_eq!(usage_history.state().totals.cpu_usec, 26_000_000, "nothing is counted twice");
        let now = UsageNow::new(0, &marks, second, &usage(10, 2));
        assert_eq!(now.sample.cpu_cores, Some(0.5));
        // The last sample is hardly over: the one before counts.
        let close = Usage { age_usec: 8_000_001, ..usage(0, 1) };
        assert_eq!(UsageNow::new(0, &marks, second, &close).sample.cpu_cores.map(f32::round), Some(0.0));
        let uncounted = Usage { cpu_usec: None, ..usage(10, 0) };
        assert_eq!(UsageNow::new(0, &marks, second, &uncounted).sample.cpu_cores, None);
    }

    #[test]
    fn what_is_kept_is_bounded_in_number_and_time() {
        let (sandbox, container) = (SandboxId::random(), ContainerId::random());
        let usage_history = usage_history(&[(container, sandbox)]);
        for at in 0..1000 {
            usage_history.state().take(at, 0, &[(container, usage(at as u64 + 1, 0))]);
        }
        let (_, history) = usage_history.history(sandbox, None, KEPT);
        assert_eq!((history.len(), history[0].at, history[KEPT - 1].at), (KEPT, 640, 999));
        assert_eq!(usage_history.state().tracks[&sandbox].samples.capacity(), KEPT);
        let ats = |since, limit| {
            let (_, history) = usage_history.history(sandbox, since, limit);
            (history.len(), history.first().map(|s| s.at), history.last().map(|s| s.at))
        };
        assert_eq!(ats(Some(990), KEPT), (10, Some(990), Some(999)));
        assert_eq!(ats(Some(990), 3), (3, Some(997), Some(999)));
        assert_eq!((ats(None, 0), ats(Some(5000), 5)), ((0, None, None), (0, None, None)));
        usage_history.state().take(1000, 900, &[]);
        assert_eq!(ats(None, KEPT), (100, Some(900), Some(999)));
        let totals = usage_history.state().totals;
        assert_eq!((totals.memory_bytes, totals.processes), (0, 0));
        usage_history.state().take(5000, 4000, &[]);
        assert!(usage_history.state().tracks.is_empty());
    }

    #[test]
    fn what_is_not_counted_stays_none() {
        let (sandbox, container) = (SandboxId::random(), ContainerId::random());
        let usage_history = usage_history(&[(container, sandbox)]);
        usage_history.state().take(
            7,
            0,
            &[(container, Usage::default()), (ContainerId::random(), usage(1, 1))],
        );
        let nothing = UsageSample::new(7, None, &Usage::default());
        assert_eq!(usage_history.history(sandbox, None, 9).1, [nothing]);
        assert_eq!(usage_history.state().totals, UsageTotals::default(), "it has no sandbox");
    }
}
