//! Checks of the repository's documents: the paths and links that they name exist, every promise of
//! SPECIFICATION.md names a test or a benchmark that exists, and the documents that everybody reads first stay
//! short. The checks take text and return what is wrong with it, so they are tried against broken documents too.
//!
//! Nothing here reads a document by itself, and no product crate depends on this one.

mod markdown;
mod paths;
mod promises;
mod size;
mod sources;

pub use paths::{unnamed_unsafe, wrong_paths};
pub use promises::{Promise, promises, wrong_promises};
pub use size::too_large;
pub use sources::Sources;
