//! Pulls, pushes and layouts against a real registry, against one that lies, and read by other tools.
#![allow(clippy::unwrap_used)]

mod broken;
mod debian;
mod layout;
mod real;
mod support;
