//! Images from archives, and sandboxes of them.

use super::{
    brim::SmallDisk,
    fixture::{KEY, Server},
    http, image_builds,
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{fs, io::Write, net::TcpStream, process::Command};
use tar::{Builder, EntryType, Header};

pub(super) const ROOT: &str = "/api/v1/sandbox-images";
const SANDBOXES: &str = "/api/v1/sandboxes";

pub(super) fn entry(
    archive: &mut Builder<Vec<u8>>,
    name: &str,
    kind: EntryType,
    mode: u32,
    data: &[u8],
    link: &str,
) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(data.len() as u64);
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..name.len()].copy_from_slice(name.as_bytes());
    gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    archive.append(&header, data).unwrap();
}

/// The libraries of a program, and the program.
fn program(path: &str) -> Vec<String> {
    let told = Command::new("ldd").arg(path).output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let libraries = told.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned);
    libraries.chain([path.to_owned()]).collect()
}

/// A root filesystem with busybox and a file that no other has.
pub(super) fn root_filesystem(mark: &str) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for folder in ["./", "bin/", "etc/", "tmp/", "usr/", "usr/bin/", "usr/share/", "lib/", "lib64/"] {
        entry(&mut archive, folder, EntryType::Directory, 0o755, b"", "");
    }
    for path in program("/usr/bin/busybox") {
        entry(
            &mut archive,
            path.trim_start_matches('/'),
            EntryType::Regular,
            0o755,
            &fs::read(&path).unwrap(),
            "",
        );
    }
    for name in ["sh", "cat", "id", "pwd", "ls", "touch", "echo", "stat"] {
        entry(&mut archive, &format!("bin/{name}"), EntryType::Symlink, 0o777, b"", "/usr/bin/busybox");
    }
    entry(&mut archive, "etc/passwd", EntryType::Regular, 0o644, b"root:x:0:0::/root:/bin/sh\n", "");
    entry(&mut archive, "mark", EntryType::Regular, 0o640, mark.as_bytes(), "");
    entry(&mut archive, "usr/share/mark", EntryType::Regular, 0o644, mark.as_bytes(), "");
    archive.into_inner().unwrap()
}

pub(super) fn import(server: &Server, query: &str, archive: &[u8]) -> http::Answer {
    server.send("POST", &format!("{ROOT}/import?disk_mb=64&{query}"), archive)
}

/// Sandboxes, volumes and images beside `host`.
pub(super) fn left(server: &Server) -> (Value, usize, usize) {
    let sandboxes = server.ask("GET", SANDBOXES, "").json()["total"].clone();
    let volumes = server.ask("GET", "/api/v1/volumes", "").json()["total"].as_u64().unwrap() as usize;
    let images = server.ask("GET", ROOT, "").json()["items"].as_array().unwrap().len() - 1;
    (sandboxes, volumes, images)
}

