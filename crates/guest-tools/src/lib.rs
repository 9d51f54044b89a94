//! Work on whole folders: find, grep, pack, unpack, watch; and the process API. PID 1 starts each as a command of the
//! sandbox's user, so that it has the user's rights, counts against the sandbox's limits and ends like
//! any other command.
//!
//! Without features this is the protocol between the host and the tools. `run` holds the tools; `archive` the
//! part of them that the command line shares: packing a folder, and unpacking an archive that is not trusted.
//! Nothing here is asynchronous and nothing here is unsafe.

#[cfg(feature = "archive")]
pub mod archive;
#[cfg(feature = "archive")]
mod beneath;
#[cfg(feature = "archive")]
pub mod errno;
#[cfg(feature = "run")]
pub mod image;
mod image_shapes;
#[cfg(feature = "run")]
pub mod run;
mod shapes;
#[cfg(feature = "archive")]
mod walk;

pub use atoll_types::files::EntryKind;
pub use image_shapes::{
    AppliedLayer, ApplyLayer, ArchiveKind, Compression, DEEPEST_ENTRY, ID_LIMIT, ImageLimits, LONGEST_ENTRY,
    LONGEST_IMAGE_ANSWER, LONGEST_NAME, LeftOut, MOST_IMAGE_BYTES, MOST_IMAGE_ENTRIES, MOST_LAYERS,
    MOST_RATIO, PackImage, PackedLayer, RATIO_FREE, UnpackImage, UnpackedImage,
};
pub use shapes::{
    End, ExportFolder, ExportFolders, ExportSnapshots, Find, FindLine, Found, Grep, GrepLine, ImportFolders,
    KindFilter, LARGEST_FILE, LONGEST_LINE, LONGEST_PATH, LONGEST_PATTERN, MOST_CONTEXT, MOST_FOUND,
    MOST_MATCHES, MOST_OUTPUT, Match, PROCESS_API_PORT, Pack, ProcessApi, Unpack, Unpacked, Watch,
    WatchEvent, WatchEventKind, checked_path, path_pattern, relative_pattern,
};
