//! The end of images: by a request, because no sandbox used one for long, and what a former server left.

use super::{Images, event};
use crate::{Caller, PoolChange, operation::OperationSpec, run_to_end::run_to_end};
use atoll_types::{Error, ErrorCode, EventKind, ImageName, ImageRecord, Operation, Result};
use std::collections::HashSet;

impl Images {
    /// Removes an image with its files. Refused while a sandbox that is not destroyed uses it.
    pub async fn delete(&self, caller: &Caller, image: &str) -> Result<()> {
        self.delete_because(caller, image, None).await
    }

    /// The same, by the server itself for a reason.
    pub(crate) async fn delete_because(
        &self,
        caller: &Caller,
        image: &str,
        reason: Option<String>,
    ) -> Result<()> {
        let mut what = OperationSpec::new(Operation::ImageDelete).with(image);
        if let Some(reason) = reason {
            what = what.and("reason", reason);
        }
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let turn = self.turn().await?;
            let record = self.changeable(image).await?;
            if self.catalogue.is_default(&ImageName::of(record.id)) {
                let message = format!(
                    "creates that name no image use {}; give the setting db_default_image another one first",
                    record.reference()
                );
                return Err(Error::new(ErrorCode::Conflict, message));
            }
            let (images, gone) = (self.clone(), record.clone());
            run_to_end("the removal of the image", async move {
                let _turn = turn;
                images.end(&gone).await
            })
            .await?;
            Ok(record)
        }
        .await;
        if let Ok(removed) = &result {
            audited.add_event(event(caller, removed, EventKind::ImageRemoved));
        }
        audited.done(result.map(drop)).await
    }

    /// Removes an image and then its record; may be repeated.
    async fn end(&self, record: &ImageRecord) -> Result<()> {
        let users = self.store.begin_delete_image(record.id).await?;
        if !users.is_empty() {
            let ids: Vec<String> = users.iter().map(|id| id.uuid().to_string()).collect();
            let message = format!(
                "{} sandboxes are made of the image {}; remove them first",
                ids.len(),
                record.reference()
            );
            return Err(Error::new(ErrorCode::Conflict, message).fact("used_by", ids));
        }
        self.catalogue.load(&*self.store).await?;
        let name = ImageName::of(record.id);
        let change = PoolChange { enabled: None, images: [(name.to_string(), None)].into() };
        if self.live_settings.now().pool_images.contains_key(name.as_str()) {
            self.live_settings.change_by(&*self.store, |settings| change.settings(settings)).await?;
        }
        self.pool.end_image(&name).await;
        self.presets.forget(name.as_str());
        self.power(&record.provider)?.remove_image(record.id).await?;
        self.store.end_delete_image(record.id).await?;
        self.catalogue.load(&*self.store).await
    }

    /// Finishes removals that were begun and failed: a container may have used the image at that moment.
    pub(crate) async fn finish_removing(&self) -> Result<()> {
        for record in self.catalogue.records().iter().filter(|record| record.deleting) {
            let turn = self.turn().await?;
            if let Err(error) = self.end(record).await {
                tracing::debug!(image = %record.id, %error, "an image is removed later");
            }
            drop(turn);
        }
        Ok(())
    }

    /// Images that no sandbox uses and no setting names, with when each was last used.
    pub(crate) async fn unused(&self) -> Result<Vec<ImageRecord>> {
        let mut unused = Vec::new();
        for record in self.store.images().await? {
            let named = self.catalogue.is_named(&ImageName::of(record.id));
            if !record.deleting && !named && self.store.image_users(record.id).await?.is_empty() {
                unused.push(record);
            }
        }
        Ok(unused)
    }

    /// Finishes what a former server began: builds are failed and cleaned up, removals are completed, and images without a record are removed. What fails now is
    /// tried by the lifecycle.
    pub(crate) async fn repair(&self) -> Result<()> {
        self.repair_builds().await?;
        self.finish_removing().await?;
        for (name, provider) in self.providers.iter() {
            let Some(power) = provider.images() else { continue };
            let removed = async {
                let listed = power.list_images().await?;
                // Read after listing them: what is made from now on is not in the list.
                let mut known: HashSet<_> =
                    self.store.images().await?.into_iter().map(|image| image.id).collect();
                known.extend(self.store.build_steps().await?.into_iter().map(|step| step.image));
                for image in listed.into_iter().filter(|image| !known.contains(&image.id)) {
                    tracing::warn!(image = %image.id, "removing an image without a record");
                    power.remove_image(image.id).await?;
                }
                Ok::<_, Error>(())
            };
            if let Err(error) = removed.await {
                tracing::warn!(provider = %name, %error, "images without a record are not removed");
            }
        }
        Ok(())
    }
}
