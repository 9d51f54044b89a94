//! The trail on a real database. Every test has a folder of its own.
#![allow(clippy::unwrap_used)]

mod crash;
mod egress;
mod export;
mod files;
mod fixture;
mod full_disk;
mod heads;
mod histories;
mod ledger;
mod retention;
mod tampering;
