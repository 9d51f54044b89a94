//! A registry on loopback, and images for it.

use atoll_oci::{Blobs, Credentials, Network, PullEvent, PullLimits, PulledImage, Registries};
use atoll_types::Result;
use std::{fs, path::Path, sync::Mutex};

pub(crate) use crate::debian::{Registry, run};

/// An OCI layout in `layout` with two layers, made by umoci.
pub(crate) fn build_layout(top: &Path) {
    run("umoci", &["init", "--layout", "layout"], top);
    run("umoci", &["new", "--image", "layout:latest"], top);
    fs::write(top.join("first"), vec![7; 3 << 20]).unwrap();
    fs::write(top.join("second"), "second").unwrap();
    for name in ["first", "second"] {
        run("umoci", &["insert", "--image", "layout:latest", name, &format!("/{name}")], top);
    }
    run("umoci", &["config", "--image", "layout:latest", "--config.env", "A=b"], top);
}

/// A registry, and its storage on another host.
pub(crate) fn companions(registry: &str, storage: &str) -> Registries {
    let reach = atoll_egress::Reach::default();
    let network = Network::new(move |address| reach.is_denied(address));
    let network = network.with_insecure([registry.to_owned(), storage.to_owned()]);
    Registries::new(network.with_companions(registry, [storage.to_owned()])).unwrap()
}

/// Registries, of which those at these hosts may be on loopback and without TLS.
pub(crate) fn registries(insecure: &[&str]) -> Registries {
    let reach = atoll_egress::Reach::default();
    let network = Network::new(move |address| reach.is_denied(address));
    Registries::new(network.with_insecure(insecure.iter().map(|host| (*host).to_owned()))).unwrap()
}

/// Pulls, and returns what was told meanwhile.
pub(crate) async fn pull(
    registries: &Registries,
    blobs: &Blobs,
    reference: &str,
    credentials: &Credentials,
) -> (Result<PulledImage>, Vec<PullEvent>) {
    let events = Mutex::new(Vec::new());
    let told = |event| events.lock().unwrap().push(event);
    let reference = reference.parse().unwrap();
    let pulled = registries.pull(blobs, &reference, credentials, &PullLimits::default(), &told).await;
    (pulled, events.into_inner().unwrap())
}

pub(crate) fn password(password: &str) -> Credentials {
    Credentials::Basic { user: "user".into(), password: password.into() }
}
