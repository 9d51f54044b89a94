//! Images of the catalogue that are built when a create first names them, where `images.build_on_use` says so. A template that
//! ships is the operator's, so an ordinary key may have it built where it may use an image that no admin has looked at.

use super::{BuildImage, Recipe};
use crate::{Caller, PoolBounds, images::Images};
use atoll_store::Scope;
use atoll_types::{Error, ErrorCode, ImageOrigin, ImageTag, Result};
use std::time::Duration;
use tokio::time::Instant;

/// How long a request waits for another that asks whether the same image is here.
const PATIENCE: Duration = Duration::from_secs(30);

fn as_it_ships(template: &str) -> BuildImage {
    BuildImage {
        recipe: Recipe::Shipped(template.to_owned()),
        name: None,
        replace: false,
        disk_mb: None,
        memory_mb: None,
        cpu_cores: None,
        egress: None,
        no_cache: false,
        lock: Vec::new(),
        pool: PoolBounds::default(),
    }
}

impl Images {
    /// Builds a template that ships, and waits for it. Does nothing where the settings do not allow it.
    pub(in crate::images) async fn build_on_use(&self, caller: &Caller, template: &str) -> Result<()> {
        let may = caller.scope == Scope::Admin || self.is_unrestricted();
        if !self.live_settings.now().images_build_on_use || !may {
            return Ok(());
        }
        let late = || Error::new(ErrorCode::Conflict, format!("{template} is being built; try again"));
        // Requests for one image wait for one build.
        let turn = self.turns.take(&format!("build {template}"), Instant::now() + PATIENCE, late).await?;
        if self.catalogue.unbuilt(template).is_none() {
            return Ok(());
        }
        let tag = ImageTag::parse(template);
        let running = self.store.running_builds().await?.into_iter().find(|build| {
            let same = build.origin == ImageOrigin::Template && Some(&build.tag) == tag.as_ref();
            same && self.builds.find(build.id).is_some()
        });
        let build = match running {
            Some(build) => build.id,
            None => {
                // The caller's, which may follow it; the request is the server's own.
                let builder = Caller::lifecycle(&caller.owner, &caller.owner_name);
                self.build_image(&builder, as_it_ships(template)).await?.id
            }
        };
        drop(turn);
        let failed = |why| {
            let message = format!("the image {template} could not be built: {why}");
            Error::new(ErrorCode::Unavailable, message).at("image")
        };
        self.await_done(build).await?.map_err(failed)
    }
}
