//! Storage on real loop devices, mounts and quotas; needs root. Every test has a folder of its own, and
//! ends with no mount and no loop device in it.
#![allow(clippy::unwrap_used)]

mod dir;
mod fixture;
mod image;
mod in_place;
mod limits;
mod native;
mod parallel;
mod promises;
mod repair;
mod sealed;
mod snapshots;
