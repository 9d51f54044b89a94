//! Which indexes the package managers of an image use, for the presets of its sandboxes' egress policies, and which packages it
//! holds where its build did not ask. Both are looked for once, after the image was made, and kept with its record.
//!
//! Everything in an image is hostile. Its files are read by PID 1 of a container of it, which runs nothing of it; what they say
//! becomes names of hosts that are checked, for sandboxes of this image alone.

use super::{Images, ResolvedImage, contents};
use atoll_egress::presets::{FileBytes, Findings, ImageFiles, ToolLocation, learn};
use atoll_provider::{Container, FileReader};
use atoll_types::{Error, ImageName, ImageRecord, InstalledPackage, Result, files::EntryKind};
use bytes::Bytes;
use std::{
    io::{self, Read},
    sync::Arc,
    time::Duration,
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

/// How long the look into one image may take.
const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// The longest findings that are kept.
const LONGEST_FINDINGS: usize = 64 << 10;

impl Images {
    /// Tells the presets what is known of every image, and looks in the background into those that were never looked at.
    pub(crate) fn load_indexes(&self) {
        let mut unknown = Vec::new();
        for record in self.catalogue.records().iter().filter(|record| !record.deleting) {
            let known = record.package_indexes.as_deref().and_then(|text| serde_json::from_str(text).ok());
            match known {
                Some(findings) => self.presets.learned(ImageName::of(record.id).as_str(), findings),
                None => unknown.push(Arc::clone(record)),
            }
        }
        let images = self.clone();
        tokio::spawn(async move {
            for record in unknown {
                images.learn_indexes(&record).await;
            }
        });
    }

    /// Looks for the indexes of an image. Where that fails, its sandboxes have the machine's presets until the next start.
    pub(super) async fn learn_indexes(&self, record: &ImageRecord) {
        let learned = async {
            let (findings, packages) = self.find_indexes(record).await?;
            self.presets.learned(ImageName::of(record.id).as_str(), findings.clone());
            self.keep_indexes(record, findings, packages).await
        };
        if let Err(error) = learned.await {
            tracing::warn!(image = %record.id, %error, "the package managers of an image were not looked at");
        }
    }

    async fn find_indexes(&self, record: &ImageRecord) -> Result<(Findings, Vec<InstalledPackage>)> {
        let profile = ResolvedImage::of(&Arc::new(record.clone())).profile("default")?;
        let mut variables = record.config.environment.clone();
        variables.insert("HOME".into(), profile.home().into());
        let (copy, container) = self.registry.container_of_image(&record.provider, profile).await?;
        let files =
            ContainerFiles { container, runtime: Handle::current(), until: Instant::now() + LONGEST_LOOK };
        let asked = !record.packages.is_empty();
        let found = tokio::task::spawn_blocking(move || {
            let packages = if asked { Vec::new() } else { contents::packages(&files) };
            (learn(&ToolLocation::image(Box::new(files), variables)), packages)
        })
        .await;
        // Until then the image is in use and cannot be removed.
        copy.end().await;
        found.map_err(|e| Error::internal(e.to_string()))
    }

    async fn keep_indexes(
        &self,
        record: &ImageRecord,
        findings: Findings,
        found: Vec<InstalledPackage>,
    ) -> Result<()> {
        let text =
            |findings: &Findings| serde_json::to_string(findings).map_err(|e| Error::internal(e.to_string()));
        let mut all = text(&findings)?;
        if all.len() > LONGEST_FINDINGS {
            all = text(&Findings::default())?;
        }
        let _turn = self.turn().await?;
        // It may have been changed or removed meanwhile.
        let Some(record) = self.store.image(record.id).await? else { return Ok(()) };
        let packages = if record.packages.is_empty() { found } else { record.packages.clone() };
        self.store.update_image(ImageRecord { package_indexes: Some(all), packages, ..record }).await?;
        self.catalogue.load(&*self.store).await
    }
}

/// The files of an image, as PID 1 of a container of it reads them.
struct ContainerFiles {
    container: Arc<dyn Container>,
    runtime: Handle,
    until: Instant,
}

impl ContainerFiles {
    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Option<T> {
        self.runtime.block_on(timeout_at(self.until, work)).ok()?.ok()
    }
}

impl ImageFiles for ContainerFiles {
    fn open(&self, path: &str, most: u64) -> Option<FileBytes> {
        let guest = self.container.guest();
        let about = self.wait(guest.stat(path, true))?;
        if about.kind != EntryKind::File || about.size > most {
            return None;
        }
        let reader = self.wait(guest.read_file(path, 0, most))?;
        let (runtime, until) = (self.runtime.clone(), self.until);
        Some(Box::new(ContainerFile { reader, piece: Bytes::new(), runtime, until }))
    }

    fn names(&self, folder: &str, most: usize) -> Vec<String> {
        let listed = self.wait(self.container.guest().list_page(folder, None, most));
        listed.map(|(entries, _)| entries.into_iter().map(|entry| entry.name).collect()).unwrap_or_default()
    }
}

/// A file of a container, for a thread that may wait.
struct ContainerFile {
    reader: FileReader,
    /// What was received and not read yet.
    piece: Bytes,
    runtime: Handle,
    until: Instant,
}

impl Read for ContainerFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let next = self.runtime.block_on(timeout_at(self.until, self.reader.next()));
            let next = next.map_err(|_| io::ErrorKind::TimedOut)?.map_err(io::Error::other)?;
            self.piece = next.unwrap_or_default();
        }
        let count = self.piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
