//! Observers on a real pool in a loop device; needs root. Every test has a pool of its own, and ends
//! with no mount and no loop device left.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod cost;
mod fixture;
mod folders;
mod hostile;
mod links;
mod mapped;
mod model;
mod mounts;
mod names;
mod property;
mod raw;
mod scanner;
