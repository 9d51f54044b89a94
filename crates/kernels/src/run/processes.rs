//! Which processes a kernel has, by one walk over /proc, and killing them. A process belongs to the kernel whose
//! interpreter is among its ancestors. Where those are gone the kernel manager adopts it, and it belongs to the
//! kernel whose process group it is in; where it has left that too, to the one that its environment names.
//!
//! One that does all three (it leaves its parents, its group, and hides or changes its environment) is not
//! found, and lives as long as the sandbox.
//!
//! A kernel's end, restart, rollback or death ends all of its processes, except its checkpoints. A copy of an
//! interpreter is forked twice, so that it is a child of the kernel manager and no cell waits for it.

use atoll_types::KernelId;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{HashMap, HashSet},
    fs,
    io::Read,
    time::Duration,
};

/// The variable that names a kernel to everything that it starts.
pub(super) const MARKER: &str = "ATOLL_KERNEL";

/// Processes that live after so many rounds of SIGKILL are forking, and are stopped first.
const PLAIN_ROUNDS: u32 = 3;
const STOP_ROUNDS: usize = 8;
/// When killing is given up.
const KILL_ROUNDS: u32 = 1000;
const LONGEST_ROUND: Duration = Duration::from_millis(5);
/// Of an environment, as much as is read.
const ENVIRONMENT: u64 = 256 << 10;

/// A process, distinguished from a later one with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: i32,
    start: u64,
}

impl Process {
    /// The process that has this pid now.
    pub(super) fn find(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid).filter(Stat::lives)?;
        Some(Self { pid, start: stat.start })
    }

    pub(super) fn lives(&self) -> bool {
        Self::find(self.pid) == Some(*self)
    }

    /// Sends a signal, if it still lives.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        self.lives() && send(self.pid, signal)
    }
}

/// Sends a signal to one process; 0, 1 and negative numbers are refused.
pub(super) fn send(pid: i32, signal: Signal) -> bool {
    pid > 1 && Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Sends a signal to a process group.
pub(super) fn send_group(group: i32, signal: Signal) -> bool {
    group > 1
        && Pid::from_raw(group).is_some_and(|pid| rustix::process::kill_process_group(pid, signal).is_ok())
}

/// What is known of a process from its `stat`.
#[derive(Debug, Clone, Copy)]
struct Stat {
    state: u8,
    parent: i32,
    group: i32,
    start: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&read(pid, "stat", 4096)?)
    }

    /// `pid (name) S parent group …`, where the name may hold anything, brackets included.
    fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|b| *b == b')')?;
        let rest = std::str::from_utf8(text.get(end + 2..)?).ok()?;
        let words: Vec<&str> = rest.split(' ').collect();
        Some(Self {
            state: *words.first()?.as_bytes().first()?,
            parent: words.get(1)?.parse().ok()?,
            group: words.get(2)?.parse().ok()?,
            start: words.get(19)?.parse().ok()?,
        })
    }

    fn lives(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

fn read(pid: i32, name: &str, most: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(format!("/proc/{pid}/{name}")).ok()?.take(most).read_to_end(&mut text).ok()?;
    Some(text)
}

/// The kernel manager's own number.
pub(super) fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether a process is a child of this one and lives.
pub(super) fn is_child(pid: i32) -> bool {
    Stat::read(pid).is_some_and(|stat| stat.parent == own_pid() && stat.lives())
}

/// Which kernel owns which known pid.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Whether the kernel manager adopts orphans of its interpreters. Where it does not, as in an old gVisor,
    /// they may be below any process.
    pub(super) adopts: bool,
    /// Interpreters, live or waiting.
    pub(super) owners: HashMap<i32, KernelId>,
    /// Processes of this kernel that are to be spared.
    pub(super) spared: HashSet<i32>,
}

/// Kills every process of a kernel, except the spared ones, and waits until they are gone. False where some do
/// not end.
pub(super) async fn kill_all(kernel: KernelId, known: &Known) -> bool {
    for round in 1..=KILL_ROUNDS {
        if round > PLAIN_ROUNDS {
            stop_all(kernel, known);
        }
        let all = belonging(kernel, known);
        if all.is_empty() {
            return true;
        }
        for (pid, _) in all {
            send(pid, Signal::KILL);
        }
        tokio::time::sleep(LONGEST_ROUND.min(Duration::from_micros(300) * round)).await;
    }
    false
}

