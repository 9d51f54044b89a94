//! Images' root filesystems: layers onto a folder, whole archives into one, and a folder as a layer. These run in a build
//! sandbox, as its root. Layers and archives are hostile: nothing is written outside of the folder, every length and
//! count has a limit, and what is refused is named.

mod apply;
mod archive;
mod decode;
mod folder;
mod pack;

pub use apply::{LayerOptions, apply_layer};
pub use archive::unpack_image;
pub use pack::{pack_image, pack_layer};
