//! Images from Debian's registry on loopback, and sandboxes of them.

#[path = "../../../oci/tests/registry/debian.rs"]
pub(super) mod debian;

use super::{
    fixture::{KEY, Server, own_port},
    http,
    image_imports::{entry, left, root_filesystem},
    shell::on_terminal,
};
use crate::engine::fixture::eventually;
use debian::{Registry, run};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tar::{Builder, EntryType};

const ROOT: &str = "/api/v1/sandbox-images";
const MIB: usize = 1 << 20;

/// Bytes that no compression makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(next).collect()
}

/// A layout of two layers: a root filesystem, and one that hides a file of it and has a user.
pub(super) fn build_layout(top: &Path, noisy: usize) {
    fs::write(top.join("base.tar"), root_filesystem("first")).unwrap();
    let mut upper = Builder::new(Vec::new());
    let passwd = b"root:x:0:0::/root:/bin/sh\napp:x:1001:1002::/:/bin/sh\n";
    entry(&mut upper, "etc/passwd", EntryType::Regular, 0o644, passwd, "");
    entry(&mut upper, ".wh.mark", EntryType::Regular, 0o644, b"", "");
    entry(&mut upper, "srv/", EntryType::Directory, 0o755, b"", "");
    entry(&mut upper, "srv/noise", EntryType::Regular, 0o644, &noise(noisy), "");
    fs::write(top.join("upper.tar"), upper.into_inner().unwrap()).unwrap();
    run("umoci", &["init", "--layout", "layout"], top);
    run("umoci", &["new", "--image", "layout:latest"], top);
    for layer in ["base.tar", "upper.tar"] {
        run("umoci", &["raw", "add-layer", "--image", "layout:latest", layer], top);
    }
    let config = [
        "--config.user",
        "app",
        "--config.workingdir",
        "/srv",
        "--config.env",
        "GREETING=hello",
        "--config.cmd",
        "sh",
    ];
    run("umoci", &[&["config", "--image", "layout:latest"], &config[..]].concat(), top);
}

/// A registry with an image, and a server that may speak to it.
struct Both {
    server: Server,
    registry: Registry,
    top: tempfile::TempDir,
}

impl Both {
    fn start(password: bool, folders: bool, arguments: &[&str]) -> Self {
        let top = tempfile::tempdir().unwrap();
        build_layout(top.path(), 64);
        let registry = Registry::start(top.path(), password);
        registry.fill(top.path(), "team/app:1", password);
        let config = top.path().join("config.toml");
        fs::write(&config, format!("[images]\ninsecure_registries = [\"{}\"]\n", registry.host)).unwrap();
        let arguments = [&["--config", config.to_str().unwrap()], arguments].concat();
        let server =
            if folders { Server::start_on_folders(&arguments) } else { Server::start_with(&arguments) };
        Self { server, registry, top }
    }

    fn reference(&self) -> String {
        format!("{}/team/app:1", self.registry.host)
    }
}

pub(super) fn pull(server: &Server, body: &Value) -> Value {
    let asked = server.ask("POST", &format!("{ROOT}/pull"), &body.to_string());
    assert_eq!(asked.status, 202, "{}", String::from_utf8_lossy(&asked.body));
    asked.json()
}

fn build(server: &Server, build: &Value) -> Value {
    server.ask("GET", &format!("{ROOT}/builds/{}", build["build_id"].as_str().unwrap()), "").json()
}

/// The build when it has ended.
pub(super) fn ended(server: &Server, of: &Value) -> Value {
    eventually("the end of the build", || build(server, of)["status"] != "running");
    build(server, of)
}

fn log(server: &Server, of: &Value, follow: bool) -> String {
    let path = format!("{ROOT}/builds/{}/log?follow={follow}", of["build_id"].as_str().unwrap());
    String::from_utf8_lossy(&server.ask("GET", &path, "").body).into_owned()
}

fn layers(server: &Server, folder: &str) -> usize {
    fs::read_dir(server.data().join("server/layers").join(folder)).map_or(0, Iterator::count)
}