fn an_archive_becomes_an_image(server: &Server) {
    let made = import(server, "name=team/box:1", &root_filesystem("first"));
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let made = made.json();
    assert_eq!(
        (&made["name"], &made["tags"], &made["approved"]),
        (&json!("team/box"), &json!(["1"]), &json!(false))
    );
    assert_eq!((&made["origin"], &made["source"]), (&json!("import"), &json!("root_filesystem")));
    assert!(made["digest"].as_str().unwrap().starts_with("sha256:"), "{made}");
    assert_eq!(left(server), (json!(0), 0, 1));
    let created = server.ask("GET", "/api/v1/events?after=0&kind=image.created", "").json();
    assert_eq!(created["events"][0]["data"]["id"], made["id"], "{created}");
    let id = made["id"].as_str().unwrap();
    let image = format!("{ROOT}/{id}");
    let patch = json!({"memory_mb": 200, "disk_mb": 64}).to_string();
    assert_eq!(server.ask("PATCH", &image, &patch).status, 200);
    let sandbox = server.create(r#"{"image":"team/box:1"}"#);
    let shown = server.ask("GET", &sandbox, "").json();
    assert_eq!((&shown["image"], &shown["memory_mb"]), (&json!("team/box:1"), &json!(200)));
    assert_eq!(server.says(&sandbox, "cat /usr/share/mark; echo; id -u; pwd"), "first\n1000\n/workspace");
    assert_eq!(server.says(&sandbox, "stat -c '%u %a' /mark; touch /mark 2>&1 || echo refused"), {
        "0 640\ntouch: /mark: Read-only file system\nrefused"
    });
    // In use, stopped or not.
    for stopped in [false, true] {
        if stopped {
            assert_eq!(server.ask("POST", &format!("{sandbox}/stop"), "").status, 200);
        }
        let refused = server.ask("DELETE", &image, "");
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status == 409 && text.contains(sandbox.rsplit('/').next().unwrap()), "{text}");
    }
    assert_eq!(server.ask("POST", &format!("{sandbox}/resume"), "").status, 200);
    assert_eq!(server.says(&sandbox, "cat /usr/share/mark"), "first");
    // A tag is taken, or taken over.
    assert_eq!(import(server, "name=team/box:1", &root_filesystem("second")).status, 409);
    let other = import(server, "name=team/box:1&replace=true", &root_filesystem("second"));
    assert_eq!(other.status, 201, "{}", String::from_utf8_lossy(&other.body));
    assert_eq!(server.ask("GET", &image, "").json()["tags"], json!([]));
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
    for image in [image, format!("{ROOT}/team%2Fbox:1")] {
        let removed = server.ask("DELETE", &image, "");
        assert_eq!(removed.status, 204, "{}", String::from_utf8_lossy(&removed.body));
    }
    assert_eq!(left(server), (json!(0), 0, 0));
}

#[test]
fn an_archive_becomes_an_image_that_sandboxes_are_made_of() {
    an_archive_becomes_an_image(&Server::start());
}

#[test]
fn the_same_on_plain_folders() {
    an_archive_becomes_an_image(&Server::start_on_folders(&[]));
}

#[test]
fn an_archive_that_is_refused_leaves_nothing() {
    let server = Server::start();
    let whole = root_filesystem("mark");
    let with = |name: &str, kind: EntryType, link: &str| {
        let mut archive = Builder::new(Vec::new());
        entry(&mut archive, name, kind, 0o644, b"", link);
        archive.into_inner().unwrap()
    };
    let reader = server.key_of("ann", "user");
    let authorization = format!("Bearer {reader}");
    let asked = http::request(
        server.address,
        "POST",
        &format!("{ROOT}/import?name=x"),
        &[("Authorization", &authorization)],
        &whole,
    );
    assert_eq!(asked.unwrap().status, 403);
    for (what, query, archive) in [
        ("nothing", "name=app", Vec::new()),
        ("no archive", "name=app", vec![b'x'; 4096]),
        ("cut off", "name=app", whole[..whole.len() / 2].to_vec()),
        ("above the root", "name=app", with("../evil", EntryType::Regular, "")),
        ("a device", "name=app", with("evil", EntryType::Char, "")),
        ("a hard link outward", "name=app", with("evil", EntryType::Link, "../../etc/shadow")),
        ("a name of the server", "name=host", whole.clone()),
        ("no name", "name=No%20Such", whole.clone()),
    ] {
        let answer = import(&server, query, &archive);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!((400..423).contains(&answer.status), "{what}: {} {text}", answer.status);
        assert_eq!(left(&server), (json!(0), 0, 0), "{what}");
    }
    let mut large = Builder::new(Vec::new());
    entry(&mut large, "large", EntryType::Regular, 0o644, &vec![7; 9 << 20], "");
    let full =
        server.send("POST", &format!("{ROOT}/import?name=app&disk_mb=4"), &large.into_inner().unwrap());
    assert!(matches!(full.status, 413 | 507), "{} {}", full.status, String::from_utf8_lossy(&full.body));
    assert_eq!(left(&server), (json!(0), 0, 0));
}

