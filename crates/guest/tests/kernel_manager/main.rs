//! Drives the real kernel manager, `atoll-init tool kernels`, with real interpreters, over its stdin and stdout. Every
//! test has a kernel manager of its own, and one that leaves a process behind fails its test.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod support;

mod cells;
mod copies;
mod ends;
mod hostile;
mod languages;
