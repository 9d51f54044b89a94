//! The one table from the kernel's error numbers to the codes that a caller sees. The tools share it.

pub(crate) use atoll_guest_tools::errno::{code, on_path, text};
