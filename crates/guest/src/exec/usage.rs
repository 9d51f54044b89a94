//! What commands that still run have used so far, from one scan of /proc for all of the requested ones. The usage
//! of every process that a shim has waited for is in the shim's own entry there; the rest is below it.

use super::{record::Exec, wire::Usage};
use atoll_guest_proto::v1::ExecInfo;
use std::{collections::HashMap, fs, io::Read, sync::Arc};

/// Processes that one scan reads; further ones are not counted yet.
const MOST: usize = 4096;
/// The scan yields to other tasks after so many.
const TURN: usize = 128;
/// Microseconds of the kernel's unit towards programs, which is the same whatever its own clock.
const TICK_US: u64 = 10_000;

/// One process of the snapshot.
struct Process {
    pid: i32,
    parent: i32,
    /// Of itself, and of the children that it has waited for.
    own: Usage,
    waited: Usage,
}

/// The state of these commands for the host, with what they have used until now.
pub(crate) async fn infos(execs: &[Arc<Exec>]) -> Vec<ExecInfo> {
    let mut infos: Vec<ExecInfo> = execs.iter().map(|exec| exec.info()).collect();
    let shims: HashMap<i32, usize> =
        execs.iter().enumerate().filter_map(|(index, exec)| Some((exec.living_shim()?, index))).collect();
    if shims.is_empty() {
        return infos;
    }
    let mut live: HashMap<usize, Usage> = HashMap::new();
    let processes = look().await;
    let parents: HashMap<i32, i32> = processes.iter().map(|p| (p.pid, p.parent)).collect();
    for (number, process) in processes.into_iter().enumerate() {
        turn(number).await;
        let Some((shim, &index)) = above(process.pid, &parents, &shims) else { continue };
        let usage = live.entry(index).or_default();
        usage.add(process.waited);
        if process.pid != shim {
            let max_rss_kb = peak(process.pid).unwrap_or(0);
            usage.add(Usage { max_rss_kb, ..process.own });
        }
    }
    for (index, usage) in live {
        let usage = usage.or_more(execs[index].status().usage);
        let info = &mut infos[index];
        (info.cpu_user_us, info.cpu_system_us) = (usage.user_us, usage.system_us);
        info.max_rss_bytes = usage.max_rss_kb.saturating_mul(1024);
    }
    infos
}

async fn turn(number: usize) {
    if number % TURN == TURN - 1 {
        tokio::task::yield_now().await;
    }
}

/// The shim that a process is or is below.
fn above<'a>(
    pid: i32,
    parents: &HashMap<i32, i32>,
    shims: &'a HashMap<i32, usize>,
) -> Option<(i32, &'a usize)> {
    let mut at = pid;
    // A snapshot taken while processes change may hold a cycle, hence the bound.
    for _ in 0..=parents.len() {
        if let Some(index) = shims.get(&at) {
            return Some((at, index));
        }
        at = *parents.get(&at)?;
    }
    None
}

async fn look() -> Vec<Process> {
    let mut all = Vec::new();
    let Ok(directory) = fs::read_dir("/proc") else { return all };
    let pids = directory.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for (number, pid) in pids.take(MOST).enumerate() {
        turn(number).await;
        all.extend(read("stat", pid).and_then(|text| parse_stat(pid, &text)));
    }
    all
}

fn read(name: &str, pid: i32) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(1024);
    fs::File::open(format!("/proc/{pid}/{name}")).ok()?.take(4096).read_to_end(&mut text).ok()?;
    Some(text)
}

/// `pid (name) S parent …`, where the name may hold anything, brackets included.
fn parse_stat(pid: i32, text: &[u8]) -> Option<Process> {
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(end + 2..)?).ok()?;
    let words: Vec<&str> = rest.split(' ').collect();
    let micros = |at: usize| Some(words.get(at)?.parse::<u64>().ok()?.saturating_mul(TICK_US));
    let times = |at| Some(Usage { user_us: micros(at)?, system_us: micros(at + 1)?, max_rss_kb: 0 });
    Some(Process { pid, parent: words.get(1)?.parse().ok()?, own: times(11)?, waited: times(13)? })
}

/// The most memory that a process had, in kilobytes.
fn peak(pid: i32) -> Option<u64> {
    let text = read("status", pid)?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines_with_hostile_names_are_read() {
        let line = b"7 (a) R 9 (b) S 41 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 100 1000 50";
        let Process { parent, own, waited, .. } = parse_stat(7, line).unwrap();
        assert_eq!((parent, own.user_us, own.system_us), (41, 50_000, 60_000));
        assert_eq!((waited.user_us, waited.system_us), (70_000, 80_000));
        for bad in [&b""[..], b"7 (sh", b"7 (sh)", b"7 (sh) S 1 2", b"7 (sh) S x 7 7 0 -1 0 1 2 3 4 5 6 7 8"]
        {
            assert!(parse_stat(7, bad).is_none());
        }
    }

    #[test]
    fn only_what_is_below_counts() {
        let parents = HashMap::from([(5, 1), (6, 5), (7, 1), (8, 7), (20, 21), (21, 20)]);
        let shims = HashMap::from([(5, 0)]);
        let found: Vec<i32> =
            [5, 6, 7, 8, 20, 99].into_iter().filter(|pid| above(*pid, &parents, &shims).is_some()).collect();
        assert_eq!(found, [5, 6]);
    }
}
