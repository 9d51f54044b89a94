//! A server that is killed in the middle of a snapshot, a rollback, a fork or a delete: the next one finds records and
//! storage the same, and no file in between two states.

use super::{keep, listed};
use crate::{
    engine::fixture::{eventually, launchers_of},
    server::{
        fixture::{KEY, Server},
        http,
    },
};
use atoll_launch_proto::Layout;
use std::{fs, path::Path, process::Command, thread, time::Duration};

/// Requests that are under way when the server is killed.
fn busy(server: &Server, requests: Vec<(&'static str, String)>) -> thread::JoinHandle<()> {
    let address = server.address;
    thread::spawn(move || {
        let authorization = format!("Bearer {KEY}");
        let headers = [("Authorization", authorization.as_str())];
        for (method, path) in requests {
            let _ = http::request(address, method, &path, &headers, b"");
        }
    })
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder)
        .map_or(0, |entries| entries.filter(|e| e.as_ref().is_ok_and(|e| e.file_name().len() >= 32)).count())
}

#[test]
fn what_a_killed_server_left_on_folders_is_repaired() {
    what_a_killed_process_left_is_repaired(Server::start_on_folders);
}

#[test]
fn what_a_killed_server_left_on_btrfs_is_repaired() {
    what_a_killed_process_left_is_repaired(Server::start_with);
}

/// Kills the server in one half of the rounds, and the launcher with its workers in the other.
fn what_a_killed_process_left_is_repaired(start: impl Fn(&[&str]) -> Server) {
    let settings = ["lifecycle.interval_seconds=1", "lifecycle.orphan_seconds=1", "default_max_per_user=50"];
    let arguments: Vec<&str> = settings.iter().flat_map(|one| ["--set", one]).collect();
    let mut server = start(&arguments);
    let storage = server.data().join("storage/dir");
    // The pool is mounted where only the launcher sees it: its snapshots are then compared by the API alone.
    let counted = storage.exists();
    let sandbox = server.create("{}");
    // Every file says the same, so that a mixture of two states is seen.
    let fill =
        |what: &str| format!("for i in $(seq 300); do head -c 100000 /dev/zero | tr '\\0' {what} > $i; done");
    let states = "cat [0-9]* | fold -w 1 | sort -u | tr -d '\\n'; ls | wc -l";
    server.exec(&sandbox, &fill("a"));
    let a = keep(&server, &sandbox, "a");
    server.exec(&sandbox, &fill("b"));
    keep(&server, &sandbox, "b");
    for round in 0..8_u64 {
        let extra = keep(&server, &sandbox, &format!("extra {round}"));
        let request = match round % 4 {
            0 => ("POST", format!("{sandbox}/snapshots")),
            1 => ("POST", format!("{a}/rollback")),
            2 => ("POST", format!("{sandbox}/fork")),
            _ => ("DELETE", extra),
        };
        let asking = busy(&server, vec![request]);
        thread::sleep(Duration::from_millis(10 + 13 * round));
        if round < 4 {
            server.kill();
            asking.join().unwrap();
            server.restart();
        } else {
            for pid in launchers_of(&Layout::new(&server.data().canonicalize().unwrap())) {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
            asking.join().unwrap();
            server.kill();
            server.restart();
        }
        let all = server.ask("GET", "/api/v1/sandboxes?page_size=100", "").json();
        for one in all["items"].as_array().unwrap() {
            let path = format!("/api/v1/sandboxes/{}", one["id"].as_str().unwrap());
            if one["status"] != "running" {
                let resumed = server.ask("POST", &format!("{path}/resume"), "");
                assert_eq!(resumed.status, 200, "{resumed:?}");
            }
            let said = server.says(&path, states);
            assert!(matches!(said.as_str(), "a300" | "b300"), "round {round}: {said}");
        }
        let sandboxes = all["items"].as_array().unwrap().len();
        eventually("records and storage are the same", || {
            !counted || names(&storage.join("snapshots")) == listed(&server, &sandbox).len()
        });
        eventually("no volume is without a sandbox", || {
            !counted || names(&storage.join("volumes")) == sandboxes
        });
        for one in listed(&server, &sandbox) {
            let diff =
                server.ask("GET", &format!("{sandbox}/snapshots/{}/diff", one["id"].as_str().unwrap()), "");
            assert_eq!(diff.status, 200, "round {round}: {diff:?}");
        }
        for one in all["items"].as_array().unwrap() {
            let path = format!("/api/v1/sandboxes/{}", one["id"].as_str().unwrap());
            if path != sandbox {
                assert_eq!(server.ask("DELETE", &path, "").status, 204);
            }
        }
    }
}

/// A snapshot that no record names, and a record whose snapshot is gone.
#[test]
fn a_difference_is_closed_from_both_sides() {
    let mut server = Server::start_on_folders(&[]);
    let sandbox = server.create("{}");
    server.exec(&sandbox, "echo one > file");
    keep(&server, &sandbox, "kept");
    let lost = keep(&server, &sandbox, "lost");
    server.kill();
    let folder = server.data().join("storage/dir/snapshots");
    let id = lost.rsplit('/').next().unwrap().replace('-', "");
    let entries: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    let is_lost = |path: &Path| path.file_name().unwrap().to_str().unwrap().contains(&id);
    let found = entries.iter().find(|path| is_lost(path)).unwrap();
    // The same snapshot by another id, which no record names.
    let unknown = found.file_name().unwrap().to_str().unwrap().replace(&id, &"5".repeat(32));
    fs::rename(found, folder.join(unknown)).unwrap();
    server.restart();
    eventually("both are gone", || listed(&server, &sandbox).len() == 1 && names(&folder) == 1);
    assert_eq!(listed(&server, &sandbox)[0]["label"], "kept");
}
