//! Images: one request to the launcher each.

use crate::{NativeProvider, unexpected};
use async_trait::async_trait;
use atoll_launch_proto::{ImageVolumeRequest, LauncherReply, Request, SealRequest};
use atoll_provider::Images;
use atoll_types::{ImageId, ImageUsage, Result, VolumeId};

#[async_trait]
impl Images for NativeProvider {
    async fn seal(&self, volume: VolumeId, image: ImageId) -> Result<()> {
        self.launcher.ask(Request::SealImage(SealRequest { volume, image })).await.map(|_| ())
    }

    async fn volume_from_image(&self, image: ImageId, volume: VolumeId, bytes: u64) -> Result<()> {
        let asked = ImageVolumeRequest { image, volume, disk_bytes: bytes };
        self.launcher.ask(Request::VolumeFromImage(asked)).await.map(|_| ())
    }

    async fn remove_image(&self, image: ImageId) -> Result<()> {
        self.launcher.ask(Request::RemoveImage(image)).await.map(|_| ())
    }

    async fn list_images(&self) -> Result<Vec<ImageUsage>> {
        match self.launcher.ask(Request::ListImages).await? {
            LauncherReply::Images(all) => Ok(all),
            other => Err(unexpected(&other)),
        }
    }
}
