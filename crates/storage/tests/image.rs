//! The host image, on a fake machine with planted secrets and on this one.

use atoll_storage::image::{gc, list};
use atoll_storage::{HostImage, ImageTree, open_image};
use atoll_types::ErrorCode;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const SECRET: &str = "planted-secret";

fn put(root: &Path, path: &str, content: &str, mode: u32) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A machine whose /etc has what it should have, and a secret wherever one could be.
fn fake(root: &Path) {
    for name in ["usr/bin", "usr/sbin", "usr/lib", "lib32", "etc"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["bin", "sbin", "lib"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
    let plain = [
        "etc/ssl/certs/ca-certificates.crt",
        "etc/ld.so.cache",
        "etc/python3.11/sitecustomize.py",
        "etc/R/Renviron",
    ];
    for path in plain {
        put(root, path, "plain", 0o644);
    }
    let open_secrets = [
        "passwd",
        "passwd-",
        "group",
        "hosts",
        "hostname",
        "resolv.conf",
        "machine-id",
        "environment",
        "profile",
        "bash.bashrc",
        "profile.d/token.sh",
        "pip.conf",
        "npmrc",
        "gitconfig",
        "apt/auth.conf",
        "cron.d/job",
        "ssh/ssh_config",
        "network/interfaces",
        "sudoers",
        "R/Renviron.site",
        "ssl/private/open.pem",
        "ssl/certs/server.key",
        "java-17-openjdk/store.jks",
        "pki/tls/private/localhost.key",
        "unlisted",
    ];
    for path in open_secrets {
        put(root, &format!("etc/{path}"), SECRET, 0o644);
    }
    for path in ["shadow", "gshadow", "ld.so.conf.d/closed.conf", "fonts/closed"] {
        put(root, &format!("etc/{path}"), SECRET, 0o600);
    }
    let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n");
    put(root, "etc/ssl/certs/bundle.pem", &key, 0o644);
    put(root, "etc/alternatives/closed/inside", SECRET, 0o644);
    fs::set_permissions(root.join("etc/alternatives/closed"), fs::Permissions::from_mode(0o700)).unwrap();
    // A listed folder that is a link must not lead anywhere.
    put(root, "elsewhere/file", SECRET, 0o644);
    symlink("../elsewhere", root.join("etc/terminfo")).unwrap();
    symlink("/usr/share/zoneinfo/UTC", root.join("etc/localtime")).unwrap();
    put(root, "etc/magic", &"x".repeat(5 << 20), 0o644);
    let fifo = std::process::Command::new("mkfifo").arg(root.join("etc/services")).status();
    assert!(fifo.unwrap().success());
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            found.extend(walk(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn no_secret_of_the_machine_is_copied() {
    let base = tempfile::tempdir().unwrap();
    let (machine, images) = (base.path().join("machine"), base.path().join("images"));
    fake(&machine);
    let image = HostImage::of(&machine).ensure(&images).unwrap();
    let root = &image.trees[0].source;
    for path in walk(root) {
        let meta = fs::symlink_metadata(&path).unwrap();
        assert!(meta.is_dir() || meta.is_file() || meta.is_symlink(), "{path:?}");
        assert_eq!((meta.uid(), meta.gid()), (0, 0), "{path:?}");
        if meta.is_file() {
            let text = fs::read_to_string(&path).unwrap();
            assert!(!text.contains(SECRET), "{path:?}");
            assert_eq!(meta.permissions().mode() & 0o7777, 0o644, "{path:?}");
        }
    }
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    for path in [
        "etc/ssl/certs/ca-certificates.crt",
        "etc/ld.so.cache",
        "etc/python3.11/sitecustomize.py",
        "etc/R/Renviron",
    ] {
        assert_eq!(read(path), "plain");
    }
    for path in [
        "etc/magic",
        "etc/services",
        "etc/ssl/private",
        "etc/ssl/certs/bundle.pem",
        "etc/unlisted",
        "etc/shadow",
    ] {
        assert!(fs::symlink_metadata(root.join(path)).is_err(), "{path}");
    }
    assert_eq!(fs::read_link(root.join("etc/localtime")).unwrap(), Path::new("/usr/share/zoneinfo/UTC"));
    assert!(read("etc/passwd").contains("user:x:1000:1000:user:/home/user:/bin/bash"));
    assert_eq!((read("etc/hostname").as_str(), read("etc/machine-id").as_str()), ("sandbox\n", ""));
}

#[test]
fn the_skeleton_has_its_mount_points() {
    let base = tempfile::tempdir().unwrap();
    let (machine, images) = (base.path().join("machine"), base.path().join("images"));
    fake(&machine);
    let image = HostImage::of(&machine).ensure(&images).unwrap();
    let (root, others) = image.trees.split_first().unwrap();
    assert_eq!(
        (root.at.as_str(), root.source.file_name().unwrap().to_str().unwrap()),
        ("/", image.id.as_str())
    );
    let tree = |name: &str| ImageTree { source: machine.join(name), at: format!("/{name}") };
    assert_eq!(others, [tree("usr"), tree("lib32")]);
    for tree in others {
        assert!(root.source.join(&tree.at[1..]).is_dir());
    }
    assert_eq!(fs::read_link(root.source.join("bin")).unwrap(), Path::new("usr/bin"));
    for (path, mode) in
        [("", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700), ("workspace", 0o755)]
    {
        assert_eq!(
            fs::metadata(root.source.join(path)).unwrap().permissions().mode() & 0o7777,
            mode,
            "{path}"
        );
    }
}

#[test]
fn an_image_is_named_by_its_content() {
    let base = tempfile::tempdir().unwrap();
    let (machine, images) = (base.path().join("machine"), base.path().join("images"));
    fake(&machine);
    let host = HostImage::of(&machine);
    let built: Vec<_> = std::thread::scope(|scope| {
        let builders: Vec<_> = (0..4).map(|_| scope.spawn(|| host.ensure(&images).unwrap())).collect();
        builders.into_iter().map(|builder| builder.join().unwrap()).collect()
    });
    assert!(built.iter().all(|image| *image == built[0]));
    put(&machine, "etc/os-release", "ID=fake", 0o644);
    let newer = host.ensure(&images).unwrap();
    assert_ne!(newer.id, built[0].id);
    assert_eq!(list(&images).unwrap().len(), 2);
    assert_eq!(gc(&images, std::slice::from_ref(&newer.id)).unwrap(), [built[0].id.clone()]);
    assert_eq!(list(&images).unwrap(), [newer.id]);
    // What a builder left when it was killed goes with the next build.
    fs::create_dir(images.join(".unfinished-x")).unwrap();
    put(&machine, "etc/os-release", "ID=newer", 0o644);
    host.ensure(&images).unwrap();
    assert!(!images.join(".unfinished-x").exists());
}

#[test]
fn this_machine_has_an_image_and_no_other() {
    let base = tempfile::tempdir().unwrap();
    let image = open_image(base.path(), "host").unwrap();
    assert_eq!(open_image(base.path(), "host").unwrap(), image);
    assert!(image.trees.contains(&ImageTree { source: "/usr".into(), at: "/usr".into() }));
    assert!(image.trees[0].source.join("etc/ld.so.cache").exists());
    let error = open_image(base.path(), "debian").unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (ErrorCode::NotFound, Some("image")));
}
