//! The image of `atoll run`, from the catalogue that a server keeps in the same data folder. Only read: a server may have it open, and
//! is the one that pulls.

use crate::database;
use atoll_provider::ContainerSpec;
use atoll_types::{Error, ErrorCode, ImageName, ImageRecord, Result};
use std::path::Path;

/// The image of a name in the catalogue, if there is one.
async fn find(data_dir: &Path, image: &str) -> Result<Option<ImageRecord>> {
    let unreadable = |e: Error| Error::internal(format!("the catalogue cannot be read: {e}"));
    let store = database::open_read_only(data_dir).await.map_err(unreadable)?;
    let found = atoll_core::image_named(&*store.store(), image).await;
    store.close().await;
    found
}

/// The same; an image of a registry that is not here is pulled first, by the server of the environment where its settings let it.
async fn find_or_pull(data_dir: &Path, image: &str) -> Result<ImageRecord> {
    let unknown = |why: &str| {
        let message = format!("there is no image {image:?}{why}");
        Error::new(ErrorCode::NotFound, message).at("image")
    };
    if !database::is_there(data_dir)? {
        return Err(unknown(": no server has run on this data folder"));
    }
    if let Some(found) = find(data_dir, image).await? {
        return Ok(found);
    }
    atoll_cli::pull_with_environment(image).await?;
    find(data_dir, image).await?.ok_or_else(|| {
        unknown(&format!("; `atoll image ls` shows those there are{}", atoll_core::way_to(image)))
    })
}

/// Makes the container one of an image, with what that says of variables and user; returns the directory of its commands.
pub(crate) async fn apply(data_dir: &Path, image: &str, spec: &mut ContainerSpec) -> Result<Option<String>> {
    if image == ImageName::host().as_str() {
        return Ok(None);
    }
    let record = find_or_pull(data_dir, image).await?;
    let config = &record.config;
    spec.profile.image = ImageName::of(record.id);
    if let (Some((uid, gid)), "default") = (config.ids, spec.profile.name.as_str()) {
        (spec.profile.uid, spec.profile.gid) = (uid, gid);
    }
    let given = std::mem::take(&mut spec.environment);
    spec.environment = config.environment.clone().into_iter().chain(given).collect();
    Ok(atoll_core::image_directory(config, &spec.profile))
}
