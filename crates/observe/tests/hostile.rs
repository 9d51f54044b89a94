//! What a sandbox can do to hide a change, to grow us, or to hold us up.

use crate::fixture::{NOTHING, Sandbox, lines};
use atoll_observe::Limits;
use atoll_types::Rate;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use std::{
    fs,
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

#[test]
fn too_many_files_are_cut_off_and_forgotten() {
    let limits = Limits { tree_bytes: 64 << 10, ..Limits::default() };
    let mut sandbox = Sandbox::with_limits(limits);
    sandbox.write("early", "x");
    sandbox.changes();
    fs::remove_file(sandbox.at("early")).unwrap();
    for n in 0..2000 {
        sandbox.write(&format!("f{n}"), "x");
    }
    let taken = sandbox.take();
    assert!(taken.truncated);
    assert!(taken.entries.len() > 100 && taken.entries.len() < 1000, "{}", taken.entries.len());
    assert!(lines(&taken).iter().all(|line| line.starts_with("+f")), "what is told is true");
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn an_answer_has_an_end() {
    let mut sandbox = Sandbox::with_limits(Limits { entries: 10, ..Limits::default() });
    fs::create_dir(sandbox.at("a")).unwrap();
    for n in 0..20 {
        sandbox.write(&format!("a/{n}"), "x");
    }
    let taken = sandbox.take();
    assert_eq!((taken.entries.len(), taken.truncated), (10, true));
    fs::rename(sandbox.at("a"), sandbox.at("b")).unwrap();
    assert!(sandbox.take().truncated);
}

#[test]
fn the_largest_pays_for_all() {
    let limits = Limits { all_bytes: 256 << 10, ..Limits::default() };
    let mut sandbox = Sandbox::with_limits(limits);
    let quiet = sandbox.pool.tree();
    sandbox.observer.watch(&quiet).unwrap();
    fs::write(quiet.join("workspace/f"), "x").unwrap();
    for n in 0..3000 {
        sandbox.write(&format!("f{n}"), "x");
    }
    sandbox.observer.drain().unwrap();
    fs::write(quiet.join("workspace/g"), "x").unwrap();
    let taken = sandbox.observer.take(&quiet, "workspace", &[]).unwrap();
    assert_eq!((lines(&taken), taken.truncated), (vec!["+f 1".into(), "+g 1".into()], false));
    assert!(sandbox.take().truncated);
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn a_tree_deeper_than_any_path() {
    let mut sandbox = Sandbox::new();
    let name = "d".repeat(200);
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = openat(CWD, sandbox.at(""), flags, Mode::empty()).unwrap();
    for depth in 0..60 {
        let file = openat(&dir, "f", OFlags::CREATE | OFlags::WRONLY, Mode::from(0o644));
        assert!(file.is_ok(), "{depth}");
        mkdirat(&dir, &name, Mode::from(0o755)).unwrap();
        dir = openat(&dir, &name, flags, Mode::empty()).unwrap();
    }
    let taken = sandbox.take();
    // Those that have a path are there, and it says that there are others.
    assert!(taken.truncated && taken.entries.len() >= 18, "{}", taken.entries.len());
    drop(dir);
    fs::rename(sandbox.at(&name), sandbox.at("moved")).unwrap();
    assert!(sandbox.take().truncated);
    sandbox.write("f", "still there");
    assert_eq!(sandbox.changes(), ["~f 11"]);
}

#[test]
fn a_storm_of_renames() {
    let mut sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.at("a/x")).unwrap();
    sandbox.write("a/x/f", "x");
    sandbox.changes();
    for n in 0..10_000 {
        let (from, to) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
        fs::rename(sandbox.at(from), sandbox.at(to)).unwrap();
    }
    assert_eq!(sandbox.changes(), NOTHING);
    fs::rename(sandbox.at("a"), sandbox.at("n0")).unwrap();
    for n in 0..2000 {
        fs::rename(sandbox.at(&format!("n{n}")), sandbox.at(&format!("n{}", n + 1))).unwrap();
    }
    assert_eq!(sandbox.changes(), ["-a/x/f", "+n2000/x/f 1"]);
}

/// One tree's flood ends at its share of events, and is told as cut off; its neighbour's answer is exact.
#[test]
fn a_flood_is_dropped_after_its_share() {
    let limits = Limits { tree_events: 1000, ..Limits::default() };
    let mut sandbox = Sandbox::with_limits(limits);
    sandbox.write("f", "x");
    assert_eq!(sandbox.changes(), ["+f 1"]);
    for n in 0..3000 {
        // Read now and then, or the kernel would join what is alike.
        let (from, to) = if n % 2 == 0 { ("f", "g") } else { ("g", "f") };
        fs::rename(sandbox.at(from), sandbox.at(to)).unwrap();
        sandbox.observer.drain().unwrap();
    }
    assert!(sandbox.take().truncated);
    sandbox.write("f", "xy");
    assert_eq!(sandbox.changes(), ["~f 2"], "the next window is whole again");
}

/// A tree that floods has its share of events in a time, also when it is asked for again and again; its neighbour's
/// answers are exact.
#[test]
fn a_flood_that_is_asked_for_often_has_no_more_than_its_share() {
    // It is full again after hours.
    let tree_rate = Rate { per_second: 0.1, burst: 1000.0 };
    let mut sandbox = Sandbox::with_limits(Limits { tree_rate, ..Limits::default() });
    let quiet = sandbox.pool.tree();
    sandbox.observer.watch(&quiet).unwrap();
    let mut cut = 0;
    for turn in 0..30 {
        for n in 0..100 {
            // Read now and then, or the kernel would join what is alike.
            sandbox.write(&format!("{turn}-{n}"), "x");
            sandbox.observer.drain().unwrap();
        }
        fs::write(quiet.join("workspace/f"), "x".repeat(turn + 1)).unwrap();
        let taken = sandbox.observer.take(&quiet, "workspace", &[]).unwrap();
        let sign = if turn == 0 { '+' } else { '~' };
        assert_eq!((lines(&taken), taken.truncated), (vec![format!("{sign}f {}", turn + 1)], false));
        cut += usize::from(sandbox.take().truncated);
    }
    assert!((10..30).contains(&cut), "{cut} of 30 answers were cut off");
}

#[test]
fn nested_folders_that_all_move_are_walked_once() {
    let mut sandbox = Sandbox::new();
    let mut path = String::from("d");
    for _ in 0..100 {
        fs::create_dir(sandbox.at(&path)).unwrap();
        for n in 0..10 {
            sandbox.write(&format!("{path}/{n}"), "x");
        }
        path.push_str("/d");
    }
    sandbox.changes();
    // From the inside out, so that each move takes all below with it.
    let mut path = path.strip_suffix("/d").unwrap().to_owned();
    while let Some(parent) = path.strip_suffix("/d").map(str::to_owned) {
        fs::rename(sandbox.at(&path), sandbox.at(&format!("{parent}/e"))).unwrap();
        path = parent;
    }
    let start = Instant::now();
    let taken = sandbox.take();
    assert_eq!((taken.entries.len(), taken.truncated), (99 * 20, false));
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn nobody_can_keep_us_reading() {
    let mut sandbox = Sandbox::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (stop, folder) = (&stop, sandbox.at(""));
            scope.spawn(move || {
                for n in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let file = folder.join(format!("{thread}-{}", n % 50));
                    fs::write(&file, "x").unwrap();
                    let _ = fs::remove_file(&file);
                }
            });
        }
        let _guard = Guard(&stop);
        for _ in 0..20 {
            let start = Instant::now();
            let taken = sandbox.take();
            assert!(taken.entries.len() <= 100);
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        }
    });
    // Every file that was told as created is told as deleted or is there, and the end is quiet.
    sandbox.take();
    assert_eq!(sandbox.changes(), NOTHING);
}

