//! Folders as tar archives, in both directions. An incoming archive is hostile, whichever side unpacks it:
//! nothing is written outside of the folder, nothing is written through a link, and no file appears half-written.

mod changes;
mod folders;
mod frame;
mod pack;
pub(crate) mod read;
mod section;
pub(crate) mod sparse;
mod split;
mod unpack;
pub(crate) mod write;

pub use folders::{MOST_ENTRIES, pack_folders, unpack_folders};
pub use frame::{END_MARK, EntryHead, HeadKind, entry_head, file_head, small_file, small_file_length};
pub use pack::pack;
#[cfg(feature = "run")]
pub(crate) use pack::{broken, check_readable, complete};
pub use read::{ArchivedKind, Entries, Entry};
pub use section::{Counted, Section};
pub use split::{Splitter, part_folder};
pub use unpack::{Links, unpack};

/// A block of an archive.
pub const BLOCK: usize = 512;
