//! A root folder for a test.

use super::ToolLocation;
use std::{collections::BTreeMap, fs};
use tempfile::TempDir;

/// A root folder with some files.
pub(super) struct Trial(TempDir);

impl Trial {
    /// Makes one.
    pub(super) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    /// As if it were the machine.
    pub(super) fn machine(&self, variables: &[(&str, &str)]) -> ToolLocation {
        ToolLocation::as_machine(self.0.path(), variables)
    }

    /// As an image.
    pub(super) fn image(&self) -> ToolLocation {
        ToolLocation::image_folder(self.0.path(), BTreeMap::new()).unwrap()
    }
}
