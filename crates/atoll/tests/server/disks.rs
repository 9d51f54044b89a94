//! Disks that are full, disks of sandboxes that are stopped, and disks that get another size.

use super::fixture::Server;

fn status(server: &Server, path: &str) -> String {
    server.ask("GET", path, "").json()["status"].as_str().unwrap().to_owned()
}

fn stop_and_resume(server: &Server, path: &str) {
    assert_eq!(server.ask("POST", &format!("{path}/stop"), "").status, 200);
    let resumed = server.ask("POST", &format!("{path}/resume"), "");
    assert_eq!(resumed.status, 200, "{resumed:?}");
}

#[test]
fn a_full_disk_locks_its_owner_out_of_nothing() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":64}"#);
    server.exec(
        &path,
        "echo kept > kept; head -c 200000000 /dev/urandom > big; head -c 9000000 /dev/zero > /tmp/a",
    );
    // Not even a name fits any more.
    server.exec(&path, "i=0; while echo $i > small-$i; do i=$((i+1)); done 2>/dev/null");
    stop_and_resume(&server, &path);
    assert_eq!(server.says(&path, "cat kept; ls -A /tmp"), "kept");
    assert_eq!(server.ask("POST", &format!("{path}/fs/remove"), r#"{"path":"big"}"#).status, 204);
    assert_eq!(server.says(&path, "echo more > more; cat more"), "more");
    // And while it is stopped.
    server.exec(&path, "head -c 200000000 /dev/urandom > big");
    server.ask("POST", &format!("{path}/stop"), "");
    assert_eq!(server.ask("POST", &format!("{path}/fs/remove"), r#"{"path":"big"}"#).status, 204);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "head -c 20000000 /dev/zero > again; wc -c < again"), "20000000");
}

#[test]
fn a_start_does_not_look_into_tmp() {
    let server = Server::start();
    let path = server.create("{}");
    let nest = "python3 -c 'import os\nos.chdir(\"/tmp\")\nfor n in range(30000): os.mkdir(\"d\"); os.chdir(\"d\")'; echo done";
    assert_eq!(server.says(&path, nest), "done");
    server.exec(&path, "echo kept > kept");
    stop_and_resume(&server, &path);
    assert_eq!(server.says(&path, "ls -A /tmp; cat kept; stat -c %a /tmp"), "kept\n1777");
}

#[test]
fn files_of_a_stopped_sandbox_can_be_listed_read_and_deleted() {
    let server = Server::start();
    let path = server.create("{}");
    server.exec(&path, "mkdir -p site/css; echo hello > site/index.html; echo old > old; (sleep 1000 &)");
    server.ask("POST", &format!("{path}/stop"), "");
    let names = || {
        let listed = server.ask("GET", &format!("{path}/files"), "").json();
        listed.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["old", "site"]);
    assert_eq!(server.ask("GET", &format!("{path}/files/site/index.html"), "").body, b"hello\n");
    assert_eq!(server.ask("POST", &format!("{path}/fs/remove"), r#"{"path":"old"}"#).status, 204);
    let folder = server.ask("GET", &format!("{path}/fs/tar?path=site"), "");
    assert!(folder.status == 200 && folder.body.windows(5).any(|bytes| bytes == b"hello"), "{folder:?}");
    assert_eq!(server.ask("PUT", &format!("{path}/files/new"), "new").status / 100, 2);
    assert_eq!(names(), ["new", "site"]);
    // Nothing else works in it, and it is what it was.
    assert_eq!(server.ask("POST", &format!("{path}/exec"), r#"{"command":"true"}"#).status, 409);
    assert_eq!(status(&server, &path), "stopped");
    // A start and an end do not wait for it.
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat new; echo; ls"), "new\nnew\nsite");
    server.ask("POST", &format!("{path}/stop"), "");
    assert_eq!(names(), ["new", "site"]);
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
}

#[test]
fn a_server_killed_with_files_of_a_stopped_sandbox_open_resumes_it() {
    let mut server = Server::start();
    let path = server.create("{}");
    server.exec(&path, "echo kept > kept");
    server.ask("POST", &format!("{path}/stop"), "");
    assert_eq!(server.ask("GET", &format!("{path}/files/kept"), "").body, b"kept\n");
    server.kill();
    server.restart();
    assert_eq!(status(&server, &path), "stopped");
    assert_eq!(server.ask("PATCH", &path, r#"{"disk_mb":200}"#).json()["disk_mb"], 200);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(server.says(&path, "cat kept"), "kept");
}

#[test]
fn a_disk_gets_another_size_at_any_time() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":32}"#);
    let patch = |mb: u64| server.ask("PATCH", &path, &format!(r#"{{"disk_mb":{mb}}}"#));
    let fits = |mb: u64| {
        server.says(
            &path,
            &format!("head -c {mb}000000 /dev/zero > f 2>/dev/null && echo fits; rm f; sync -f ."),
        )
    };
    assert_eq!(fits(50), "");
    assert_eq!(patch(128).json()["disk_mb"], 128);
    assert_eq!(fits(50), "fits", "while it runs");
    server.exec(&path, "head -c 60000000 /dev/urandom > kept; sync -f .");
    let below = patch(40);
    assert_eq!(
        (below.status, below.json()["error"]["details"]["field"].as_str()),
        (409, Some("disk_mb")),
        "{below:?}"
    );
    assert_eq!(patch(100).status, 200);
    server.ask("POST", &format!("{path}/stop"), "");
    assert_eq!(patch(40).status, 409);
    assert_eq!(patch(90).json()["disk_mb"], 90);
    assert_eq!(server.ask("POST", &format!("{path}/resume"), "").status, 200);
    assert_eq!(fits(50), "", "{:?}", server.ask("GET", &path, ""));
    assert_eq!(server.says(&path, "wc -c < kept"), "60000000");
    assert_eq!(patch(0).status, 422);
}

/// Size, used and available of what these paths lie on, in bytes.
fn df(server: &Server, path: &str, paths: &str) -> Vec<[u64; 3]> {
    let text = server.says(path, &format!("df -B1 --output=size,used,avail {paths} | tail -n +2"));
    let row = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        <[u64; 3]>::try_from(numbers).unwrap()
    };
    text.lines().map(row).collect()
}

#[test]
fn df_inside_tells_the_limits_of_the_sandboxs_volumes() {
    const MIB: u64 = 1 << 20;
    let server = Server::start();
    server.ask("POST", "/api/v1/volumes", r#"{"name":"data","disk_mb":48}"#);
    let body = r#"{"disk_mb":64,"volumes":[{"name":"data","path":"/data"}]}"#;
    let path = server.create(body);
    let seen = df(&server, &path, "/workspace ~ /tmp /data");
    assert_eq!(seen.iter().map(|row| row[0]).collect::<Vec<_>>(), [64 * MIB, 64 * MIB, 64 * MIB, 48 * MIB]);
    assert!(seen.iter().all(|[size, used, free]| *used < MIB && used + free == *size), "{seen:?}");
    // What is written anywhere on the volume counts, and what is on another does not.
    server
        .exec(&path, "head -c 20000000 /dev/urandom > /tmp/a; head -c 9000000 /dev/urandom > /data/b; sync");
    let seen = df(&server, &path, "/workspace /data");
    assert!(seen[0][1] >= 20_000_000 && seen[0][1] < 25_000_000, "{seen:?}");
    assert!(seen[1][1] >= 9_000_000 && seen[1][1] < 12_000_000, "{seen:?}");
    // A new limit is seen at once, also by other programs that run df, in the table that people read.
    assert_eq!(server.ask("PATCH", &path, r#"{"disk_mb":128}"#).status, 200);
    let table =
        server.says(&path, "df -h | grep -E ' (/workspace|/tmp)$'; cd; df . -h --output=size | tail -1");
    let sizes: Vec<&str> =
        table.lines().filter_map(|line| line.split_whitespace().find(|w| w.ends_with('M'))).collect();
    assert_eq!(sizes, ["128M", "128M", "128M"], "{table}");
    // Everything else has the size that it has for any df.
    let root = server.says(&path, "df -B1 --output=size / | tail -1; stat -f -c '%b %S' /");
    let numbers: Vec<u64> = root.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(numbers[0], numbers[1] * numbers[2], "{root}");
}

#[test]
fn df_inside_a_fork_counts_what_it_shares() {
    let server = Server::start();
    let path = server.create(r#"{"disk_mb":64}"#);
    server.exec(&path, "head -c 20000000 /dev/urandom > a; sync");
    let fork = server.ask("POST", &format!("{path}/fork"), "{}");
    let fork = format!("/api/v1/sandboxes/{}", fork.json()["id"].as_str().unwrap());
    let [size, used, _] = df(&server, &fork, "/workspace")[0];
    assert_eq!(size, 64 << 20);
    assert!((20_000_000..25_000_000).contains(&used), "{used}");
    server.ask("DELETE", &fork, "");
}
