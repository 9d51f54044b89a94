//! Images in and out as other tools know them: archives that skopeo and umoci write become images, and both read what is exported.

use super::{
    fixture::{KEY, Server},
    image_imports::{ROOT, left},
};
use crate::engine::fixture::eventually;
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
};

fn run(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; `make setup-tests` installs it"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

pub(super) fn script(folder: &Path, lines: &str) {
    run(folder, "sh", &["-ec", lines]);
}

/// One line for everything below a folder, and for the folder: modes, ids, times, contents, hard links and extended attributes.
fn tree(top: &Path) -> Vec<String> {
    const LIST: &str = r#"
import hashlib, os, stat
paths, first = ["."], {}
for folder, folders, files in os.walk("."):
    paths += [os.path.relpath(os.path.join(folder, name)) for name in folders + files]
for path in sorted(paths):
    about, body = os.lstat(path), ""
    if stat.S_ISLNK(about.st_mode): body = os.readlink(path)
    if stat.S_ISREG(about.st_mode): body = hashlib.sha256(open(path, "rb").read()).hexdigest()
    several = about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode)
    same = first.setdefault(about.st_ino, path) if several else ""
    names = sorted(os.listxattr(path, follow_symlinks=False))
    xattrs = {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names}
    print(path, oct(about.st_mode), about.st_uid, about.st_gid, about.st_mtime_ns, body, same, xattrs)
"#;
    run(top, "python3", &["-c", LIST]).lines().map(str::to_owned).collect()
}

/// Two layers in an OCI layout, which umoci unpacks into `bundle`: all that an image's files can have, and whiteouts.
fn build(top: &Path) {
    script(
        top,
        r#"
        mkdir -p base/bin base/etc base/usr/lib/old base/srv/opaque base/home/user base/tmp
        cp /usr/bin/busybox base/bin/busybox
        for name in sh cat id pwd env; do ln -s busybox base/bin/$name; done
        printf 'root:x:0:0::/root:/bin/sh\napp:x:1234:1235::/home/user:/bin/sh\n' > base/etc/passwd
        for name in usr/lib/a.so usr/lib/old/x srv/opaque/f home/user/f; do echo $name > base/$name; done
        ln base/usr/lib/a.so base/usr/lib/b.so
        ln -s ../../outside base/etc/outside
        ln -s /etc/shadow base/etc/absolute
        mkfifo base/etc/fifo
        truncate -s 3M base/home/sparse
        chown -hR 1234:1235 base/home/user
        chmod 4755 base/usr/lib/old/x; chmod 1777 base/tmp; chmod 600 base/usr/lib/b.so
        python3 -c 'import os
os.setxattr("base/usr/lib/a.so", "user.note", b"kept\0\n")
os.setxattr("base/bin/busybox", "security.capability", bytes([1,0,0,2,0,32] + 14*[0]))'
        touch -d '2001-02-03 04:05:06.789012345' base/usr/lib/old/x
        touch -h -d '1999-01-01' base/etc/absolute
        tar --format=posix --xattrs '--xattrs-include=*' -C base -cf 1.tar .
        mkdir -p more/usr/lib more/srv/opaque
        echo new > more/srv/opaque/new; touch more/srv/opaque/.wh..wh..opq more/usr/lib/.wh.old
        tar -C more -cf 2.tar srv/opaque usr/lib/.wh.old
        umoci init --layout layout
        umoci new --image layout:1
        umoci raw add-layer --image layout:1 1.tar
        umoci raw add-layer --image layout:1 2.tar
        umoci config --image layout:1 --config.env A=b --config.user app --config.workingdir /home/user \
            --config.entrypoint /bin/sh --config.cmd -i --config.label k=v --config.exposedports 80/tcp
        umoci unpack --image layout:1 bundle
        tar -C layout -cf oci.tar .
        skopeo --insecure-policy copy -q oci:layout:1 docker-archive:docker.tar:team/app:1
        tar --format=posix --xattrs '--xattrs-include=*' -C bundle/rootfs -czf root.tar.gz .
        "#,
    );
}

pub(super) fn import(server: &Server, name: &str, archive: &Path) -> Value {
    let path = format!("{ROOT}/import?disk_mb=64&name={name}");
    let made = server.send("POST", &path, &fs::read(archive).unwrap());
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    made.json()
}

fn export(server: &Server, image: &str) -> Vec<u8> {
    let answer = server.send("GET", &format!("{ROOT}/{image}/export"), b"");
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    answer.body
}

/// The tree of an exported image, as umoci unpacks it from what skopeo copied.
fn exported_tree(top: &Path, archive: &[u8], tag: &str) -> Vec<String> {
    let folder = tempfile::tempdir_in(top).unwrap();
    let folder = folder.path();
    fs::write(folder.join("image.tar"), archive).unwrap();
    run(folder, "skopeo", &["--insecure-policy", "copy", "-q", "oci-archive:image.tar", "oci:layout:1"]);
    // The layout itself is one too, without skopeo.
    script(folder, "mkdir plain && tar -C plain -xf image.tar");
    run(folder, "umoci", &["unpack", "--image", &format!("plain:{tag}"), "bundle"]);
    tree(&folder.join("bundle/rootfs"))
}

fn same_trees(what: &str, is: &[String], should: &[String]) {
    let differ: Vec<_> = is.iter().filter(|line| !should.contains(line)).collect();
    let missing: Vec<_> = should.iter().filter(|line| !is.contains(line)).collect();
    assert!(differ.is_empty() && missing.is_empty(), "{what}: {differ:#?}, and not {missing:#?}");
}

