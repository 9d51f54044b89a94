//! Builds atoll-init as a static program and hands its path to the compiler, which embeds it.
//!
//! It needs a cargo of its own, because PID 1 is linked statically and nothing else is; the inner
//! build has a target folder of its own, so the two never wait for each other.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.parent().and_then(Path::parent).expect("crates/launch lies two below the root");
    let crates =
        ["guest", "guest-proto", "guest-tools", "kernels", "types"].map(|name| format!("crates/{name}"));
    for part in ["Cargo.lock", "Cargo.toml"].map(str::to_owned).iter().chain(&crates) {
        println!("cargo::rerun-if-changed={}", root.join(part).display());
    }
    let target = env::var("TARGET").expect("cargo sets it");
    // OUT_DIR is <target>/<profile>/build/<package>/out. PROFILE says "release" for every profile that inherits
    // from it, the quick one too, so the folder's name tells which it is.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let outer = out.ancestors().nth(3).expect("OUT_DIR is deep enough");
    let optimised = outer.ends_with("release") || outer.ends_with("dist");
    let profile = if optimised { "init" } else { "init-dev" };
    let folder = outer.parent().expect("a profile's folder lies in the target folder").join("init");

    let status = Command::new(env::var_os("CARGO").expect("cargo sets it"))
        .current_dir(root)
        .args(["build", "--quiet", "--locked", "--package", "atoll-guest", "--bin", "atoll-init"])
        .args(["--profile", profile, "--target", &target, "--target-dir"])
        .arg(&folder)
        .arg("--config")
        .arg(format!("target.{target}.rustflags=[\"-C\",\"target-feature=+crt-static\"]"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .expect("cargo can be run");
    assert!(status.success(), "atoll-init did not build");
    let init = folder.join(&target).join(profile).join("atoll-init");
    println!("cargo::rustc-env=ATOLL_INIT_PATH={}", init.display());
}