/// What scripts make of archives that an attacker would write; each is refused for its own reason.
#[test]
fn hostile_archives_of_images_are_refused_each_with_its_reason() {
    let server = Server::start();
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    let layout = "rm -rf layout; umoci init --layout layout; umoci new --image layout:1;
        umoci raw add-layer --image layout:1 layer.tar; umoci config --image layout:1 --config.env A=b";
    for (what, lines, statuses, reason) in [
        (
            "a bomb of gzip",
            "head -c 300000000 /dev/zero | gzip -9 > zeroes.gz; mkdir -p bomb; cd bomb; truncate -s 300M zeroes; tar -czf ../archive zeroes",
            &[413, 507][..],
            "",
        ),
        (
            "a bomb in a layer",
            &format!(
                "truncate -s 300M zeroes; tar -cf layer.tar zeroes; {layout}; tar -C layout -cf archive ."
            ),
            &[413, 507][..],
            "",
        ),
        (
            "a layer with other bytes",
            &format!(
                "echo x > x; tar -cf layer.tar x; {layout}; for blob in layout/blobs/sha256/*; do case $(head -c 2 $blob | od -An -tx1) in \
                 *1f*8b*) tar -cf other.tar x x; gzip -c other.tar > $blob;; esac; done; tar -C layout -cf archive ."
            ),
            &[422],
            "digest",
        ),
        (
            "a manifest with other bytes",
            &format!(
                "echo x > x; tar -cf layer.tar x; {layout}; blob=$(grep -o 'sha256:[0-9a-f]*' layout/index.json | cut -d: -f2); \
                 echo >> layout/blobs/sha256/$blob; tar -C layout -cf archive ."
            ),
            &[422],
            "digest",
        ),
        (
            "a layer that is missing",
            &format!(
                "echo x > x; tar -cf layer.tar x; {layout}; for blob in layout/blobs/sha256/*; do \
                 case $(head -c 2 $blob | od -An -tx1) in *1f*8b*) rm $blob;; esac; done; tar -C layout -cf archive ."
            ),
            &[422],
            "no file",
        ),
        (
            "another machine's",
            "echo x > x; tar -cf layer.tar x; rm -rf layout; umoci init --layout layout; umoci new --image layout:1; \
             umoci raw add-layer --image layout:1 layer.tar; umoci config --image layout:1 --architecture s390x; \
             tar -C layout -cf archive .",
            &[422],
            "s390x",
        ),
        (
            "a hard link out of a layer",
            &format!(
                "echo x > x; ln x y; tar -P --transform 's,^x$,../../etc/shadow,' -cf layer.tar x y; {layout}; tar -C layout -cf archive ."
            ),
            &[422],
            "leads out of the image",
        ),
    ] {
        let lines = format!("rm -f archive zeroes x y layer.tar; {lines}");
        super::image_exports::script(top, &lines);
        let answer = import(&server, "name=app", &fs::read(top.join("archive")).unwrap());
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            statuses.contains(&answer.status) && text.contains(reason),
            "{what}: {} {text}",
            answer.status
        );
        assert_eq!(left(&server), (json!(0), 0, 0), "{what}");
    }
    // Links that lead out are followed within the image, and devices below dev/ are left out.
    super::image_exports::script(
        top,
        "rm -rf root; mkdir -p root/etc root/dev more/etc; ln -s /etc root/up; mknod root/dev/null c 1 3; tar -C root -cf archive .; \
         mkdir in; echo mine > in/evil; tar -C in --transform 's,^,up/,' -rf archive evil",
    );
    let made = import(&server, "name=app", &fs::read(top.join("archive")).unwrap());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    assert!(!std::path::Path::new("/etc/evil").exists());
    let sandbox = server.create(r#"{"image":"app"}"#);
    assert_eq!(server.ask("GET", &format!("{sandbox}/files/%2Fetc%2Fevil"), "").body, b"mine\n");
    assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
}

