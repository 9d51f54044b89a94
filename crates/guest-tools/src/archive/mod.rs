//! Folders as tar archives, in both directions. An incoming archive is hostile, whichever side unpacks it:
//! nothing is written outside of the folder, nothing is written through a link, and no file appears half-written.

mod frame;
mod pack;
mod read;
mod unpack;
mod volume;
mod write;

pub use frame::{END_MARK, small_file, small_file_length};
pub use pack::pack;
pub use unpack::{Links, unpack};
pub use volume::{MOST_ENTRIES, pack_folders, unpack_folders};

/// A block of an archive.
pub const BLOCK: usize = 512;
