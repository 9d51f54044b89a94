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
use atoll_provider::Provider;
use atoll_provider_native::{LauncherClient, NativeProvider};
use std::{fs, io::ErrorKind, path::Path, process::Command, sync::Arc, thread, time::Duration};

/// What is under way when a process is killed.
#[derive(Clone, Copy)]
enum Change {
    Snapshot,
    Rollback,
    Fork,
    Delete,
}

/// Asks for a change again and again, until a process is killed. Whether that was in the middle of one: no answer, or an error.
fn busy(server: &Server, sandbox: &str, snapshot: &str, change: Change) -> thread::JoinHandle<bool> {
    let (address, snapshots) = (server.address, format!("{sandbox}/snapshots"));
    let (rollback, fork) = (format!("{snapshot}/rollback"), format!("{sandbox}/fork"));
    let ask = move |method: &str, path: &str| {
        let authorization = format!("Bearer {KEY}");
        http::request(address, method, path, &[("Authorization", &authorization)], b"")
    };
    let mut made: Option<String> = None;
    thread::spawn(move || {
        loop {
            let answer = match (change, made.take()) {
                (Change::Rollback, _) => ask("POST", &rollback),
                (Change::Fork, _) => ask("POST", &fork),
                (Change::Delete, Some(path)) => ask("DELETE", &path),
                (Change::Snapshot | Change::Delete, _) => ask("POST", &snapshots),
            };
            match answer {
                Ok(answer) if answer.status == 201 && matches!(change, Change::Delete) => {
                    // One that was cut off names none, and the next request says why.
                    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                    made = json["id"].as_str().map(|id| format!("{snapshots}/{id}"));
                }
                Ok(answer) if answer.status / 100 == 2 => {}
                Ok(answer) => return answer.status >= 500,
                // A server that is gone hears of nothing.
                Err(error) => return error.kind() != ErrorKind::ConnectionRefused,
            }
        }
    })
}

/// The volumes and the snapshots that the launcher has, on any driver.
fn stored(server: &Server) -> (usize, usize) {
    let layout = Layout::new(&server.data().canonicalize().unwrap());
    let provider = NativeProvider::new(Arc::new(LauncherClient::new(&layout)));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let volumes = provider.volumes().unwrap().list_volumes().await.unwrap();
        let mut snapshots = 0;
        for volume in &volumes {
            snapshots +=
                provider.snapshots().unwrap().list_snapshots(*volume).await.map_or(0, |all| all.len());
        }
        (volumes.len(), snapshots)
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
    let sandbox = server.create("{}");
    // Every file says the same, so that a mixture of two states is seen.
    let fill =
        |what: &str| format!("for i in $(seq 300); do head -c 100000 /dev/zero | tr '\\0' {what} > $i; done");
    let states = "cat [0-9]* | fold -w 1 | sort -u | tr -d '\\n'; ls | wc -l";
    server.exec(&sandbox, &fill("a"));
    let a = keep(&server, &sandbox, "a");
    server.exec(&sandbox, &fill("b"));
    keep(&server, &sandbox, "b");
    let changes = [Change::Snapshot, Change::Rollback, Change::Fork, Change::Delete];
    let mut hits = [0, 0];
    for round in 0..8_usize {
        let asking = busy(&server, &sandbox, &a, changes[round % 4]);
        thread::sleep(Duration::from_millis(10 + 13 * round as u64));
        if round < 4 {
            server.kill();
            hits[0] += usize::from(asking.join().unwrap());
            server.restart();
        } else {
            for pid in launchers_of(&Layout::new(&server.data().canonicalize().unwrap())) {
                let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
            }
            hits[1] += usize::from(asking.join().unwrap());
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
        eventually("records and storage are the same, and no volume is without a sandbox", || {
            stored(&server) == (sandboxes, listed(&server, &sandbox).len())
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
    // One or another process was killed between two changes, but not each time.
    assert!(hits.iter().all(|hits| *hits > 0), "{hits:?} of 4 kills each were in the middle of a change");
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
