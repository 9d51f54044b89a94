//! Folders as tar archives, in both directions. An incoming archive is hostile, whichever side unpacks it:
//! nothing is written outside of the folder, nothing is written through a link, and no file appears half-written.

mod pack;
mod read;
mod unpack;
mod write;

pub use pack::pack;
pub use unpack::{Links, unpack};

/// A block of an archive.
const BLOCK: usize = 512;
