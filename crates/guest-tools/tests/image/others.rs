//! The same image unpacked by umoci and by us, from every kind of archive that skopeo writes.

use crate::support::*;
use atoll_guest_tools::{ArchiveKind, ImageLimits, UnpackImage, UnpackedImage, image::unpack_image};
use std::{fs, os::unix::fs::symlink as make_symlink, path::Path};

/// An OCI layout in `layout` below a folder, made by umoci: a layer that GNU tar wrote, two by hand, and one that umoci
/// wrote itself.
fn build(top: &Path) {
    let base = top.join("base");
    for folder in ["etc", "usr/lib/old", "usr/bin", "var/empty", "srv/opaque/deep", "home/user"] {
        fs::create_dir_all(base.join(folder)).unwrap();
    }
    let long = format!("usr/lib/{}/{}", "n".repeat(120), "é".repeat(90));
    fs::create_dir_all(base.join(&long)).unwrap();
    fs::write(base.join(&long).join("file"), "deep").unwrap();
    for name in [
        "etc/passwd",
        "usr/bin/su",
        "usr/lib/a.so",
        "usr/lib/old/x",
        "srv/opaque/f",
        "srv/opaque/deep/g",
        "home/user/f",
    ] {
        fs::write(base.join(name), name).unwrap();
    }
    make_symlink("usr/lib", base.join("lib")).unwrap();
    make_symlink("/usr/bin", base.join("bin")).unwrap();
    fs::hard_link(base.join("usr/lib/a.so"), base.join("usr/lib/b.so")).unwrap();
    let sparse = fs::File::create(base.join("var/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 3 << 20).unwrap();
    run("mkfifo", &["etc/fifo"], &base);
    run("chown", &["-hR", "1000:1000", "home/user"], &base);
    run("chmod", &["4755", "usr/bin/su"], &base);
    run("chmod", &["1777", "var/empty"], &base);
    let attribute = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(base.join(name), key, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    attribute("usr/bin/su", "user.note", b"kept");
    attribute(
        "usr/lib/a.so",
        "security.capability",
        &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    run(
        "tar",
        &["--format=posix", "--xattrs", "--xattrs-include=*", "--sparse", "-C", "base", "-cf", "1.tar", "."],
        top,
    );
    let second = [
        file("lib/new.so", "through a link"),
        file("bin/tool", "through an absolute link").mode(0o755),
        file("etc/.wh.passwd", ""),
        file("srv/opaque/new", "n"),
        file("srv/opaque/.wh..wh..opq", ""),
        file("usr/lib/old", "a file now"),
        hard_link("etc/linked", "usr/bin/su"),
        file("usr/lib/a.so", "changed, and b.so is not").ids(7, 8),
        folder("home/user/").ids(2000, 2000).mode(0o700),
    ];
    fs::write(top.join("2.tar"), layer(&second)).unwrap();
    let third = [
        file(".wh.srv", ""),
        folder("srv/"),
        file("srv/again", "x"),
        symlink("home/user/f", "/etc/linked"),
        file("etc/.wh.fifo", ""),
    ];
    fs::write(top.join("3.tar"), layer(&third)).unwrap();
    run("umoci", &["init", "--layout", "layout"], top);
    run("umoci", &["new", "--image", "layout:latest"], top);
    for name in ["1.tar", "2.tar", "3.tar"] {
        run("umoci", &["raw", "add-layer", "--image", "layout:latest", name], top);
    }
    fs::write(top.join("inserted"), "by umoci").unwrap();
    run("umoci", &["insert", "--image", "layout:latest", "inserted", "/opt-inserted"], top);
    run(
        "umoci",
        &[
            "config",
            "--image",
            "layout:latest",
            "--config.env",
            "A=b",
            "--config.user",
            "1000",
            "--config.workingdir",
            "/home/user",
            "--config.entrypoint",
            "/bin/tool",
            "--config.cmd",
            "x",
            "--config.label",
            "k=v",
            "--config.exposedports",
            "80/tcp",
        ],
        top,
    );
    run("umoci", &["unpack", "--image", "layout:latest", "bundle"], top);
}

fn unpacked(top: &Path, archive: &str, to: &str) -> UnpackedImage {
    fs::create_dir(top.join(to)).unwrap();
    let path = top.join(archive);
    let request = UnpackImage {
        archive: path.to_str().unwrap().into(),
        target: top.join(to).to_str().unwrap().into(),
        reference: None,
        limits: ImageLimits::default(),
    };
    let answer = unpack_image(fs::File::open(&path).unwrap(), &opened(&top.join(to)), &request);
    answer.unwrap_or_else(|error| panic!("{archive}: {error}"))
}

#[test]
fn a_real_image_is_as_umoci_unpacks_it_from_every_kind_of_archive() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    build(top);
    let should = tree(&top.join("bundle/rootfs"));
    run("tar", &["-C", "layout", "-cf", "layout.tar", "."], top);
    let skopeo =
        |to: &str| run("skopeo", &["--insecure-policy", "copy", "--quiet", "oci:layout:latest", to], top);
    skopeo("docker-archive:docker.tar:example.org/image:1");
    skopeo("oci-archive:oci.tar:latest");
    run("gzip", &["-k", "docker.tar"], top);
    run("zstd", &["-q", "oci.tar", "-o", "oci.tar.zst"], top);
    for (archive, kind) in [
        ("layout.tar", ArchiveKind::OciLayout),
        ("oci.tar", ArchiveKind::OciLayout),
        ("oci.tar.zst", ArchiveKind::OciLayout),
        ("docker.tar", ArchiveKind::DockerSave),
        ("docker.tar.gz", ArchiveKind::DockerSave),
    ] {
        let to = format!("from-{archive}");
        let answer = unpacked(top, archive, &to);
        assert_eq!(differences(&tree(&top.join(&to)), &should), [""; 0], "{archive}");
        assert_eq!((answer.kind, answer.layers.len()), (kind, 4), "{archive}");
        let text = answer.config.unwrap();
        assert_eq!(answer.config_digest.unwrap(), atoll_oci::Digest::of(text.as_bytes()));
        let config = atoll_oci::ImageConfig::parse(text.as_bytes()).unwrap();
        assert!(config.env.contains(&("A".into(), "b".into())), "{config:?}");
        assert_eq!((config.user.as_str(), config.working_dir.as_str()), ("1000", "/home/user"));
        assert_eq!((config.entrypoint, config.cmd), (vec!["/bin/tool".to_owned()], vec!["x".to_owned()]));
        match kind {
            ArchiveKind::DockerSave => assert_eq!(answer.tags, ["example.org/image:1"]),
            _ => assert!(answer.manifest_digest.is_some() && answer.tags == ["latest"], "{:?}", answer.tags),
        }
        // No half-decompressed archive is left.
        assert!(
            !fs::read_dir(top).unwrap().any(|e| e.unwrap().file_name().to_string_lossy().contains(".atoll-"))
        );
    }
}

#[test]
fn a_root_filesystem_is_as_tar_unpacks_it() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    build(top);
    let should = tree(&top.join("base"));
    // A file that archives of images have too does not make it one.
    fs::write(top.join("base/manifest.json"), "[]").unwrap();
    run("tar", &["--format=gnu", "--xattrs", "-C", "base", "-cf", "plain.tar", "."], top);
    run(
        "tar",
        &["--format=posix", "--xattrs", "--xattrs-include=*", "-C", "base", "-czf", "root.tar.gz", "."],
        top,
    );
    run("zstd", &["-q", "-19", "1.tar", "-o", "root.tar.zst"], top);
    for archive in ["plain.tar", "root.tar.gz", "root.tar.zst"] {
        let to = format!("from-{archive}");
        let answer = unpacked(top, archive, &to);
        assert_eq!(
            (answer.kind, answer.layers.len(), answer.config),
            (ArchiveKind::RootFilesystem, 1, None),
            "{archive}"
        );
        let mut is = tree(&top.join(&to));
        is.remove("manifest.json");
        // The older format has neither attributes nor fractions of seconds.
        let same = |(name, node): (&String, &Node)| {
            let of = |node: &Node| (node.mode, node.ids, node.mtime.0, node.body.clone(), node.same.clone());
            name == "." || should.get(name).is_some_and(|other| of(node) == of(other))
        };
        assert!(
            is.iter().all(same) && is.len() == should.len(),
            "{archive}: {:?}",
            differences(&is, &should)
        );
        if archive != "plain.tar" {
            is.remove(".");
            let mut should = should.clone();
            should.remove(".");
            assert_eq!(differences(&is, &should), [""; 0], "{archive}");
        }
    }
}

#[test]
fn one_of_several_images_is_named() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    build(top);
    run("umoci", &["tag", "--image", "layout:latest", "same"], top);
    fs::write(top.join("more"), "x").unwrap();
    run("umoci", &["insert", "--image", "layout:latest", "more", "/more"], top);
    run("tar", &["-C", "layout", "-cf", "layout.tar", "."], top);
    let path = top.join("layout.tar");
    let unpack = |to: &str, reference: Option<&str>| {
        fs::create_dir(top.join(to)).unwrap();
        let request = UnpackImage {
            archive: path.to_str().unwrap().into(),
            target: "/unused".into(),
            reference: reference.map(Into::into),
            limits: ImageLimits::default(),
        };
        unpack_image(fs::File::open(&path).unwrap(), &opened(&top.join(to)), &request)
    };
    let error = unpack("none", None).unwrap_err();
    assert!(error.message.contains("2 images (latest, same)"), "{error}");
    assert_eq!(unpack("wrong", Some("other")).unwrap_err().field.as_deref(), Some("reference"));
    assert_eq!(unpack("same", Some("same")).unwrap().layers.len(), 4);
    assert_eq!(unpack("latest", Some("latest")).unwrap().layers.len(), 5);
}