/// Keeps a fork bomb from growing while it is being killed.
fn stop_all(kernel: KernelId, known: &Known) {
    for _ in 0..STOP_ROUNDS {
        let running = belonging(kernel, known).into_iter().filter(|(_, state)| !b"Tt".contains(state));
        if running.map(|(pid, _)| usize::from(send(pid, Signal::STOP))).sum::<usize>() == 0 {
            return;
        }
    }
}

/// The living processes of a kernel, and the state of each.
fn belonging(kernel: KernelId, known: &Known) -> Vec<(i32, u8)> {
    let Ok(directory) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let all: HashMap<i32, Stat> = pids.filter_map(|pid| Some((pid, Stat::read(pid)?))).collect();
    let me = own_pid();
    let ours = all.iter().filter(|(pid, stat)| {
        stat.lives()
            && **pid != me
            && !known.spared.contains(pid)
            && owner(**pid, me, &all, known, marker) == Some(kernel)
    });
    ours.map(|(pid, stat)| (*pid, stat.state)).collect()
}

fn owner(
    pid: i32,
    me: i32,
    all: &HashMap<i32, Stat>,
    known: &Known,
    marker: impl Fn(i32) -> Option<KernelId>,
) -> Option<KernelId> {
    let (mut at, mut below) = (pid, !known.adopts);
    // A snapshot taken while processes change may hold a cycle, hence the bound.
    for _ in 0..=all.len() {
        if let Some(kernel) = known.owners.get(&at) {
            return Some(*kernel);
        }
        match all.get(&at) {
            Some(stat) => at = stat.parent,
            None => break,
        }
        if at == me {
            below = true;
            break;
        }
    }
    let group = all.get(&pid).filter(|_| below)?.group;
    known.owners.get(&group).copied().or_else(|| marker(pid))
}

/// The kernel that a process's environment names.
fn marker(pid: i32) -> Option<KernelId> {
    let environment = read(pid, "environ", ENVIRONMENT)?;
    let mut variables = environment.split(|b| *b == 0);
    let value = variables.find_map(|v| v.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(parent: i32, group: i32) -> Stat {
        Stat { state: b'S', parent, group, start: 0 }
    }

    #[test]
    fn stat_lines_with_hostile_names_are_read() {
        let rest = "41 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 1000 50";
        let line = format!("7 (a) R 9 (b) S {rest}");
        let read = Stat::parse(line.as_bytes()).unwrap();
        assert_eq!((read.state, read.parent, read.group, read.start), (b'S', 41, 7, 12345));
        for bad in ["", "7 (sh", "7 (sh)", "7 (sh) S 1 2"] {
            assert!(Stat::parse(bad.as_bytes()).is_none());
        }
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(Process::find(me).unwrap().lives() && !is_child(me) && Process::find(-1).is_none());
    }

    #[test]
    fn parents_come_before_groups_and_groups_before_names() {
        let [a, b, c] = [KernelId::random(), KernelId::random(), KernelId::random()];
        let owners = HashMap::from([(10, a), (20, b)]);
        let known = |adopts| Known { adopts, owners: owners.clone(), spared: HashSet::new() };
        // 21 is b's child in a's group; 30 is an orphan in b's group; 40 only has c's marker, and so has 41,
        // which is not below the kernel manager; 50 and 51 are a cycle.
        let all = HashMap::from([
            (3, stat(1, 3)),
            (10, stat(3, 10)),
            (20, stat(3, 20)),
            (21, stat(20, 10)),
            (30, stat(3, 20)),
            (40, stat(3, 40)),
            (41, stat(1, 41)),
            (50, stat(51, 50)),
            (51, stat(50, 50)),
        ]);
        let says = |pid| matches!(pid, 40 | 41).then_some(c);
        let of = |pid| owner(pid, 3, &all, &known(true), says);
        assert_eq!((of(10), of(21), of(30), of(40)), (Some(a), Some(b), Some(b), Some(c)));
        assert_eq!((of(41), of(50), of(1), of(99)), (None, None, None, None));
        assert_eq!(owner(41, 3, &all, &known(false), says), Some(c));
    }
}
