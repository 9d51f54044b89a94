//! Many empty sandboxes with the usual limits on one machine. `make test` makes more of them than whole disks would
//! fit; `make crowd` makes 500, set by `ATOLL_CROWD`, and says what they cost.

use super::fixture::Server;
use std::{fs, os::unix::fs::MetadataExt, time::Instant};

fn available() -> i64 {
    let book = fs::read_to_string("/proc/meminfo").unwrap();
    let line = book.lines().find(|line| line.starts_with("MemAvailable")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap() >> 10
}

#[test]
fn many_empty_sandboxes_fit_with_the_usual_limits() {
    let count = std::env::var("ATOLL_CROWD").map_or(24, |text| text.parse().unwrap());
    let server = Server::start();
    let file = server.data().join("storage/pool.img");
    let disk = || fs::metadata(&file).map_or(0, |meta| meta.blocks() >> 11);
    let (memory, used, began) = (available(), disk(), Instant::now());
    let all: Vec<String> = (0..count).map(|_| server.create("{}")).collect();
    let took = began.elapsed();
    for path in [&all[0], &all[count / 2], &all[count - 1]] {
        assert_eq!(server.says(path, "echo here"), "here");
    }
    let first = server.ask("GET", &all[0], "").json();
    assert_eq!((&first["disk_mb"], &first["memory_mb"]), (&1024.into(), &512.into()));
    println!(
        "{count} sandboxes in {took:?} ({:?} each), {} MiB of memory, {} MiB of disk",
        took / u32::try_from(count).unwrap(),
        memory - available(),
        disk().saturating_sub(used)
    );
}
