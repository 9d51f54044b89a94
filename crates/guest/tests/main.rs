//! Drives the real `atoll-init` over its socket. Every test has its own process, in a mount namespace
//! of its own with a root made for it, so all of them run at once and leave nothing behind.
//! They need to be root.
#![allow(unsafe_code, clippy::unwrap_used)]

mod support;

mod descriptors;
mod exec;
mod exhausted;
mod files;
mod kill;
mod measure;
mod newest;
mod output;
mod privileges;
mod seccomp;
mod sockets;
mod startup;
mod stdin;
mod terminal;
mod tools;
mod usage;
