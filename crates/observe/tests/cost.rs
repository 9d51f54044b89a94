//! Answers about large trees. `--nocapture` shows what each cost; nothing here asserts on time.

use crate::fixture::{Sandbox, scanned};
use atoll_observe::Scanner;
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

fn fill(folder: &Path, files: usize) {
    for n in 0..files {
        if n % 1000 == 0 {
            fs::create_dir_all(folder.join((n / 1000).to_string())).unwrap();
        }
        fs::write(folder.join(format!("{}/{n}", n / 1000)), "x").unwrap();
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed(), done)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The median cost of an answer about one file in a tree of so many.
fn one_in(sandbox: &mut Sandbox, files: usize) -> Duration {
    let mut times = Vec::new();
    for turn in 0..21 {
        fs::write(sandbox.at("0/7"), format!("{turn}")).unwrap();
        let (time, taken) = timed(|| sandbox.take());
        assert_eq!((taken.entries.len(), taken.truncated), (1, false));
        times.push(time);
    }
    let (median, most) = (median(times.clone()), times.iter().max().copied());
    eprintln!("1 changed of {files}: median {median:?}, most {:?}", most.unwrap_or_default());
    median
}

#[test]
fn large_trees_are_answered_in_full() {
    let mut sandbox = Sandbox::new();
    fill(&sandbox.at(""), 1000);
    sandbox.take();
    let small = one_in(&mut sandbox, 1000);
    fill(&sandbox.at(""), 100_000);
    let (time, taken) = timed(|| sandbox.take());
    eprintln!("{} changed: {time:?}, truncated: {}", taken.entries.len(), taken.truncated);
    let large = one_in(&mut sandbox, 100_000);
    eprintln!("beside each other: {small:?} and {large:?}");

    let mut scanner = Scanner::new("workspace", 10_000);
    scanned(&mut scanner, &sandbox.tree);
    let (time, taken) = timed(|| scanned(&mut scanner, &sandbox.tree));
    eprintln!("a scan of 100,000: {time:?}");
    assert!(taken.entries.is_empty() && !taken.truncated);

    for n in 0..10_000 {
        fs::write(sandbox.at(&format!("{}/{n}", n / 1000)), "changed").unwrap();
    }
    let (drain, ()) = timed(|| sandbox.observer.drain().unwrap());
    let (time, taken) = timed(|| sandbox.take());
    eprintln!("10,000 changed of 100,000: drained in {drain:?}, answered in {time:?}");
    assert_eq!((taken.entries.len(), taken.truncated), (10_000, false));

    fs::rename(sandbox.at("3"), sandbox.at("moved")).unwrap();
    let (time, taken) = timed(|| sandbox.take());
    eprintln!("a folder of 1,000 renamed: {time:?}");
    assert_eq!(taken.entries.len(), 2000);
}

#[test]
fn many_mappings_are_looked_through() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed(); 50];
    sandbox.write("0", "x");
    let (time, taken) = timed(|| sandbox.take());
    eprintln!("50 processes without a shared mapping: {time:?}");
    assert!(!taken.truncated && taken.entries.len() == 1);
}
