//! The images that containers start from. The launcher inspects the machine's own image once, when it starts,
//! because that costs more than a whole container start should; a worker inspects it again when the machine's
//! libraries have changed since.

use atoll_storage::{Image, open_image};
use atoll_types::{ImageName, Result};
use std::{
    ffi::OsStr,
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

    /// Where the root of an image lies, by its id.
    pub(crate) fn root(&self, id: &OsStr) -> PathBuf {
        self.folder.join(id)
    }

    /// The image of this name.
    pub(crate) fn open(&self, name: &ImageName) -> Result<Image> {
        if *name == ImageName::host() && self.seen == stamp() {
            return Ok(self.host.clone());
        }
        open_image(&self.folder, name.as_str())
    }
}
