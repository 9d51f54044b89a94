//! The store on real files. Every test has a folder of its own.
#![allow(clippy::unwrap_used)]

mod bounds;
mod broken;
mod conformance;
mod crash;
mod fixture;
mod full_disk;
mod listing;
mod opening;
mod operations;
