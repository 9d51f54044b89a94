//! Debian's registry, filled by skopeo.

use crate::support::*;
use atoll_oci::{Blobs, Credentials, Digest, PullEvent, PullLimits};
use atoll_types::ErrorCode;
use std::{fs, path::Path};

/// Every blob is what its name says.
fn verified(folder: &Path) -> usize {
    let all: Vec<_> =
        fs::read_dir(folder.join("blobs/sha256")).unwrap().map(|entry| entry.unwrap()).collect();
    for entry in &all {
        let digest = Digest::of(&fs::read(entry.path()).unwrap());
        assert_eq!(digest.hex(), entry.file_name().to_str().unwrap());
    }
    assert_eq!(fs::read_dir(folder.join("partial")).unwrap().count(), 0);
    all.len()
}

#[tokio::test]
async fn an_image_is_pulled_once_and_whole() {
    let top = tempfile::tempdir().unwrap();
    build_layout(top.path());
    let registry = Registry::start(top.path(), false);
    registry.fill(top.path(), "some/image:1", false);
    let folder = top.path().join("blobs");
    let blobs = Blobs::open(&folder).unwrap();
    let registries = registries(&[&registry.host]);
    let name = format!("{}/some/image:1", registry.host);
    // Two pulls at once share every blob.
    let anonymous = Credentials::Anonymous;
    let (first, second) = tokio::join!(
        pull(&registries, &blobs, &name, &anonymous),
        pull(&registries, &blobs, &name, &anonymous)
    );
    let (image, events) = (first.0.unwrap(), first.1);
    assert_eq!(second.0.unwrap(), image);
    assert_eq!(image.layers.len(), 2);
    assert!(image.config.env.contains(&("A".into(), "b".into())));
    assert_eq!(verified(&folder), 4);
    let bytes: u64 = image.layers.iter().map(|layer| layer.descriptor.size).sum();
    assert_eq!(events[0], PullEvent::Resolved { manifest: image.manifest_digest.clone(), layers: 2, bytes });
    for layer in &image.layers {
        let (digest, size) = (layer.descriptor.digest.clone(), layer.descriptor.size);
        assert!(events.contains(&PullEvent::Layer { digest, done: size, size }), "{events:?}");
    }
    let by_digest = format!("{}/some/image@{}", registry.host, image.manifest_digest);
    assert_eq!(pull(&registries, &blobs, &by_digest, &anonymous).await.0.unwrap(), image);
    let missing =
        pull(&registries, &blobs, &format!("{}/never:1", registry.host), &anonymous).await.0.unwrap_err();
    assert_eq!(missing.code, ErrorCode::NotFound, "{missing}");
    let limits = PullLimits { bytes: bytes - 1, ..PullLimits::default() };
    let refused =
        registries.pull(&blobs, &name.parse().unwrap(), &anonymous, &limits, &|_| {}).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::TooLarge, "{refused}");
}

#[tokio::test]
async fn a_password_is_asked_for_and_a_wrong_one_is_refused() {
    let top = tempfile::tempdir().unwrap();
    build_layout(top.path());
    let registry = Registry::start(top.path(), true);
    registry.fill(top.path(), "private:1", true);
    let blobs = Blobs::open(&top.path().join("blobs")).unwrap();
    let registries = registries(&[&registry.host]);
    let name = format!("{}/private:1", registry.host);
    for wrong in [Credentials::Anonymous, password("wrong"), Credentials::Bearer("x".into())] {
        let error = pull(&registries, &blobs, &name, &wrong).await.0.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{wrong:?}: {error}");
        assert!(!error.message.contains("wrong"), "{error}");
    }
    pull(&registries, &blobs, &name, &password("secret")).await.0.unwrap();
}

#[tokio::test]
async fn a_registry_on_loopback_must_be_named() {
    let top = tempfile::tempdir().unwrap();
    let registry = Registry::start(top.path(), false);
    let blobs = Blobs::open(&top.path().join("blobs")).unwrap();
    let name = format!("{}/x:1", registry.host);
    let error =
        pull(&registries(&["127.0.0.1:1"]), &blobs, &name, &Credentials::Anonymous).await.0.unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied, "{error}");
    assert!(error.message.contains("has no public address"), "{error}");
}
