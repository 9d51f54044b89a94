//! Writes that make no event: through mappings, and with the old asynchronous calls.

use crate::{
    fixture::{NOTHING, Sandbox},
    raw::{Mapping, aio_write, lease},
};
use std::{
    fs::{File, OpenOptions},
    time::{Duration, Instant},
};

const PAGE: usize = 4096;

fn file(sandbox: &mut Sandbox) -> File {
    sandbox.write("m", &"x".repeat(PAGE));
    let file = OpenOptions::new().read(true).write(true).open(sandbox.at("m")).unwrap();
    sandbox.changes();
    // The file system's clock goes by ticks of up to 10 ms on older kernels.
    std::thread::sleep(Duration::from_millis(12));
    file
}

/// What is told in the next moments: a child of another test may keep the file open for so long.
fn soon(sandbox: &mut Sandbox) -> Vec<String> {
    let told = (0..40).flat_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        sandbox.changes()
    });
    told.collect()
}

#[test]
fn a_mapping_that_ends_is_seen() {
    let mut sandbox = Sandbox::new();
    let file = file(&mut sandbox);
    let mapping = Mapping::new(&file, PAGE);
    drop(file);
    mapping.store(0, 1);
    drop(mapping);
    assert_eq!(soon(&mut sandbox), ["~m 4096"]);
    let again = OpenOptions::new().read(true).write(true).open(sandbox.at("m")).unwrap();
    drop(Mapping::new(&again, PAGE));
    drop(again);
    assert_eq!(sandbox.changes(), NOTHING, "nothing was stored");
}

#[test]
fn a_mapping_that_lives_is_seen_at_every_question() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed()];
    let file = file(&mut sandbox);
    let mapping = Mapping::new(&file, PAGE);
    assert_eq!(sandbox.changes(), NOTHING);
    for turn in 0..5 {
        mapping.store(0, turn);
        if turn == 3 {
            mapping.sync();
        }
        assert_eq!(sandbox.changes(), ["~m 4096"], "store {turn}");
        assert_eq!(sandbox.changes(), NOTHING);
    }
    mapping.store(1, 1);
    mapping.protect();
    assert_eq!(sandbox.changes(), ["~m 4096"], "no longer writable");
    drop((mapping, file));
    assert_eq!(sandbox.changes(), NOTHING);
}

#[test]
fn the_last_store_before_the_end_is_seen() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed()];
    let file = file(&mut sandbox);
    let mapping = Mapping::new(&file, PAGE);
    mapping.store(0, 1);
    assert_eq!(sandbox.changes(), ["~m 4096"]);
    mapping.store(0, 2);
    drop((mapping, file));
    assert_eq!(soon(&mut sandbox), ["~m 4096"]);
}

#[test]
fn a_mapped_file_that_was_renamed() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed()];
    let file = file(&mut sandbox);
    let mapping = Mapping::new(&file, PAGE);
    std::fs::rename(sandbox.at("m"), sandbox.at("n")).unwrap();
    assert_eq!(sandbox.changes(), ["-m", "+n 4096"]);
    mapping.store(0, 1);
    assert_eq!(sandbox.changes(), ["~n 4096"]);
}

#[test]
fn a_large_mapping_counts_as_written_to() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed()];
    let file = file(&mut sandbox);
    file.set_len(65 << 20).unwrap();
    sandbox.changes();
    let mapping = Mapping::new(&file, 65 << 20);
    assert_eq!(sandbox.changes(), ["~m 68157440"]);
    drop(mapping);
}

#[test]
fn a_lease_holds_nobody_up() {
    let mut sandbox = Sandbox::new();
    sandbox.processes = vec![std::process::id().cast_signed()];
    let file = file(&mut sandbox);
    let mapping = Mapping::new(&file, PAGE);
    lease(&file);
    mapping.store(0, 1);
    let start = Instant::now();
    assert_eq!(sandbox.changes(), ["~m 4096"]);
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn old_asynchronous_writes_are_seen_when_the_file_is_closed() {
    let mut sandbox = Sandbox::new();
    let file = file(&mut sandbox);
    aio_write(&file, 1);
    let early = sandbox.changes();
    drop(file);
    let late = soon(&mut sandbox);
    // Once, whether or not this kernel has an event for it.
    assert_eq!([early, late].concat(), ["~m 4096"]);
}
