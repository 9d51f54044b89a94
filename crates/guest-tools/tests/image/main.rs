//! Images' root filesystems: as other tools unpack them, and hostile ones.
#![allow(clippy::unwrap_used)]

mod hostile;
mod layers;
mod others;
mod support;
