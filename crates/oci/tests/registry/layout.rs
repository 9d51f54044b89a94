//! Images made here, pushed.

use crate::support::*;
use atoll_guest_tools::image::{LayerOptions, apply_layer, pack_image};
use atoll_oci::{Blobs, Credentials, Descriptor, ImageConfig, ImageDocuments, Layer, media};
use atoll_types::ErrorCode;
use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
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

/// A layer among the blobs, and the documents of its image.
async fn built(blobs: &Blobs, layer: &[u8]) -> ImageDocuments {
    let digest = blobs.put(layer).await.unwrap();
    let descriptor = Descriptor::new(media::LAYER, digest.clone(), layer.len() as u64);
    let config = ImageConfig { working_dir: "/etc".into(), ..ImageConfig::default() };
    ImageDocuments::new(&[Layer { descriptor, diff_id: digest }], &config).unwrap()
}

#[tokio::test]
async fn a_pushed_image_is_pulled_again() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    let layer = root_filesystem(top);
    let blobs = Blobs::open(&top.join("blobs")).unwrap();
    let image = built(&blobs, &layer).await;
    let registry = Registry::start(top, true);
    let registries = registries(&[&registry.host]);
    let name = format!("{}/pushed/image:1", registry.host);
    let reference = name.parse().unwrap();
    let error = registries.push(&image, &blobs, &reference, &Credentials::Anonymous).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied, "{error}");
    registries.push(&image, &blobs, &reference, &password("secret")).await.unwrap();
    // What is there already is not sent again.
    registries.push(&image, &blobs, &reference, &password("secret")).await.unwrap();
    let other = Blobs::open(&top.join("other")).unwrap();
    let pulled = pull(&registries, &other, &name, &password("secret")).await.0.unwrap();
    assert_eq!(pulled.manifest_digest, image.manifest_descriptor().digest);
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
async fn what_was_left_half_done_is_removed_or_kept_for_the_next_pull() {
    let top = tempfile::tempdir().unwrap();
    let half = top.path().join("partial").join("0".repeat(64));
    fs::create_dir(top.path().join("partial")).unwrap();
    for path in [&top.path().join("partial/new-7"), &half] {
        fs::write(path, "half").unwrap();
    }
    // A killed writer's file is removed, and a pull's is kept.
    let blobs = Blobs::open(top.path()).unwrap();
    assert_eq!(fs::read_dir(top.path().join("partial")).unwrap().count(), 1);
    blobs.sweep(std::time::Duration::from_secs(3600)).await.unwrap();
    assert!(half.exists());
    blobs.sweep(std::time::Duration::ZERO).await.unwrap();
    assert!(!half.exists());
}
