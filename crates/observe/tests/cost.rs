//! What an answer costs, and what being watched costs. `--nocapture` shows the figures.

use crate::fixture::{Pool, Sandbox};
use atoll_observe::{Observer, Scanner};
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
fn the_cost_is_what_changed_and_not_what_exists() {
    let mut sandbox = Sandbox::new();
    fill(&sandbox.at(""), 1000);
    sandbox.take();
    let small = one_in(&mut sandbox, 1000);
    fill(&sandbox.at(""), 100_000);
    let (time, taken) = timed(|| sandbox.take());
    eprintln!("{} changed: {time:?}, truncated: {}", taken.entries.len(), taken.truncated);
    let large = one_in(&mut sandbox, 100_000);
    assert!(large < Duration::from_millis(10), "{large:?}");
    assert!(large < small * 20 + Duration::from_millis(1), "{small:?} {large:?}");

    let mut scanner = Scanner::new();
    scanner.watch(&sandbox.tree, "workspace").unwrap();
    let (time, taken) = timed(|| scanner.take(&sandbox.tree, "workspace", &[]).unwrap());
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
fn being_watched_costs_little() {
    let pool = Pool::new();
    let work = |observer: Option<&mut Observer>| {
        let tree = pool.tree_of(64 << 20);
        let (time, ()) = timed(|| fill(&tree.join("workspace"), 10_000));
        observer.map(Observer::drain).transpose().unwrap();
        fs::remove_dir_all(tree.join("workspace")).unwrap();
        time
    };
    let (mut bare, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        bare.push(work(None));
        let mut observer = Observer::new(&pool.root()).unwrap();
        watched.push(work(Some(&mut observer)));
    }
    let (bare, watched) = (median(bare), median(watched));
    let ratio = watched.as_secs_f64() / bare.as_secs_f64();
    eprintln!("10,000 files created: {bare:?} bare, {watched:?} watched, ratio {ratio:.2}");
    assert!(ratio < 3.0, "{ratio}");
}

#[test]
fn many_mappings_are_looked_through_quickly() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed(); 50];
    sandbox.write("0", "x");
    let (time, taken) = timed(|| sandbox.take());
    eprintln!("50 processes without a shared mapping: {time:?}");
    assert!(!taken.truncated && time < Duration::from_secs(1));
}
