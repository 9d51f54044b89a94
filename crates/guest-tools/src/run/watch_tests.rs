use super::*;
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
};

struct Running {
    events: Receiver<WatchEvent>,
    stdin: Option<std::io::PipeWriter>,
    thread: Option<JoinHandle<Result<()>>>,
    top: String,
}

impl Running {
    fn new(top: &Path, recursive: bool) -> Self {
        let (read, stdin) = std::io::pipe().unwrap();
        let (sender, events) = channel();
        let top = top.to_str().unwrap().to_owned();
        let request = Watch { path: top.clone(), recursive };
        let thread = std::thread::spawn(move || {
            watch(&request, read.as_fd(), |batch| {
                batch.iter().for_each(|event| drop(sender.send(event.clone())));
                Ok(())
            })
        });
        let running = Self { events, stdin: Some(stdin), thread: Some(thread), top };
        assert_eq!(running.next(), "Ready");
        running
    }

    /// The next event as a line, without the top.
    fn next(&self) -> String {
        let WatchEvent { event, path, to, kind } =
            self.events.recv_timeout(Duration::from_secs(60)).expect("an event must come");
        let short = |path: String| path.strip_prefix(&self.top).unwrap().trim_start_matches('/').to_owned();
        let mut line = format!("{event:?}");
        line.extend(path.map(|p| format!(" {}", short(p))));
        line.extend(to.map(|p| format!(" -> {}", short(p))));
        line.extend(kind.filter(|k| *k != EntryKind::File).map(|k| format!(" ({k:?})")));
        line
    }

    /// Everything up to the event of this line.
    fn until(&self, last: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while seen.last().map(String::as_str) != Some(last) {
            seen.push(self.next());
        }
        seen
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stdin.take();
        assert!(self.thread.take().unwrap().join().unwrap().is_ok());
    }
}

#[test]
fn what_happens_is_told() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    fs::create_dir(at("old")).unwrap();
    let running = Running::new(top.path(), true);
    fs::write(at("old/f"), "x").unwrap();
    assert_eq!(running.until("Modified old/f"), ["Created old/f", "Modified old/f"]);
    fs::rename(at("old/f"), at("g")).unwrap();
    assert_eq!(running.next(), "Renamed old/f -> g");
    fs::remove_file(at("g")).unwrap();
    assert_eq!(running.next(), "Deleted g");
    std::os::unix::fs::symlink("nowhere", at("l")).unwrap();
    assert_eq!(running.next(), "Created l (Symlink)");
}

#[test]
fn a_file_that_comes_whole_is_told_under_its_own_name() {
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name);
    let running = Running::new(top.path(), true);
    fs::write(at(".atoll-0123"), "x").unwrap();
    fs::rename(at(".atoll-0123"), at("f")).unwrap();
    fs::write(at(".atoll-4567"), "x").unwrap();
    fs::remove_file(at(".atoll-4567")).unwrap();
    fs::create_dir(at("end")).unwrap();
    assert_eq!(running.until("Created end (Directory)"), ["Created f", "Created end (Directory)"]);
}

#[test]
fn bursts_are_told_once() {
    let top = tempfile::tempdir().unwrap();
    let mut file = File::create(top.path().join("f")).unwrap();
    let running = Running::new(top.path(), true);
    for _ in 0..500 {
        file.write_all(b"x").unwrap();
    }
    fs::write(top.path().join("end"), "").unwrap();
    let seen = running.until("Created end");
    let modified = seen.iter().chain([&running.next()]).filter(|l| *l == "Modified f").count();
    assert!((1..100).contains(&modified), "{modified}");
}

#[test]
fn deep_folders_are_told_once_however_they_come() {
    let top = tempfile::tempdir().unwrap();
    let running = Running::new(top.path(), true);
    for round in 0..50 {
        let deep = top.path().join(format!("r{round}/a/b/c"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), "").unwrap();
    }
    fs::write(top.path().join("end"), "").unwrap();
    let mut seen = running.until("Created end");
    seen.pop();
    // Events from deep folders may come after later ones beside them.
    while seen.len() < 250 {
        seen.push(running.next());
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((sorted.len(), seen.len()), (250, 250), "{seen:?}");
    for round in 0..50 {
        let file = format!("Created r{round}/a/b/c/f");
        assert!(seen.contains(&file), "{file}");
    }
}

#[test]
fn a_folder_that_moves_is_still_watched_and_one_that_leaves_is_not() {
    let (top, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = |name: &str| top.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    let running = Running::new(top.path(), true);
    fs::rename(at("a"), at("z")).unwrap();
    assert_eq!(running.next(), "Renamed a -> z (Directory)");
    fs::write(at("z/b/f"), "").unwrap();
    assert_eq!(running.next(), "Created z/b/f");
    fs::rename(at("z"), other.path().join("z")).unwrap();
    assert_eq!(running.next(), "Deleted z (Directory)");
    fs::write(other.path().join("z/b/unseen"), "").unwrap();
    fs::rename(other.path().join("z"), at("back")).unwrap();
    assert_eq!(running.next(), "Created back (Directory)");
    let seen = running.until("Created back/b/unseen");
    assert!(!seen.iter().any(|line| line.contains("z/")), "{seen:?}");
}

#[test]
fn one_folder_alone_if_asked() {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir(top.path().join("sub")).unwrap();
    let running = Running::new(top.path(), false);
    fs::write(top.path().join("sub/unseen"), "").unwrap();
    fs::create_dir(top.path().join("new")).unwrap();
    assert_eq!(running.next(), "Created new (Directory)");
}

#[test]
fn it_ends_with_its_folder() {
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("f");
    fs::create_dir(&path).unwrap();
    let mut running = Running::new(&path, true);
    fs::remove_dir(&path).unwrap();
    assert_eq!(running.next(), "Deleted  (Directory)");
    assert!(running.thread.take().unwrap().join().unwrap().is_ok());
    running.thread = Some(std::thread::spawn(|| Ok(())));
}