fn a_pulled_image_starts(folders: bool) {
    let both = Both::start(true, folders, &[]);
    let Both { server, registry, .. } = &both;
    let reference = both.reference();
    // Without a password, and with a wrong one.
    for body in [
        json!({"reference": reference}),
        json!({"reference": reference, "username": "user", "password": "not-that-one"}),
    ] {
        let failed = ended(server, &pull(server, &body));
        assert_eq!(failed["status"], "failed", "{failed}");
        assert!(!failed["error"].as_str().unwrap().contains("not-that-one"), "{failed}");
        assert_eq!(left(server), (json!(0), 0, 0));
    }
    let body = json!({"reference": reference, "username": "user", "password": "secret"});
    let begun = pull(server, &body);
    assert_eq!((&begun["status"], &begun["origin"]), (&json!("running"), &json!("pull")), "{begun}");
    let followed = log(server, &begun, true);
    let done = ended(server, &begun);
    assert_eq!((&done["status"], &done["progress"]), (&json!("done"), &Value::Null), "{done}");
    for part in
        ["event: log", "event: progress", "event: end", "unpacking layer 2 of 2", r#""status":"done""#]
    {
        assert!(followed.contains(part), "{part}: {followed}");
    }
    assert!(!followed.contains("secret") && log(server, &begun, false).contains("2 layers"), "{followed}");
    assert_eq!(left(server), (json!(0), 0, 1));
    let image = server.ask("GET", &format!("{ROOT}/{}", done["image_id"].as_str().unwrap()), "").json();
    assert_eq!(
        (&image["origin"], &image["source"], &image["tags"]),
        (&json!("pull"), &json!(reference), &json!(["1"]))
    );
    assert_eq!(image["name"], format!("{}/team/app", registry.host));
    assert_eq!((&image["user"], &image["command"]), (&json!("app"), &json!(["sh"])));
    let sandbox = server.create(&json!({"image": reference, "disk_mb": 64}).to_string());
    let said =
        server.says(&sandbox, "echo $GREETING; id -u; id -g; pwd; cat /usr/share/mark; ls /mark /srv 2>&1");
    assert_eq!(said, "hello\n1001\n1002\n/srv\nfirstls: /mark: No such file or directory\n/srv:\nnoise");
    // A second image of the same layers asks for none of them.
    let again = json!({"reference": reference, "name": "other:2", "username": "user", "password": "secret"});
    let again = pull(server, &again);
    assert_eq!(ended(server, &again)["status"], "done");
    assert_eq!(log(server, &again, false).matches(" is here, ").count(), 2);
    // A tag is taken; the record of a build that has ended can go.
    let taken = server.ask("POST", &format!("{ROOT}/pull"), &body.to_string());
    assert_eq!(taken.status, 409, "{taken:?}");
    let path = format!("{ROOT}/builds/{}", again["build_id"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    assert_eq!(server.ask("GET", &path, "").status, 404);
    let kinds =
        server.ask("GET", "/api/v1/events?after=0&kind=image.build_started,image.build_failed", "").json();
    assert_eq!(kinds["events"].as_array().unwrap().len(), 6, "{kinds}");
    // The trail has the reference and no password.
    let database = fs::read(server.data().join("server/atoll.db")).unwrap();
    let wal = fs::read(server.data().join("server/atoll.db-wal")).unwrap_or_default();
    let all = String::from_utf8_lossy(&[database, wal].concat()).into_owned();
    assert!(all.contains("image.pull") && !all.contains("not-that-one"));
}

#[test]
fn a_pulled_image_starts_with_its_environment_user_and_directory() {
    a_pulled_image_starts(false);
}

#[test]
fn the_same_on_plain_folders() {
    a_pulled_image_starts(true);
}

#[test]
fn passwords_come_from_a_file_and_an_index_leads_to_this_machines_image() {
    let both = Both::start(true, false, &[]);
    let Both { registry, top, .. } = &both;
    let index: Value =
        serde_json::from_slice(&fs::read(top.path().join("layout/index.json")).unwrap()).unwrap();
    let mut own = index["manifests"][0].clone();
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let mut other = own.clone();
    other["platform"] = json!({"os": "linux", "architecture": "s390x"});
    own["platform"] = json!({"os": "linux", "architecture": architecture});
    let kind = "application/vnd.oci.image.index.v1+json";
    let document = json!({"schemaVersion": 2, "mediaType": kind, "manifests": [other, own]}).to_string();
    let headers = [("Authorization", "Basic dXNlcjpzZWNyZXQ="), ("Content-Type", kind)];
    let address = registry.host.parse().unwrap();
    let put =
        http::request(address, "PUT", "/v2/team/app/manifests/many", &headers, document.as_bytes()).unwrap();
    assert_eq!(put.status, 201, "{put:?}");
    let Both { registry, top, server } = both;
    drop(server);
    let auth = top.path().join("auth.json");
    let entries = json!({"auths": {&registry.host: {"auth": "dXNlcjpzZWNyZXQ="}}});
    fs::write(&auth, entries.to_string()).unwrap();
    let variables = [
        ("ATOLL_IMAGES_INSECURE_REGISTRIES", registry.host.as_str()),
        ("ATOLL_IMAGES_REGISTRY_AUTH_FILE", auth.to_str().unwrap()),
    ];
    let server = Server::start_in("warn", &[], &variables);
    let body = json!({"reference": format!("{}/team/app:many", registry.host), "name": "many"});
    let done = ended(&server, &pull(&server, &body));
    assert_eq!(done["status"], "done", "{done}");
    assert_eq!(server.says(&server.create(r#"{"image":"many","disk_mb":64}"#), "pwd"), "/srv");
}

/// Passes bytes to a registry on, and to the client no more than are allowed in all.
struct Gate {
    host: String,
    allowed: Arc<AtomicU64>,
    /// What clients sent.
    asked: Arc<Mutex<Vec<u8>>>,
}

impl Gate {
    fn before(registry: &str, allowed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (allowed, passed) = (Arc::new(AtomicU64::new(allowed)), Arc::new(AtomicU64::new(0)));
        let asked: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (most, count, to) = (Arc::clone(&allowed), passed, registry.to_owned());
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { return };
                let (up, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let heard = Arc::clone(&heard);
                thread::spawn(move || hear(up, to_server, &heard));
                let (most, count) = (Arc::clone(&most), Arc::clone(&count));
                thread::spawn(move || pass(server, client, &most, &count));
            }
        });
        Self { host, allowed, asked }
    }

    /// Whether a client asked for a blob from this byte on.
    fn was_asked_from(&self, byte: u64) -> bool {
        let asked = String::from_utf8_lossy(&self.asked.lock().unwrap()).to_lowercase();
        asked.contains(&format!("range: bytes={byte}-\r\n"))
    }
}

fn hear(mut from: TcpStream, mut to: TcpStream, heard: &Mutex<Vec<u8>>) {
    let mut piece = [0; 16 << 10];
    while let Ok(got @ 1..) = from.read(&mut piece) {
        heard.lock().unwrap().extend_from_slice(&piece[..got]);
        if to.write_all(&piece[..got]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn pass(mut from: TcpStream, mut to: TcpStream, most: &AtomicU64, count: &AtomicU64) {
    let mut piece = [0; 16 << 10];
    while let Ok(got @ 1..) = from.read(&mut piece) {
        while count.load(Ordering::SeqCst) >= most.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        count.fetch_add(got as u64, Ordering::SeqCst);
        if to.write_all(&piece[..got]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// Begins a pull that the gate halts in the middle of a layer, after the server wrote `written` bytes of it. What the gate has passed does not
/// count: the sockets' buffers hold some of it.
fn begin(server: &Server, gate: &Gate, written: u64) -> Value {
    let begun = pull(server, &json!({"reference": format!("{}/team/app:1", gate.host), "name": "app"}));
    eventually("a part of the layer", || {
        build(server, &begun)["progress"]["done_bytes"].as_u64().is_some_and(|bytes| bytes >= written)
    });
    begun
}

#[test]
fn a_pull_that_is_cancelled_or_killed_leaves_nothing_and_the_next_one_continues() {
    let top = tempfile::tempdir().unwrap();
    build_layout(top.path(), 12 * MIB);
    let registry = Registry::start(top.path(), false);
    registry.fill(top.path(), "team/app:1", false);
    let gate = Gate::before(&registry.host, 4 << 20);
    let variables = [("ATOLL_IMAGES_INSECURE_REGISTRIES", gate.host.as_str())];
    let mut server = Server::start_in("warn", &[], &variables);
    let begun = begin(&server, &gate, MIB as u64);
    assert_eq!(left(&server).0, json!(1));
    let path = format!("{ROOT}/builds/{}", begun["build_id"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &path, "").status, 204);
    let cancelled = build(&server, &begun);
    assert_eq!(
        (&cancelled["status"], &cancelled["error"]),
        (&json!("cancelled"), &json!("the build was cancelled"))
    );
    assert_eq!(left(&server), (json!(0), 0, 0));
    eventually("no half-fetched layer", || layers(&server, "partial") == 0);
    // Killed midway, the next server removes all but what the next pull continues.
    gate.allowed.fetch_add(8 << 20, Ordering::SeqCst);
    let begun = begin(&server, &gate, 4 * MIB as u64);
    server.kill();
    // What the killed server wrote of each layer, which nothing but the next pull changes.
    let partial = fs::read_dir(server.data().join("server/layers/partial")).unwrap();
    let written: Vec<u64> = partial.map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
    assert!(written.iter().any(|bytes| *bytes >= MIB as u64), "{written:?}");
    server.restart();
    eventually("nothing of it", || left(&server) == (json!(0), 0, 0));
    let failed = build(&server, &begun);
    assert_eq!(
        (&failed["status"], &failed["error"]),
        (&json!("failed"), &json!("the server ended meanwhile"))
    );
    assert!(log(&server, &begun, true).contains("event: end"));
    // Two are fetched at a time.
    assert!(matches!(layers(&server, "partial"), 1 | 2));
    gate.allowed.store(u64::MAX, Ordering::SeqCst);
    let body = json!({"reference": format!("{}/team/app:1", gate.host), "name": "app"});
    let done = ended(&server, &pull(&server, &body));
    assert_eq!(done["status"], "done", "{done}");
    for bytes in written.into_iter().filter(|bytes| *bytes > 0) {
        assert!(
            gate.was_asked_from(bytes),
            "a layer of which {bytes} bytes were here was not continued there"
        );
    }
    let sandbox = server.create(r#"{"image":"app","disk_mb":64}"#);
    assert_eq!(server.says(&sandbox, "stat -c %s /srv/noise"), (12 * MIB).to_string());
}

/// The file of a blob in Debian's registry.
fn blob(top: &Path, digest: &str) -> PathBuf {
    let hex = digest.strip_prefix("sha256:").unwrap();
    top.join("registry/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data")
}

fn document(top: &Path, digest: &Value) -> Value {
    let hex = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
    serde_json::from_slice(&fs::read(top.join("layout/blobs/sha256").join(hex)).unwrap()).unwrap()
}

/// Puts a document into the layout and returns its descriptor.
fn put(top: &Path, value: &Value, like: &Value) -> Value {
    let text = value.to_string();
    fs::write(top.join("new"), &text).unwrap();
    let hex = run("sha256sum", &["new"], top).split(' ').next().unwrap().to_owned();
    fs::rename(top.join("new"), top.join("layout/blobs/sha256").join(&hex)).unwrap();
    let mut described = like.clone();
    described["digest"] = json!(format!("sha256:{hex}"));
    described["size"] = json!(text.len());
    described
}

#[test]
fn wrong_digests_and_images_that_do_not_fit_leave_nothing() {
    let both = Both::start(false, false, &[]);
    let Both { server, registry, top } = &both;
    let top = top.path();
    let index: Value = serde_json::from_slice(&fs::read(top.join("layout/index.json")).unwrap()).unwrap();
    let manifest = document(top, &index["manifests"][0]["digest"]);
    // The configuration says another digest of the uncompressed layer.
    let mut config = document(top, &manifest["config"]["digest"]);
    config["rootfs"]["diff_ids"][1] = config["rootfs"]["diff_ids"][0].clone();
    let mut lying = manifest.clone();
    lying["config"] = put(top, &config, &manifest["config"]);
    let mut changed = index.clone();
    changed["manifests"][0] = put(top, &lying, &index["manifests"][0]);
    fs::write(top.join("layout/index.json"), changed.to_string()).unwrap();
    registry.fill(top, "team/lying:1", false);
    let reference = |name: &str| format!("{}/team/{name}", registry.host);
    let fails = |body: Value, with: &str| {
        let failed = ended(server, &pull(server, &body));
        assert!(failed["status"] == "failed" && failed["error"].as_str().unwrap().contains(with), "{failed}");
        assert_eq!(left(server), (json!(0), 0, 0), "{failed}");
    };
    fails(json!({"reference": reference("lying:1")}), "diff_id");
    // It does not fit.
    fails(json!({"reference": reference("app:1"), "disk_mb": 1}), "");
    fails(json!({"reference": reference("nosuch:1")}), "404");
    // Another host than the one that the operator named.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fails(json!({"reference": format!("{port}/app:1")}), "no public address");
    // Other bytes than the manifest says, of the same length.
    let layer = manifest["layers"][1]["digest"].as_str().unwrap();
    let place = blob(top, layer);
    let length = fs::metadata(&place).unwrap().len() as usize;
    fs::write(&place, noise(length)).unwrap();
    let kept = server.data().join("server/layers/blobs/sha256").join(layer.strip_prefix("sha256:").unwrap());
    // A layer that was damaged here too is found out, and fetched again by the next pull.
    fs::write(&kept, noise(length)).unwrap();
    fails(json!({"reference": reference("app:1")}), "was damaged on this server");
    assert!(!kept.exists());
    fails(json!({"reference": reference("app:1")}), "other bytes");
    assert!(!kept.exists() && layers(server, "partial") == 0);
    // Requests that no pull begins with.
    let user = server.key_of("ann", "user");
    let path = format!("{ROOT}/pull");
    for (key, body, status) in [
        (KEY, json!({"reference": "app:1"}), 422),
        (KEY, json!({"reference": reference("app:1"), "username": "user"}), 422),
        (KEY, json!({"reference": reference("app:1"), "name": "host"}), 422),
        (KEY, json!({"reference": reference("app:1"), "on_use": true}), 403),
        (user.as_str(), json!({"reference": reference("app:1")}), 403),
    ] {
        let refused = server.ask_as(key, "POST", &path, &body.to_string());
        assert_eq!(refused.status, status, "{body}: {refused:?}");
    }
    let builds = |key: &str| server.ask_as(key, "GET", &format!("{ROOT}/builds"), "").json()["total"].clone();
    assert_eq!((builds(KEY), builds(&user)), (json!(6), json!(0)));
}

/// A small disk for layers.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn below(server: &Server) -> Self {
        let place = server.data().join("server/layers");
        fs::create_dir(&place).unwrap();
        run(
            "mount",
            &["-t", "tmpfs", "-o", "size=4m,mode=1777", "none", place.to_str().unwrap()],
            Path::new("/"),
        );
        Self(place)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()], Path::new("/"));
    }
}

#[test]
fn a_full_disk_of_the_server_leaves_no_layer() {
    let top = tempfile::tempdir().unwrap();
    build_layout(top.path(), 12 * MIB);
    let registry = Registry::start(top.path(), false);
    registry.fill(top.path(), "team/app:1", false);
    let variables = [("ATOLL_IMAGES_INSECURE_REGISTRIES", registry.host.as_str())];
    let server = Server::start_in("warn", &[], &variables);
    let disk = SmallDisk::below(&server);
    let failed =
        ended(&server, &pull(&server, &json!({"reference": format!("{}/team/app:1", registry.host)})));
    let why = failed["error"].as_str().unwrap_or_default();
    assert!(failed["status"] == "failed" && why.contains("no storage space"), "{failed}");
    assert_eq!(left(&server), (json!(0), 0, 0));
    eventually("no layer", || layers(&server, "partial") + layers(&server, "blobs/sha256") == 0);
    server.ask("DELETE", &format!("{ROOT}/builds/{}", failed["build_id"].as_str().unwrap()), "");
    drop(disk);
}

#[test]
fn a_create_pulls_its_image_where_the_settings_let_its_key() {
    let both = Both::start(false, false, &["--set", "images.pull_on_use=true"]);
    let Both { server, registry, .. } = &both;
    let reference = both.reference();
    let user = server.key_of("ann", "user");
    let body = json!({"image": reference, "disk_mb": 64}).to_string();
    let create = |key: &str, status: u16| {
        let made = server.ask_as(key, "POST", "/api/v1/sandboxes", &body);
        assert_eq!(made.status, status, "{made:?}");
    };
    let set = |settings: Value| {
        let changed = server.ask("PATCH", "/api/v1/settings/sandbox", &settings.to_string());
        assert_eq!(changed.status, 200, "{changed:?}");
    };
    // Ordinary keys: from the registries of the list, and never past an approval.
    create(&user, 422);
    set(json!({"atoll": {"images": {"pull_on_use_registries": [registry.host], "require_approved": true}}}));
    create(&user, 422);
    set(json!({"atoll": {"images": {"require_approved": false}}, "db_active_images": ["host"]}));
    create(&user, 422);
    let total = || server.ask("GET", &format!("{ROOT}/builds"), "").json()["total"].clone();
    assert_eq!(total(), json!(0));
    set(json!({"db_active_images": null}));
    // Images are in no plan: those that no admin approved have a limit together.
    set(json!({"atoll": {"images": {"pull_on_use_max_mb": 0}}}));
    create(&user, 429);
    assert_eq!(total(), json!(0));
    set(json!({"atoll": {"images": {"pull_on_use_max_mb": 20480}}}));
    // Two at once wait for one pull.
    thread::scope(|scope| {
        let all = [scope.spawn(|| create(&user, 201)), scope.spawn(|| create(KEY, 201))];
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    assert_eq!(total(), json!(1));
    let image = server.ask("GET", &format!("{ROOT}/{}", reference.replace('/', "%2F")), "").json();
    assert_eq!(image["approved"], json!(false), "{image}");
    // With the setting off nobody's create pulls.
    set(json!({"atoll": {"images": {"pull_on_use": false}}}));
    let other = json!({"image": format!("{}/team/other:1", registry.host)}).to_string();
    assert_eq!(server.ask("POST", "/api/v1/sandboxes", &other).status, 422);
    set(json!({"atoll": {"images": {"pull_on_use": true}}}));
    assert_eq!(server.ask("POST", "/api/v1/sandboxes", &other).status, 502);
    assert_eq!(total(), json!(2));
}

#[test]
fn a_session_over_grpc_and_a_template_pull_their_image() {
    let top = tempfile::tempdir().unwrap();
    build_layout(top.path(), 64);
    let registry = Registry::start(top.path(), false);
    registry.fill(top.path(), "team/app:1", false);
    let (address, reference) = (own_port(), format!("{}/team/app:1", registry.host));
    let variables = [
        ("ATOLL_IMAGES_INSECURE_REGISTRIES", registry.host.as_str()),
        ("ATOLL_GRPC_LISTEN", address.as_str()),
        ("ATOLL_GRPC_IMAGE", reference.as_str()),
        ("ATOLL_GRPC_MEMORY_MB", "128"),
        ("ATOLL_GRPC_DISK_MB", "64"),
    ];
    let server = Server::start_in("warn", &["--set", "images.pull_on_use=true"], &variables);
    let bearer = format!("Bearer {KEY}");
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/grpc-web+proto")];
    let path = "/sandbox.v1.SandboxService/CreateSession";
    let made = http::request(address.parse().unwrap(), "POST", path, &headers, &[0; 5]).unwrap();
    assert!(String::from_utf8_lossy(&made.body).contains("running"), "{made:?}");
    let sandbox = server.ask("GET", "/api/v1/sandboxes", "").json()["items"][0].clone();
    assert_eq!(sandbox["image"], reference.as_str(), "{sandbox}");

    let ask = |method: &str, path: &str, body: &Value, status: u16| {
        let answer = server.ask(method, &format!("/api/sandbox/templates{path}"), &body.to_string());
        assert_eq!(answer.status, status, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    };
    ask("POST", "", &json!({"name": "App", "image": reference}), 201);
    let absent = format!("{}/team/absent:1", registry.host);
    ask("POST", "", &json!({"name": "Absent", "image": absent}), 201);
    let built = |id: &str| {
        let all = ask("GET", "", &Value::Null, 200);
        let all = all["templates"].as_array().unwrap().clone();
        let found = all.into_iter().find(|template| template["id"] == id).unwrap();
        json!([found["built"], found["built_at"].is_string(), found["size_mb"].is_number()])
    };
    assert_eq!(built("app"), json!([false, false, false]));
    // The second time it takes the image's name again.
    for _ in 0..2 {
        ask("POST", "/app/pull", &Value::Null, 200);
        assert_eq!(built("app"), json!([true, true, true]));
    }
    let failed = ask("POST", "/absent/pull", &Value::Null, 502);
    assert!(failed["error"].as_str().unwrap().contains("absent"), "{failed}");
    let made = server.ask("POST", "/api/v1/sandboxes", r#"{"image":"app","disk_mb":64}"#);
    assert_eq!(made.status, 201, "{made:?}");
}

#[test]
fn the_command_line_pulls_follows_lists_and_cancels() {
    let both = Both::start(false, false, &["--set", "images.pull_on_use=true"]);
    let Both { server, .. } = &both;
    let reference = both.reference();
    let (code, out, error) = server.atoll(&["image", "pull", &reference, "--name", "app:1"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("unpacking layer 1 of 2") && error.contains("app:1 is ready"), "{error}");
    let image = server.ask("GET", &format!("{ROOT}/app:1"), "").json();
    assert_eq!(out.trim(), image["id"].as_str().unwrap());
    let (_, out, _) = server.atoll(&["image", "builds"]);
    let id = out.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    assert!(out.contains("app:1") && out.contains("done"), "{out}");
    let (_, out, _) = server.atoll(&["image", "log", &id]);
    assert!(out.contains("app:1 is ready"), "{out}");
    assert_eq!(server.atoll(&["image", "cancel", &id]).0, Some(0));
    let (code, _, error) = server.atoll(&["image", "pull", &format!("{reference}0")]);
    assert!(code == Some(1) && error.contains("failed"), "{error}");
    // On use, with what the pull says.
    let (code, out, error) = server.atoll(&["create", "--image", &reference, "--disk", "64m"]);
    assert!(code == Some(0) && error.contains("unpacking layer"), "{error}");
    assert_eq!(server.says(&format!("/api/v1/sandboxes/{}", out.trim()), "pwd"), "/srv");
    // From the same data folder.
    let ran = |image: &str, variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_atoll"));
        command.args(["run", "--image", image, "--disk", "64m", "--data-dir"]).arg(server.data());
        command.envs(variables.iter().copied());
        let ran = command.args(["--", "/bin/sh", "-c", "echo $GREETING; pwd; id -u"]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr))
    };
    let (code, out, error) = ran("app:1", &[]);
    assert_eq!((code, out.as_str()), (Some(0), "hello\n/srv\n1001\n"), "{error}");
    assert!(ran("nosuch", &[]).2.contains("there is no image"));
    let error = ran("registry.example/team/app:1", &[]).2;
    assert!(error.contains("atoll image pull registry.example/team/app:1"), "{error}");
    // A server whose key is in the environment pulls what is not here.
    both.registry.fill(both.top.path(), "team/second:1", false);
    let second = reference.replace("/app:", "/second:");
    let url = format!("http://{}", server.address);
    assert!(ran(&second, &[]).2.contains("there is no image"));
    let (code, out, error) = ran(&second, &[("ATOLL_URL", &url), ("ATOLL_API_KEY", KEY)]);
    assert_eq!((code, out.as_str()), (Some(0), "hello\n/srv\n1001\n"), "{error}");
    assert!(error.contains("unpacking layer 2 of 2"), "{error}");
}

#[test]
fn at_a_terminal_pulls_and_pushes_show_that_they_go_on() {
    let both = Both::start(false, false, &["--set", "images.pull_on_use=true"]);
    let (server, reference) = (&both.server, both.reference());
    let (status, screen) = on_terminal(server, &["image", "pull", &reference, "--name", "app:1"]);
    assert!(status.success() && screen.contains("B/s") && screen.contains("app:1 is ready"), "{screen}");
    let (status, screen) = on_terminal(server, &["create", "--image", &reference, "--disk", "64m"]);
    assert!(status.success() && screen.contains("B/s") && screen.contains("is ready"), "{screen}");
    let (status, screen) = on_terminal(server, &["image", "push", "app:1", &format!("{reference}0")]);
    assert!(status.success() && screen.contains("pushing app:1 to"), "{screen}");
    let (_, screen) = on_terminal(server, &["image", "pull", &reference, "--name", "app:2", "--json"]);
    assert!(!screen.contains("B/s"), "{screen}");
}
