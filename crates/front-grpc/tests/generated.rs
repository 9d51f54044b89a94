//! The generated code and the descriptors for reflection are those of `proto/sandbox/v1/sandbox.proto`.
//! `ATOLL_BLESS=1` writes both anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use prost::Message;
use std::{fs, path::Path};

/// Compares with the kept bytes, or keeps these.
fn compare(name: &str, fresh: &[u8]) {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gen").join(name);
    if std::env::var_os("ATOLL_BLESS").is_some() {
        fs::write(&kept, fresh).unwrap();
    }
    assert!(
        fs::read(&kept).unwrap() == fresh,
        "src/gen/{name} is stale: run ATOLL_BLESS=1 cargo test -p atoll-front-grpc"
    );
}

#[test]
fn generated_code_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let descriptors = protox::compile(["sandbox/v1/sandbox.proto"], [&root]).unwrap();
    // Reflection tells names and numbers; comments are for the file's readers.
    let mut bare = descriptors.clone();
    bare.file.iter_mut().for_each(|file| file.source_code_info = None);
    compare("sandbox.v1.bin", &bare.encode_to_vec());
    let out = std::env::temp_dir().join(format!("atoll-front-grpc-{}", std::process::id()));
    fs::create_dir_all(&out).unwrap();
    tonic_prost_build::configure().out_dir(&out).compile_fds(descriptors).unwrap();
    let fresh = fs::read_to_string(out.join("sandbox.v1.rs")).unwrap();
    fs::remove_dir_all(&out).unwrap();
    // The client is a feature of ours, not of the generator.
    let module = "pub mod sandbox_service_client {";
    let fresh = fresh.replace(module, &format!("#[cfg(feature = \"client\")]\n{module}"));
    compare("sandbox.v1.rs", fresh.as_bytes());
}