fn archives_become_images_and_images_archives(server: &Server) {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    build(top);
    let umocis = tree(&top.join("bundle/rootfs"));
    let mut layouts = Vec::new();
    for (archive, kind) in
        [("oci.tar", "oci_layout"), ("docker.tar", "docker_save"), ("root.tar.gz", "root_filesystem")]
    {
        let made = import(server, "app:1", &top.join(archive));
        assert_eq!(made["source"], kind, "{made}");
        if kind != "root_filesystem" {
            let fields =
                ["user", "working_directory", "entrypoint", "command", "labels", "ports", "env_vars"];
            let said: Vec<&Value> = fields.iter().map(|field| &made[*field]).collect();
            let expected = json!(["app", "/home/user", ["/bin/sh"], ["-i"], {"k": "v"}, ["80/tcp"]]);
            assert_eq!(json!(said[..6]), expected, "{archive}");
            assert_eq!(said[6]["A"], "b", "{archive}");
            let sandbox = server.create(r#"{"image":"app:1"}"#);
            assert_eq!(server.says(&sandbox, "id -u; id -g; pwd; echo $A"), "1234\n1235\n/home/user\nb");
            assert_eq!(server.ask("DELETE", &sandbox, "").status, 204);
        }
        let exported = export(server, "app:1");
        same_trees(archive, &exported_tree(top, &exported, "1"), &umocis);
        layouts.push(exported);
        assert_eq!(server.ask("DELETE", &format!("{ROOT}/app:1"), "").status, 204);
    }
    // An export that is imported is the same image: the same archive comes out again.
    fs::write(top.join("out.tar"), &layouts[0]).unwrap();
    let again = import(server, "other:1", &top.join("out.tar"));
    assert_eq!(again["source"], "oci_layout");
    assert!(export(server, "other:1") == layouts[0], "the archive differs");
    assert_eq!(server.ask("DELETE", &format!("{ROOT}/other:1"), "").status, 204);
    assert_eq!(left(server), (json!(0), 0, 0));
}

#[test]
fn archives_of_other_tools_become_images_and_other_tools_read_exports() {
    archives_become_images_and_images_archives(&Server::start());
}

#[test]
fn the_same_on_plain_folders() {
    archives_become_images_and_images_archives(&Server::start_on_folders(&[]));
}

#[test]
fn an_export_is_for_admins_and_writes_over_no_file() {
    let server = Server::start();
    let top = tempfile::tempdir().unwrap();
    build(top.path());
    import(&server, "team%2Fapp:1", &top.path().join("oci.tar"));
    let ann = server.key_of("ann", "user");
    let path = format!("{ROOT}/team%2Fapp:1/export");
    assert_eq!(server.ask_as(&ann, "GET", &path, "").status, 403);
    assert_eq!(server.ask("GET", &format!("{ROOT}/nosuch/export"), "").status, 404);
    assert_eq!(server.ask("GET", &format!("{ROOT}/host/export"), "").status, 409);
    let export = |output: &str| {
        Command::new(env!("CARGO_BIN_EXE_atoll"))
            .args(["image", "export", "team/app:1", "-o", output])
            .env("ATOLL_URL", format!("http://{}", server.address))
            .env("ATOLL_API_KEY", KEY)
            .current_dir(top.path())
            .output()
            .unwrap()
    };
    let done = export("new.tar");
    assert!(done.status.success(), "{done:?}");
    let said = run(top.path(), "skopeo", &["inspect", "--config", "oci-archive:new.tar"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["config"]["User"], &said["config"]["WorkingDir"]),
        (&json!("app"), &json!("/home/user"))
    );
    fs::write(top.path().join("there.tar"), "kept").unwrap();
    let refused = export("there.tar");
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("writes over no file"), "{text}");
    assert_eq!(fs::read(top.path().join("there.tar")).unwrap(), b"kept");
    assert_eq!(export("-").stdout, fs::read(top.path().join("new.tar")).unwrap());
}

#[test]
fn a_client_that_goes_away_and_a_killed_server_leave_nothing_of_an_export() {
    let mut server =
        Server::start_with(&["--set", "lifecycle.interval_seconds=1", "--set", "lifecycle.orphan_seconds=1"]);
    let top = tempfile::tempdir().unwrap();
    script(top.path(), "mkdir root; head -c 30000000 /dev/urandom > root/big; tar -C root -cf root.tar .");
    import(&server, "big:1", &top.path().join("root.tar"));
    let begin = |server: &Server| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head =
            format!("GET {ROOT}/big:1/export HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        stream
    };
    // Two that are not read further take both places of their owner; they come back with the clients' end.
    let slow = [begin(&server), begin(&server)];
    assert_eq!(server.ask("GET", &format!("{ROOT}/big:1/export"), "").status, 429);
    drop(slow);
    eventually("a place", || server.ask("GET", &format!("{ROOT}/big:1/export"), "").status == 200);
    let _slow = begin(&server);
    server.kill();
    server.restart();
    // What the killed one left belongs to no sandbox, and is removed as such; the image goes too.
    eventually("no orphan", || {
        let rows = server.ask("GET", "/api/v1/audit?kind=orphan.volume", "").json();
        rows["entries"].as_array().is_some_and(|rows| rows.len() >= 2)
    });
    assert_eq!(server.ask("DELETE", &format!("{ROOT}/big:1"), "").status, 204);
}
