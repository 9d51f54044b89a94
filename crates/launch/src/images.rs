//! The images that containers start from. The launcher inspects the machine's own image once, when it starts,
//! because that costs more than a whole container start should; a worker inspects it again when the machine's
//! libraries have changed since. Images that were sealed are the storage's, and a volume may be the root of the container
//! in which its image is built.

use crate::context::Context;
use atoll_storage::{DATA, Image, ImageTree, Tree, open_image};
use atoll_types::{Error, ErrorCode, ImageName, Profile, Result, VolumeId};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Changes whenever a library is installed or removed.
const LINKER_CACHE: &str = "/etc/ld.so.cache";

/// The images of an instance.
pub(crate) struct Images {
    folder: PathBuf,
    host: Image,
    seen: Option<(u64, i64, i64)>,
}

fn stamp() -> Option<(u64, i64, i64)> {
    fs::metadata(LINKER_CACHE).ok().map(|m| (m.ino(), m.mtime(), m.mtime_nsec()))
}

impl Images {
    /// Inspects the machine and builds its image if need be.
    pub(crate) fn look(folder: &Path) -> Result<Self> {
        let seen = stamp();
        let host = open_image(folder, ImageName::host().as_str())?;
        Ok(Self { folder: folder.into(), host, seen })
    }

    fn open(&self, name: &ImageName) -> Result<Image> {
        if *name == ImageName::host() && self.seen == stamp() {
            return Ok(self.host.clone());
        }
        open_image(&self.folder, name.as_str())
    }
}

/// How the id of a root begins that is built in a volume.
const BUILD: &str = "build-";

/// The id of the root that is built in a volume.
pub(crate) fn build_root(volume: VolumeId) -> String {
    format!("{BUILD}{volume}")
}

/// Whether what has this id may change.
pub(crate) fn is_built(id: &str) -> bool {
    id.starts_with(BUILD)
}

impl Context {
    /// The root filesystem of a profile.
    pub(crate) fn image(&self, profile: &Profile) -> Result<Image> {
        let Some(volume) = profile.build_root else {
            return match profile.image.id() {
                Some(id) => self.storage.sealed_image(id),
                None => self.images.open(&profile.image),
            };
        };
        let source = self.build_folder(volume);
        if !source.is_dir() {
            let message = "there is no volume to build in, or it is none that containers attach";
            return Err(Error::new(ErrorCode::Conflict, message).at("profile.build_root"));
        }
        Ok(Image { id: build_root(volume), trees: vec![ImageTree { source, at: "/".into() }] })
    }

    fn build_folder(&self, volume: VolumeId) -> PathBuf {
        self.storage.path(Tree::Volume(volume)).join(DATA)
    }

    /// Where the root of an image is or was, by its id.
    pub(crate) fn image_root(&self, id: &str) -> PathBuf {
        if let Some(volume) = id.strip_prefix(BUILD).and_then(|id| id.parse().ok()) {
            return self.build_folder(volume);
        }
        match id.parse::<ImageName>().ok().and_then(|name| name.id()) {
            Some(sealed) => self.storage.image_root(sealed),
            None => self.images.folder.join(id),
        }
    }
}
