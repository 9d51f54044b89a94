//! Images made here, as skopeo and umoci read them, and pushed.

use crate::support::*;
use atoll_guest_tools::image::{LayerOptions, apply_layer, pack_image};
use atoll_oci::{Blobs, BuiltImage, Credentials, ImageConfig, build_image, write_layout};
use atoll_types::{Error, ErrorCode};
use bytes::Bytes;
use futures_util::stream;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

fn root_filesystem(top: &Path) -> Vec<u8> {
    let root = top.join("root");
    fs::create_dir_all(root.join("etc/deep")).unwrap();
    fs::write(root.join("etc/file"), vec![5; 300_000]).unwrap();
    std::os::unix::fs::chown(root.join("etc/file"), Some(1000), Some(100)).unwrap();
    fs::set_permissions(root.join("etc/file"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(root.join("etc/file"), root.join("etc/deep/same")).unwrap();
    symlink("/etc", root.join("link")).unwrap();
    let mut layer = Vec::new();
    pack_image(fs::File::open(&root).unwrap().into(), &mut layer).unwrap();
    layer
}

async fn built(blobs: &Blobs, layer: &[u8], gzip: bool) -> BuiltImage {
    let pieces: Vec<Result<Bytes, Error>> =
        layer.chunks(100_000).map(|p| Ok(Bytes::copy_from_slice(p))).collect();
    let layer = blobs.add_layer(stream::iter(pieces), gzip, 1 << 30).await.unwrap();
    let config = ImageConfig {
        env: vec![("PATH".into(), "/bin".into())],
        entrypoint: vec!["/bin/sh".into()],
        working_dir: "/etc".into(),
        ..ImageConfig::default()
    };
    build_image(blobs, &[layer], &config).await.unwrap()
}

#[tokio::test]
async fn skopeo_and_umoci_read_an_exported_image() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    let layer = root_filesystem(top);
    let blobs = Blobs::open(&top.join("blobs")).unwrap();
    for gzip in [false, true] {
        let image = built(&blobs, &layer, gzip).await;
        let (mut archive, mut again) = (Vec::new(), Vec::new());
        write_layout(&blobs, &image, Some("latest"), &mut archive).await.unwrap();
        write_layout(&blobs, &built(&blobs, &layer, gzip).await, Some("latest"), &mut again).await.unwrap();
        assert!(archive == again, "the same image is always the same archive");
        let name = format!("image-{gzip}.tar");
        fs::write(top.join(&name), archive).unwrap();
        let said = run("skopeo", &["inspect", &format!("oci-archive:{name}")], top);
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(said["Digest"], image.manifest.digest.to_string());
        assert_eq!(said["Env"], serde_json::json!(["PATH=/bin"]));
        let (layout, bundle) = (format!("layout-{gzip}"), format!("bundle-{gzip}"));
        fs::create_dir(top.join(&layout)).unwrap();
        run("tar", &["-C", &layout, "-xf", &name], top);
        run("umoci", &["unpack", "--image", &format!("{layout}:latest"), &bundle], top);
        let file = fs::metadata(top.join(&bundle).join("rootfs/etc/file")).unwrap();
        assert_eq!(
            (file.len(), file.mode() & 0o7777, file.uid(), file.gid(), file.nlink()),
            (300_000, 0o4755, 1000, 100, 2)
        );
        run("diff", &["-r", "root", &format!("{bundle}/rootfs")], top);
    }
}

#[tokio::test]
async fn a_pushed_image_is_pulled_again() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    let layer = root_filesystem(top);
    let blobs = Blobs::open(&top.join("blobs")).unwrap();
    let image = built(&blobs, &layer, true).await;
    let registry = Registry::start(top, true);
    let registries = registries(&[&registry.host]);
    let name = format!("{}/pushed/image:1", registry.host);
    let reference = name.parse().unwrap();
    let error = registries.push(&blobs, &image, &reference, &Credentials::Anonymous).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied, "{error}");
    registries.push(&blobs, &image, &reference, &password("secret")).await.unwrap();
    // What is there already is not sent again.
    registries.push(&blobs, &image, &reference, &password("secret")).await.unwrap();
    let other = Blobs::open(&top.join("other")).unwrap();
    let pulled = pull(&registries, &other, &name, &password("secret")).await.0.unwrap();
    assert_eq!(pulled.manifest_digest, image.manifest.digest);
    let to = top.join("to");
    fs::create_dir(&to).unwrap();
    let blob = fs::File::open(other.path(&pulled.layers[0].descriptor.digest)).unwrap();
    let applied = apply_layer(&fs::File::open(&to).unwrap().into(), blob, &LayerOptions::default()).unwrap();
    assert_eq!(
        (&applied.diff_id, &applied.digest),
        (&pulled.layers[0].diff_id, &pulled.layers[0].descriptor.digest)
    );
    run("diff", &["-r", "root", "to"], top);
}

#[tokio::test]
async fn a_layer_that_breaks_off_or_is_too_large_leaves_no_blob() {
    let top = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(top.path()).unwrap();
    let piece = || Ok(Bytes::from(vec![1; 1000]));
    let broken = Err(Error::new(ErrorCode::Unavailable, "gone"));
    let error = blobs.add_layer(stream::iter([piece(), broken]), true, 1 << 20).await.unwrap_err();
    assert_eq!(error.message, "gone");
    let error = blobs.add_layer(stream::iter([piece(), piece()]), false, 1500).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::TooLarge);
    assert_eq!(blobs.list().await.unwrap(), []);
    assert_eq!(fs::read_dir(top.path().join("partial")).unwrap().count(), 0);
    // A killed writer's file is removed at the next start, and a pull's is kept for the next pull.
    let half = top.path().join("partial").join("0".repeat(64));
    for path in [&top.path().join("partial/new-7"), &half] {
        fs::write(path, "half").unwrap();
    }
    let blobs = Blobs::open(top.path()).unwrap();
    assert_eq!(fs::read_dir(top.path().join("partial")).unwrap().count(), 1);
    blobs.sweep(std::time::Duration::from_secs(3600)).await.unwrap();
    assert!(half.exists());
    blobs.sweep(std::time::Duration::ZERO).await.unwrap();
    assert!(!half.exists());
}
