//! Has cargo embed the console again after `make ui` has built it.

fn main() {
    println!("cargo:rerun-if-changed=../../ui/dist");
}
