//! Volumes: a folder each, without a limit.

use crate::ProcessProvider;
use async_trait::async_trait;
use atoll_provider::{DiskRoom, Volumes};
use atoll_types::{Error, ErrorCode, Result, VolumeId};
use std::{fs, io, path::PathBuf};

impl ProcessProvider {
    pub(crate) fn volume_folder(&self, id: VolumeId) -> PathBuf {
        self.folder.path().join("volumes").join(id.to_string())
    }
}

fn failed(error: &io::Error) -> Error {
    Error::internal(format!("the folder of volumes: {error}"))
}

#[async_trait]
impl Volumes for ProcessProvider {
    async fn list_volumes(&self) -> Result<Vec<VolumeId>> {
        let entries = fs::read_dir(self.folder.path().join("volumes")).map_err(|e| failed(&e))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    async fn remove_volume(&self, id: VolumeId) -> Result<()> {
        if self.uses(id) {
            return Err(Error::new(ErrorCode::Conflict, "a container uses this volume"));
        }
        match fs::remove_dir_all(self.volume_folder(id)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(&e)),
            _ => Ok(()),
        }
    }

    async fn resize_volume(&self, _: VolumeId, _: u64) -> Result<()> {
        Err(Error::new(ErrorCode::Unsupported, "volumes of this provider have no limit"))
    }

    async fn room(&self) -> Result<DiskRoom> {
        let disk = rustix::fs::statvfs(self.folder.path()).map_err(|e| failed(&e.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(DiskRoom { capacity_bytes: bytes(disk.f_blocks), free_bytes: bytes(disk.f_bavail), low: false })
    }
}
