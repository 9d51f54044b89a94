//! The store on a real server of PostgreSQL. Every test has a database of its own.
#![allow(clippy::unwrap_used)]

mod cluster;
mod conformance;
mod copying;
mod fixture;
#[path = "../../store-sqlite/tests/listing.rs"]
mod listing;
mod opening;
#[path = "../../store-sqlite/tests/operations.rs"]
mod operations;
mod outages;