/// Stops the others, also when the test fails.
struct Guard<'a>(&'a AtomicBool);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn answers_that_overlap_with_work_add_up() {
    let mut sandbox = Sandbox::new();
    let stop = AtomicBool::new(false);
    let mut known = std::collections::BTreeSet::new();
    let fold = |known: &mut std::collections::BTreeSet<std::path::PathBuf>, taken: atoll_observe::Changes| {
        assert!(!taken.truncated);
        for change in taken.entries {
            match change.action {
                atoll_observe::Action::Created => assert!(known.insert(change.path.clone()), "{change:?}"),
                atoll_observe::Action::Modified => assert!(known.contains(&change.path), "{change:?}"),
                atoll_observe::Action::Deleted => assert!(known.remove(&change.path), "{change:?}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let (stop, folder) = (&stop, sandbox.at(""));
        scope.spawn(move || {
            for n in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let at = |n: u64| folder.join((n % 7).to_string());
                match n % 5 {
                    0 => fs::write(at(n), "x").unwrap(),
                    1 => _ = fs::rename(at(n * 5 + 2), at(n)),
                    2 => _ = fs::remove_file(at(n * 3)),
                    3 => _ = fs::hard_link(at(n + 3), at(n * 2)),
                    _ => {
                        let file = fs::File::options().append(true).open(at(n));
                        let _ = file.map(|mut file| file.write_all(b"x"));
                    }
                }
            }
        });
        let _guard = Guard(stop);
        for _ in 0..1000 {
            let taken = sandbox.take();
            fold(&mut known, taken);
        }
    });
    let taken = sandbox.take();
    fold(&mut known, taken);
    let there = fs::read_dir(sandbox.at("")).unwrap().map(|entry| entry.unwrap().file_name().into());
    assert_eq!(there.collect::<std::collections::BTreeSet<std::path::PathBuf>>(), known);
}

#[test]
fn files_with_many_names_are_not_looked_up_for_ever() {
    let mut sandbox = Sandbox::new();
    for file in 0..60 {
        fs::create_dir(sandbox.at(&format!("{file}"))).unwrap();
        sandbox.write(&format!("{file}/f"), "x");
        for link in 0..100 {
            fs::hard_link(sandbox.at(&format!("{file}/f")), sandbox.at(&format!("{file}/{link}"))).unwrap();
        }
    }
    assert_eq!(sandbox.changes().len(), 60 * 101);
    for file in 0..60 {
        sandbox.write(&format!("{file}/f"), "xy");
    }
    let start = Instant::now();
    assert_eq!(sandbox.changes().len(), 60 * 101);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn links_and_renames_in_doubt_cost_no_square() {
    let mut sandbox = Sandbox::new();
    for n in 0..3000 {
        sandbox.write(&format!("{n}"), "x");
    }
    sandbox.take();
    for n in 0..3000 {
        fs::hard_link(sandbox.at(&format!("{n}")), sandbox.at(&format!("{n}.bak"))).unwrap();
        sandbox.write("tmp", "xy");
        fs::rename(sandbox.at("tmp"), sandbox.at(&format!("{n}"))).unwrap();
    }
    let (start, changes) = (Instant::now(), sandbox.changes());
    assert_eq!(changes.iter().filter(|line| line.starts_with('~')).count(), 3000);
    assert_eq!(changes.iter().filter(|line| line.starts_with('+')).count(), 3000);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_folder_that_moves_elsewhere_is_not_walked() {
    let mut sandbox = Sandbox::new();
    let home = sandbox.tree.join("home");
    fs::create_dir(home.join("a")).unwrap();
    for n in 0..20_000 {
        fs::write(home.join("a").join(n.to_string()), "x").unwrap();
    }
    sandbox.changes();
    fs::rename(home.join("a"), home.join("b")).unwrap();
    let start = Instant::now();
    assert_eq!(sandbox.changes(), NOTHING);
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn a_folder_that_moves_is_walked_so_far() {
    let mut sandbox = Sandbox::new();
    for n in 0..100_001 {
        fs::create_dir_all(sandbox.at(&format!("a/{}/{n}", n % 10))).unwrap();
    }
    sandbox.take();
    fs::rename(sandbox.at("a"), sandbox.at("b")).unwrap();
    assert!(sandbox.take().truncated);
    sandbox.write("f", "x");
    assert_eq!(sandbox.changes(), ["+f 1"]);
}

/// A flood of renames that is read all at once: what was made before it is told, the rest is cut off, and a change of a
/// neighbour that waits behind it is told exactly.
#[test]
fn a_flood_of_renames_hides_no_change_of_a_neighbour() {
    let tree_rate = Rate { per_second: 0.1, burst: 1000.0 };
    let mut sandbox = Sandbox::with_limits(Limits { tree_rate, ..Limits::default() });
    let quiet = sandbox.pool.tree();
    sandbox.observer.watch(&quiet).unwrap();
    sandbox.write("first", "x");
    sandbox.write("n0", "x");
    for n in 0..20_000 {
        fs::rename(sandbox.at(&format!("n{n}")), sandbox.at(&format!("n{}", n + 1))).unwrap();
    }
    fs::write(quiet.join("workspace/f"), "x").unwrap();
    let taken = sandbox.observer.take(&quiet, "workspace", &[]).unwrap();
    assert_eq!((lines(&taken), taken.truncated), (vec!["+f 1".to_owned()], false));
    let flood = sandbox.take();
    assert!(flood.truncated && flood.entries.len() <= 1000, "{} entries", flood.entries.len());
    assert!(lines(&flood).contains(&"+first 1".to_owned()));
}
