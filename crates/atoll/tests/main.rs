//! Everything below drives the real thing: a real launcher, real containers, a real server. One program,
//! so that it links once; every test has an instance of its own, and an instance that ends with anything
//! left behind fails its test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod engine;
mod server;
