//! Read-only root filesystems: those that were sealed are in [`crate::Storage`], and here is `host`, the machine's own /usr
//! under a skeleton with a curated /etc. An image is a list of trees that the launcher mounts; nothing here mounts anything.
//!
//! The invariant: nothing reaches an image from the machine's /etc that is not on the list in `allow`,
//! world-readable, small, and free of private keys.

mod allow;
mod build;
mod plan;
mod source;
mod written;

use crate::error::failed;
use crate::lock::Lock;
use atoll_types::{Error, ErrorCode, Result};
use plan::Plan;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
pub use written::NETWORK_FILES;

const PREFIX: &str = "host-";

/// A root filesystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its name with a hash of its content.
    pub id: String,
    /// What it is made of; the first is the root, and the others lie inside it.
    pub trees: Vec<ImageTree>,
}

/// A directory of the machine and where it appears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageTree {
    /// On the machine.
    pub source: PathBuf,
    /// In the sandbox; a directory is there to mount it on.
    pub at: String,
}

/// The image made of the machine itself.
#[derive(Debug, Clone)]
pub struct HostImage {
    root: PathBuf,
}

impl Default for HostImage {
    fn default() -> Self {
        Self::of("/")
    }
}

impl HostImage {
    /// The image of the machine whose root is this folder.
    #[must_use]
    pub fn of(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Finds the image of the machine as it is now, or builds it.
    pub fn ensure(&self, images_dir: &Path) -> Result<Image> {
        let plan = Plan::of(&self.root)?;
        let id = format!("{PREFIX}{}", plan.hash());
        let place = images_dir.join(&id);
        if !place.exists() {
            fs::create_dir_all(images_dir).map_err(failed("make the folder of images"))?;
            let _held = Lock::take(&images_dir.join(".lock"))?;
            build::build(&plan, images_dir, &id)?;
        }
        let root = ImageTree { source: place, at: "/".into() };
        let inside =
            plan.mounts.iter().map(|name| ImageTree { source: self.root.join(name), at: format!("/{name}") });
        Ok(Image { id, trees: std::iter::once(root).chain(inside).collect() })
    }
}

/// Finds an image by its name in the catalogue.
pub fn open_image(images_dir: &Path, name: &str) -> Result<Image> {
    match name {
        "host" => HostImage::default().ensure(images_dir),
        _ => Err(Error::new(ErrorCode::NotFound, format!("there is no image {name:?}; there is `host`"))
            .at("image")),
    }
}

/// The ids of the images in a folder, older versions of `host` included.
pub fn list(images_dir: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(images_dir) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed("list the images"))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with(PREFIX)).collect())
}

/// Removes images that are not in use, and returns their ids.
pub fn gc(images_dir: &Path, in_use: &[String]) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    if !images_dir.exists() {
        return Ok(removed);
    }
    let _held = Lock::take(&images_dir.join(".lock"))?;
    for id in list(images_dir)? {
        if !in_use.contains(&id) {
            build::discard(images_dir, &images_dir.join(&id))?;
            removed.push(id);
        }
    }
    Ok(removed)
}
