//! Link options for the static build, whose size counts: it is in the memory of every sandbox.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let features = std::env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        // A position-independent program relocates itself; packed, the list is a fortieth as long.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        println!("cargo::rustc-link-arg-bins=-Wl,-z,noseparate-code");
        println!("cargo::rustc-link-arg-bins=-Wl,--build-id=none");
    }
}
