//! The killer: at moments that chance chooses it ends the server, its launcher, or all of them, and
//! starts the server again.

use super::{link::Link, random::Random};
use crate::{
    engine::fixture::{eventually, launchers_of},
    server::fixture::Server,
};
use atoll_launch_proto::Layout;
use std::{fs, process::Command, sync::atomic::Ordering, thread, time::Duration};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Launcher,
    /// Monitor and launcher, and the server before them: it is the one who starts them again.
    All,
}

fn victim(random: &mut Random) -> Victim {
    match random.below(10) {
        0..7 => Victim::Server,
        7..9 => Victim::Launcher,
        _ => Victim::All,
    }
}

fn kill(pids: &[i32]) {
    for pid in pids {
        // It may have ended meanwhile.
        let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
    }
}

/// The launcher, and whatever else the monitor has to see to: what a dead launcher left at work.
fn below_the_monitor(layout: &Layout) -> Vec<i32> {
    let all = launchers_of(layout);
    let Some(monitor) = all.first() else { return Vec::new() };
    let parent = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<i32>().ok())
    };
    all.iter().copied().filter(|pid| parent(pid) == Some(*monitor)).collect()
}

/// The moments, as how many operations were begun by then.
fn moments(random: &mut Random, kills: usize, operations: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..kills).map(|_| random.below(operations)).collect();
    all.sort_unstable();
    all
}

/// Kills so often while operations are begun; returns who it was.
pub(super) fn run(
    server: &mut Server,
    link: &Link,
    mut random: Random,
    kills: usize,
    operations: usize,
) -> String {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let mut told = Vec::new();
    for moment in moments(&mut random, kills, operations) {
        eventually("the next operation", || {
            // Clients may wait for a slow machine for longer than anybody should.
            link.begun() >= moment
        });
        thread::sleep(Duration::from_millis(random.below(60) as u64));
        let victim = victim(&mut random);
        told.push(format!("{victim:?}@{moment}"));
        match victim {
            Victim::Server => again(server, link, |_| ()),
            Victim::Launcher => {
                link.launcher_killed.store(true, Ordering::SeqCst);
                kill(&below_the_monitor(&layout));
            }
            Victim::All => {
                link.launcher_killed.store(true, Ordering::SeqCst);
                again(server, link, |_| kill(&launchers_of(&layout)));
            }
        }
    }
    told.join(" ")
}

fn again(server: &mut Server, link: &Link, between: impl FnOnce(&Server)) {
    // A client that connects now waits for the next server; one that is being served is cut off.
    link.moved(None);
    server.kill();
    between(server);
    server.restart();
    link.moved(Some(server.address));
}
