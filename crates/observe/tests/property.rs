//! Random work against the model: by one thread, and by several at once.

use crate::{
    fixture::{Pool, scanned},
    model::{check, scan},
    raw::Mapping,
};
use atoll_observe::{Observer, Scanner};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

#[derive(Debug, Clone)]
enum Op {
    Write(usize),
    Append(usize),
    Truncate(usize),
    Chmod(usize, u32),
    SetTimes(usize),
    OpenOnly(usize),
    Map(usize),
    Remove(usize),
    Rename(usize, usize),
    Exchange(usize, usize),
    Link(usize, usize),
    Symlink(usize),
    MakeDir(usize),
    RemoveDir(usize),
    RemoveAll(usize),
    Clone(usize, usize),
    /// Opens a file and keeps it open, or writes to the one that is and closes it.
    Hold(usize),
    Release,
}

const PLACES: [&str; 14] =
    ["a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f", "f/a", "f/e", "f/e/a", "f/e/g"];

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..PLACES.len();
    prop_oneof![
        4 => at().prop_map(Op::Write),
        1 => at().prop_map(Op::Append),
        1 => at().prop_map(Op::Truncate),
        1 => (at(), 0..4_u32).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        1 => at().prop_map(Op::SetTimes),
        1 => at().prop_map(Op::OpenOnly),
        1 => at().prop_map(Op::Map),
        2 => at().prop_map(Op::Remove),
        5 => (at(), at()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (at(), at()).prop_map(|(from, to)| Op::Exchange(from, to)),
        1 => (at(), at()).prop_map(|(from, to)| Op::Link(from, to)),
        1 => at().prop_map(Op::Symlink),
        4 => at().prop_map(Op::MakeDir),
        1 => at().prop_map(Op::RemoveDir),
        1 => at().prop_map(Op::RemoveAll),
        1 => (at(), at()).prop_map(|(from, to)| Op::Clone(from, to)),
        1 => at().prop_map(Op::Hold),
        1 => Just(Op::Release),
    ]
}

/// Does what can be done; what cannot changes nothing.
fn perform(top: &Path, op: &Op, held: &mut Option<File>) -> std::io::Result<()> {
    let at = |place: usize| top.join(PLACES[place]);
    let open = |place| OpenOptions::new().read(true).write(true).custom_flags_nofollow(at(place));
    match *op {
        Op::Write(place) if !at(place).is_symlink() => fs::write(at(place), format!("{place}")),
        Op::Append(place) => open(place)?.write_all(b"more"),
        Op::Truncate(place) => open(place)?.set_len(1),
        // A folder whose mode one thread changes before it renames another over it: truncated.
        Op::Chmod(place, mode) if at(place).is_file() && !at(place).is_symlink() => {
            fs::set_permissions(at(place), fs::Permissions::from_mode(0o700 + mode))
        }
        Op::SetTimes(place) => open(place)?.set_modified(std::time::UNIX_EPOCH),
        Op::OpenOnly(place) => open(place).map(drop),
        Op::Map(place) => {
            let file = open(place)?;
            if file.metadata()?.len() > 0 {
                Mapping::new(&file, 1).store(0, b'm');
            }
            Ok(())
        }
        Op::Remove(place) => fs::remove_file(at(place)),
        Op::Rename(from, to) => fs::rename(at(from), at(to)),
        Op::Exchange(from, to) => Ok(renameat_with(CWD, at(from), CWD, at(to), RenameFlags::EXCHANGE)?),
        Op::Link(from, to) => fs::hard_link(at(from), at(to)),
        Op::Symlink(place) => std::os::unix::fs::symlink("nowhere", at(place)),
        Op::MakeDir(place) => fs::create_dir(at(place)),
        Op::RemoveDir(place) => fs::remove_dir(at(place)),
        Op::RemoveAll(place) if at(place).is_dir() => fs::remove_dir_all(at(place)),
        Op::Clone(from, to) => {
            let (from, to) = (open(from)?, open(to)?);
            to.set_len(0)?;
            Ok(rustix::fs::ioctl_ficlone(to, from)?)
        }
        Op::Hold(place) => open(place).map(|file| *held = Some(file)),
        Op::Release => held.take().map_or(Ok(()), |mut file| file.write_all(b"held")),
        _ => Ok(()),
    }
}

trait NoFollow {
    fn custom_flags_nofollow(&self, path: PathBuf) -> std::io::Result<File>;
}

impl NoFollow for OpenOptions {
    fn custom_flags_nofollow(&self, path: PathBuf) -> std::io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt;
        self.clone().custom_flags(libc::O_NOFOLLOW).open(path)
    }
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() })
}

fn cases() -> u32 {
    std::env::var("OBSERVE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

#[test]
fn one_thread_at_a_time() {
    let pool = Pool::new();
    let windows = prop::collection::vec(prop::collection::vec(op(), 1..25), 1..6);
    let result = runner(cases()).run(&windows, |windows| {
        let tree = pool.tree_of(8 << 20);
        let top = tree.join("workspace");
        let mut observer = Observer::new(&pool.root()).unwrap();
        observer.watch(&tree).unwrap();
        let mut scanner = Scanner::new("workspace", usize::MAX);
        scanned(&mut scanner, &tree);
        let (mut before, mut held) = (scan(&top), None);
        for window in windows {
            for op in &window {
                let _ = perform(&top, op, &mut held);
            }
            let taken = observer.take(&tree, "workspace", &[]).unwrap();
            let compared = scanned(&mut scanner, &tree);
            let after = scan(&top);
            let said = |fault| TestCaseError::fail(format!("{fault}\n{taken:#?}\n{before:#?}\n{after:#?}"));
            check(&before, &after, &taken).map_err(said)?;
            check(&before, &after, &compared).map_err(TestCaseError::fail)?;
            before = after;
        }
        Ok(())
    });
    drop(pool);
    result.unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn several_at_once() {
    let pool = Pool::new();
    let threads = prop::collection::vec(prop::collection::vec(op(), 1..40), 2..4);
    let windows = prop::collection::vec(threads, 1..4);
    let result = runner(cases()).run(&windows, |windows| {
        let tree = pool.tree_of(8 << 20);
        let top = tree.join("workspace");
        let mut observer = Observer::new(&pool.root()).unwrap();
        observer.watch(&tree).unwrap();
        let mut before = scan(&top);
        for threads in windows {
            std::thread::scope(|scope| {
                for ops in &threads {
                    let top = &top;
                    scope.spawn(move || {
                        let mut held = None;
                        // A store behind the end of a file that another cuts off would end us.
                        for op in ops.iter().filter(|op| !matches!(op, Op::Map(_))) {
                            let _ = perform(top, op, &mut held);
                        }
                    });
                }
            });
            let taken = observer.take(&tree, "workspace", &[]).unwrap();
            let after = scan(&top);
            let said = |fault| TestCaseError::fail(format!("{fault}\n{taken:#?}\n{before:#?}\n{after:#?}"));
            check(&before, &after, &taken).map_err(said)?;
            before = after;
        }
        Ok(())
    });
    drop(pool);
    result.unwrap_or_else(|fault| panic!("{fault}"));
}