#[test]
fn a_disk_that_becomes_full_leaves_nothing_of_an_import() {
    let disk = SmallDisk::new();
    let server = Server::start_below(&disk.path(), &[]);
    // The disk below the pool gets full while the archive is spooled or unpacked.
    let filler = disk.path().join("filler");
    let free = |bytes: u64| {
        let about = rustix::fs::statvfs(disk.path()).unwrap();
        (about.f_bavail * about.f_frsize).saturating_sub(bytes)
    };
    assert!(
        Command::new("fallocate")
            .args(["-l", &free(250 << 20).to_string()])
            .arg(&filler)
            .status()
            .unwrap()
            .success()
    );
    let mut large = Builder::new(Vec::new());
    let body: Vec<u8> = (0..220 << 20).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    entry(&mut large, "large", EntryType::Regular, 0o644, &body, "");
    let full =
        server.send("POST", &format!("{ROOT}/import?name=app&disk_mb=300"), &large.into_inner().unwrap());
    assert!(matches!(full.status, 429 | 507), "{} {}", full.status, String::from_utf8_lossy(&full.body));
    assert_eq!(left(&server), (json!(0), 0, 0));
    fs::remove_file(&filler).unwrap();
    eventually("room again", || import(&server, "name=app", &root_filesystem("mark")).status == 201);
    assert_eq!(server.ask("DELETE", &format!("{ROOT}/app"), "").status, 204);
    drop(server);
}

#[test]
fn devices_of_an_archive_are_left_out_and_the_log_says_so() {
    let server = Server::start();
    let mut archive = Builder::new(Vec::new());
    entry(&mut archive, "dev/", EntryType::Directory, 0o755, b"", "");
    entry(&mut archive, "dev/null", EntryType::Char, 0o666, b"", "");
    entry(&mut archive, "dev/sda", EntryType::Block, 0o666, b"", "");
    let made = import(&server, "name=app", &archive.into_inner().unwrap());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let builds = server.ask("GET", &format!("{ROOT}/builds"), "").json();
    let build = format!("{ROOT}/builds/{}", builds["items"][0]["build_id"].as_str().unwrap());
    let said = image_builds::log(&server, &build);
    assert!(said.contains("left out of the image: 2 devices below /dev"), "{said}");
}

/// Begins an import and sends half of its archive. It goes on while the connection is held.
fn import_by_half(server: &Server) -> TcpStream {
    let archive = root_filesystem("mark");
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head = format!(
        "POST {ROOT}/import?name=app&disk_mb=64 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {}\r\n\r\n",
        archive.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&archive[..archive.len() / 2]).unwrap();
    eventually("its sandbox", || left(server).0 == json!(1));
    stream
}

#[test]
fn a_client_that_goes_away_and_a_killed_server_leave_nothing() {
    let mut server = Server::start();
    drop(import_by_half(&server));
    eventually("nothing of it", || left(&server) == (json!(0), 0, 0));
    let _stream = import_by_half(&server);
    server.kill();
    server.restart();
    eventually("nothing of it", || left(&server) == (json!(0), 0, 0));
}

#[test]
fn a_key_of_the_owner_that_is_no_admin_cannot_reach_a_build() {
    let server = Server::start();
    let body = json!({ "name": "weaker", "scope": "user" }).to_string();
    let weaker = server.ask("POST", "/api/v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    let _stream = import_by_half(&server);
    let id = server.ask("GET", SANDBOXES, "").json()["items"][0]["id"].as_str().unwrap().to_owned();
    let volume = server.ask("GET", "/api/v1/volumes", "").json()["items"][0]["name"].clone();
    assert_eq!(server.ask_as(&weaker, "GET", SANDBOXES, "").json()["total"], 0);
    let exec = server.ask_as(&weaker, "POST", &format!("{SANDBOXES}/{id}/exec"), r#"{"command":"true"}"#);
    assert_eq!(exec.status, 404, "{exec:?}");
    let attach = json!({ "disk_mb": 64, "volumes": [{ "name": volume, "path": "/image" }] }).to_string();
    let attached = server.ask_as(&weaker, "POST", SANDBOXES, &attach);
    assert!(matches!(attached.status, 404 | 422), "{attached:?}");
}
