//! Images to registries. The files are one layer, packed and compressed in a container that has a copy of the image, and streamed from
//! there to the registry where that lacks it: nothing is kept on the way.

use super::{
    Images, RegistryLogin,
    export::{ImageCopy, documents},
};
use crate::{Caller, operation::OperationSpec};
use atoll_guest_tools::PackedLayer;
use atoll_oci::{Descriptor, LayerSource, Reference};
use atoll_types::{Error, Operation, Result};
use bytes::Bytes;
use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{BoxStream, try_unfold},
};

/// Where an image is pushed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushImage {
    /// HOST/NAME:TAG.
    pub reference: String,
    /// Who asks; as the operator's file says where it is left out.
    pub login: Option<RegistryLogin>,
}

/// An image that a registry has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedImage {
    pub reference: String,
    /// The manifest's.
    pub digest: String,
    /// Of the compressed layer.
    pub size_bytes: u64,
}

/// The layer of an image, packed again for each that asks for it.
struct PackedImage {
    copy: ImageCopy,
    layer: PackedLayer,
}

impl LayerSource for PackedImage {
    fn open<'a>(
        &'a self,
        _layer: &'a Descriptor,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<Bytes>>>> {
        Box::pin(async {
            let stream = self.copy.pack(&self.layer, true).await?;
            let pieces = try_unfold(stream, |mut stream| async move {
                Ok::<_, Error>(stream.next().await?.map(|piece| (piece, stream)))
            });
            Ok(pieces.boxed())
        })
    }
}

impl Images {
    /// Pushes an image to a registry, and waits for that. A caller that goes away ends it; what the registry has of it by then is
    /// an upload that no tag names.
    pub async fn push(&self, caller: &Caller, image: &str, request: PushImage) -> Result<PushedImage> {
        let mut what =
            OperationSpec::new(Operation::ImagePush).with(image).and("reference", &request.reference);
        what.secrets = request.login.iter().map(|login| login.secret().to_owned()).collect();
        let audited = self.operations.audited(caller, what).await?;
        let result = self.push_as(caller, image, request).await;
        audited.done(result).await
    }

    async fn push_as(&self, caller: &Caller, image: &str, request: PushImage) -> Result<PushedImage> {
        let reference: Reference = request.reference.parse()?;
        if reference.digest().is_some() {
            return Err(Error::invalid(
                "reference",
                "an image is pushed under a tag, and not under a digest",
            ));
        }
        let record = self.exportable(image).await?;
        let credentials = match request.login {
            Some(login) => login.credentials()?,
            None => self.layers.credentials(&reference).await?,
        };
        let layers = self.layers.acquire().await?;
        let copy = self.copy_of(caller, &record).await?;
        let layer = copy.measure(true).await?;
        let documents = documents(&record.config, &layer, true)?;
        let packed = PackedImage { copy, layer };
        layers.registries.push(&documents, &packed, &reference, &credentials).await?;
        Ok(PushedImage {
            reference: reference.to_string(),
            digest: documents.manifest_descriptor().digest.to_string(),
            size_bytes: packed.layer.size,
        })
    }
}
