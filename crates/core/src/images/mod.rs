//! Images: the root filesystems that sandboxes are made of, beside the machine's own, which is called `host`. The
//! catalogue belongs to no owner: admins make, change and remove images, and every key may look at them and, unless a
//! setting says otherwise, use them.
//!
//! An image is a volume that was sealed. It is recorded when it is sealed, and marked before it is removed; the record goes
//! last. That a sandbox uses an image is written in the sandbox's own transaction, so an image in use is never removed.

mod build;
mod build_log;
mod builds;
mod catalogue;
mod config;
mod contents;
mod export;
mod hidden;
mod import;
mod layers;
mod package_indexes;
mod pull;
mod push;
mod remove;
mod template;

pub use build_log::{BuildLogFollow, BuildNews};
pub use builds::BuildView;
pub(crate) use builds::Builds;
pub(crate) use catalogue::{Catalogue, HOST, ResolvedImage};
pub use catalogue::{image_directory, image_named, way_to};
pub use export::ImageExport;
pub use import::ImportImage;
pub(crate) use layers::Layers;
pub use layers::RegistrySettings;
pub use pull::{PullImage, RegistryLogin};
pub use push::{PushImage, PushedImage};
pub use template::{BuildImage, Recipe};

use crate::{
    Caller, PoolBounds, PoolChange, PoolSize, Providers, RuntimeSettings, Sandboxes, Volumes,
    actor::SandboxRegistry,
    admission::{Turn, Turns},
    bounds::{CPU_MILLIS, DISK_MB, IMAGE_DESCRIPTION, IMAGE_DISPLAY_NAME, MEMORY_MB, MOST_TAGS},
    events::new_event,
    operation::{OperationSpec, Operations},
    pool::Pool,
    run_to_end::run_to_end,
    runtime_settings::LiveSettings,
};
use atoll_egress::presets::PresetRegistry;
use atoll_provider::Images as ImagePower;
use atoll_store::{NewEvent, SandboxId, Scope, Store};
use atoll_types::{
    Error, ErrorCode, EventKind, ImageName, ImageRecord, ImageTag, Operation, ProviderName, Result,
    is_image_name, is_tag,
};
use std::{ops::RangeInclusive, sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a change waits for the one before it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Names that are taken by what is always there, and by the API's own paths.
const RESERVED: &[&str] = &["sha256", HOST, "build", "builds", "import", "packages", "pull", "templates"];

/// An image, and what is known of it beside its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageView {
    /// None of `host`, which is always there.
    pub record: Option<ImageRecord>,
    /// Other names that mean it.
    pub aliases: Vec<String>,
    /// What aliases promise and the image lacks.
    pub alias_notes: Vec<String>,
    /// Why the caller may not make sandboxes of it; none where it may.
    pub refusal: Option<&'static str>,
    /// How many containers of it are kept ready.
    pub pool: PoolSize,
    /// The sandboxes that use it. For admins, and of one image alone.
    pub used_by: Option<Vec<SandboxId>>,
}

/// What to change; what is left out stays. Of what may be absent, null removes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PatchImage {
    pub name: Option<String>,
    pub tags: Option<Vec<String>>,
    pub display_name: Option<Option<String>>,
    pub description: Option<Option<String>>,
    pub memory_mb: Option<Option<u64>>,
    pub cpu_cores: Option<Option<f64>>,
    pub disk_mb: Option<Option<u64>>,
    pub approved: Option<bool>,
    pub pool: PoolBounds,
}

/// Images.
#[derive(Clone)]
pub struct Images {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) pool: Pool,
    pub(crate) catalogue: Arc<Catalogue>,
    /// A build runs in a sandbox, and a volume becomes the image.
    pub(crate) sandboxes: Sandboxes,
    pub(crate) volumes: Volumes,
    pub(crate) registry: Arc<SandboxRegistry>,
    pub(crate) presets: Arc<PresetRegistry>,
    /// One change of the catalogue at a time.
    pub(crate) turns: Arc<Turns>,
    pub(crate) builds: Arc<Builds>,
    pub(crate) layers: Arc<Layers>,
}

fn unknown(image: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no image {image:?}"))
}

fn built_in() -> Error {
    Error::new(
        ErrorCode::Conflict,
        "the image host is the machine's own: it can be neither changed nor removed",
    )
}

fn taken(name: &str, by: &ImageRecord) -> Error {
    let message = format!(
        "a tag of {name} that the request names is that of the image {}; with replace it becomes the new one's",
        by.id.uuid()
    );
    Error::new(ErrorCode::AlreadyExists, message).at("tags")
}

fn event(caller: &Caller, record: &ImageRecord, kind: EventKind) -> NewEvent {
    let ImageRecord { id, name, tags, digest, size_bytes, origin, .. } = record;
    let data = serde_json::json!({
        "id": id.uuid(), "name": name, "tags": tags, "digest": digest, "size_bytes": size_bytes, "origin": origin,
    });
    new_event(&caller.owner, None, kind, None, &data)
}

/// What a part of an alias's name promises, and the package whose version keeps the promise.
const PROMISES: &[(&str, &str, &str)] =
    &[("python", "Python", "python3"), ("node", "Node.js", "nodejs"), ("r", "R", "r-base-core")];

/// Aliases that name a version which the image lacks, each with what it has; of `host`, those that stand for a template which is
/// not built, or not approved where that is asked for.
fn alias_notes(
    aliases: &[String],
    record: Option<&ImageRecord>,
    stood_in_for: impl Fn(&str) -> Option<(String, &'static str)>,
) -> Vec<String> {
    let Some(record) = record else {
        let note = |alias: &String| {
            let (template, lacks) = stood_in_for(alias)?;
            Some(format!(
                "{alias} means the image {template}, which is not {lacks}: until then it is the machine's own"
            ))
        };
        return aliases.iter().filter_map(note).collect();
    };
    let note = |alias: &String| {
        let ImageTag { name, tag } =
            ImageTag::parse(alias).filter(|of| of.tag.starts_with(|c: char| c.is_ascii_digit()))?;
        let promised = |part: &str| PROMISES.iter().find(|(word, ..)| *word == part);
        let (_, what, package) = name.split(['/', '-', '_']).find_map(promised)?;
        let has = record.packages.iter().find(|one| one.manager == "debian" && one.name == *package);
        match has {
            Some(has) if has.version == tag || has.version.starts_with(&format!("{tag}.")) => None,
            Some(has) => Some(format!("{alias} names {what} {tag}, and this image has {}", has.version)),
            None if record.packages.is_empty() => {
                Some(format!("{alias} names {what} {tag}, and what this image holds is not known"))
            }
            None => Some(format!("{alias} names {what} {tag}, and this image has none")),
        }
    };
    aliases.iter().filter_map(note).collect()
}

/// Refuses a text that no image can be called.
pub(crate) fn check_name(field: &str, name: &str) -> Result<()> {
    if RESERVED.contains(&name) {
        return Err(Error::invalid(field, format!("the name {name} is taken by the server itself")));
    }
    if !is_image_name(name) {
        let message =
            "expected a name such as python or registry.example/team/app: a-z, 0-9, '.', '_', '-' and '/'";
        return Err(Error::invalid(field, message));
    }
    Ok(())
}

fn check_tags(tags: &[String]) -> Result<()> {
    if tags.len() > MOST_TAGS {
        return Err(Error::invalid("tags", format!("an image may have {MOST_TAGS} tags")));
    }
    for (at, tag) in tags.iter().enumerate() {
        if !is_tag(tag) {
            let message = format!(
                "{tag:?} is no tag: letters, digits, '_', '.' and '-', not beginning with the last two"
            );
            return Err(Error::invalid("tags", message));
        }
        if tags[..at].contains(tag) {
            return Err(Error::invalid("tags", format!("the tag {tag} is there twice")));
        }
    }
    Ok(())
}

fn within<T: PartialOrd + std::fmt::Display + Copy>(
    field: &str,
    value: Option<T>,
    range: &RangeInclusive<T>,
) -> Result<Option<T>> {
    match value {
        Some(value) if !range.contains(&value) => {
            let message = format!("{field} must be between {} and {}", range.start(), range.end());
            Err(Error::invalid(field, message))
        }
        value => Ok(value),
    }
}

impl PatchImage {
    /// The record with these changes.
    fn apply(&self, record: &ImageRecord) -> Result<ImageRecord> {
        let mut next = record.clone();
        if let Some(name) = &self.name {
            check_name("name", name)?;
            next.name.clone_from(name);
        }
        if let Some(tags) = &self.tags {
            check_tags(tags)?;
            next.tags.clone_from(tags);
        }
        for (field, rule, asked, own) in [
            ("display_name", IMAGE_DISPLAY_NAME, &self.display_name, &mut next.display_name),
            ("description", IMAGE_DESCRIPTION, &self.description, &mut next.description),
        ] {
            let Some(text) = asked else { continue };
            text.as_ref().map_or(Ok(()), |text| rule.check(field, text))?;
            own.clone_from(text);
        }
        if let Some(memory) = self.memory_mb {
            next.defaults.memory_mb = within("memory_mb", memory, &MEMORY_MB)?;
        }
        if let Some(disk) = self.disk_mb {
            next.defaults.disk_mb = within("disk_mb", disk, &DISK_MB)?;
        }
        if let Some(cores) = self.cpu_cores {
            let range = f64::from(*CPU_MILLIS.start()) / 1000.0..=f64::from(*CPU_MILLIS.end()) / 1000.0;
            let cores = within("cpu_cores", cores, &range)?;
            next.defaults.cpu_millis = cores.map(|cores| (cores * 1000.0).round() as u32);
        }
        next.approved = self.approved.unwrap_or(next.approved);
        Ok(next)
    }

    /// What the audit trail says of it.
    fn spec(&self, image: &str) -> OperationSpec {
        let mut what = OperationSpec::new(Operation::ImagePatch).with(image);
        if let Some(approved) = self.approved {
            what = what.and("approved", approved);
        }
        if let Some(name) = &self.name {
            what = what.and("name", name);
        }
        match &self.tags {
            Some(tags) => what.and("tags", tags.join(" ")),
            None => what,
        }
    }
}

impl Images {
    fn power(&self, provider: &ProviderName) -> Result<&dyn ImagePower> {
        self.providers.get(provider)?.images().ok_or_else(|| {
            Error::new(ErrorCode::Unsupported, format!("the provider {provider} keeps no images"))
        })
    }

    /// The turn to change the catalogue.
    async fn turn(&self) -> Result<Turn> {
        let late = || Error::new(ErrorCode::Conflict, "another image is being changed; try again");
        self.turns.take("images", Instant::now() + PATIENCE, late).await
    }

    fn view(&self, caller: &Caller, image: &ResolvedImage, record: Option<ImageRecord>) -> ImageView {
        let aliases = self.catalogue.aliases_of(&image.name);
        ImageView {
            alias_notes: alias_notes(&aliases, record.as_ref(), |alias| self.catalogue.stood_in_for(alias)),
            record,
            aliases,
            refusal: self.catalogue.refusal(caller, image),
            pool: self.pool.size_of(&image.name),
            used_by: None,
        }
    }

    /// All images by name, `host` first.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<ImageView>> {
        let host = ResolvedImage::host();
        let mut all = vec![self.view(caller, &host, None)];
        for record in self.store.images().await? {
            let image = ResolvedImage::of(&Arc::new(record.clone()));
            all.push(self.view(caller, &image, Some(record)));
        }
        Ok(all)
    }

    /// One image by its name, its digest, its id or an alias.
    pub async fn get(&self, caller: &Caller, image: &str) -> Result<ImageView> {
        let image = self.catalogue.find_any(image).ok_or_else(|| unknown(image))?;
        let Some(id) = image.name.id() else { return Ok(self.view(caller, &image, None)) };
        let record = self.store.image(id).await?.ok_or_else(|| unknown(&id.uuid().to_string()))?;
        let mut view = self.view(caller, &image, Some(record));
        if caller.scope == Scope::Admin {
            view.used_by = Some(self.store.image_users(id).await?);
        }
        Ok(view)
    }

    /// The record of an image that a request changes.
    async fn changeable(&self, image: &str) -> Result<ImageRecord> {
        let found = self.catalogue.find_any(image).ok_or_else(|| unknown(image))?;
        let id = found.name.id().ok_or_else(built_in)?;
        self.store.image(id).await?.ok_or_else(|| unknown(image))
    }

    /// Changes what is known of an image; sandboxes that use it keep what they were made with.
    pub async fn patch(&self, caller: &Caller, image: &str, patch: PatchImage) -> Result<ImageView> {
        let mut audited = self.operations.audited(caller, patch.spec(image)).await?;
        let result = async {
            let turn = self.turn().await?;
            let record = self.changeable(image).await?;
            let next = patch.apply(&record)?;
            let (images, changed) = (self.clone(), next.clone());
            let before = record.clone();
            run_to_end("the change of the image", async move {
                let _turn = turn;
                images.change(before, changed, patch.pool).await
            })
            .await?;
            Ok((next.approved && !record.approved, next))
        }
        .await;
        if let Ok((true, approved)) = &result {
            audited.add_event(event(caller, approved, EventKind::ImageApproved));
        }
        let (_, record) = audited.done(result).await?;
        self.get(caller, &record.id.to_string()).await
    }

    /// Writes the record, and then the bounds of the pool. Where those are refused the record is as before.
    async fn change(&self, before: ImageRecord, record: ImageRecord, bounds: PoolBounds) -> Result<()> {
        let name = ImageName::of(record.id);
        if let Some(other) = self.store.update_image(record.clone()).await? {
            return Err(taken(&record.name, &other));
        }
        let mut changed = Ok(());
        if bounds != PoolBounds::default() {
            let images = [(name.to_string(), Some(bounds))].into();
            let change = PoolChange { enabled: None, images };
            let settings = |runtime_settings: &RuntimeSettings| change.settings(runtime_settings);
            changed = self.live_settings.change_by(&*self.store, settings).await.map(drop);
            if changed.is_err() {
                self.store.update_image(before).await?;
            }
        }
        self.catalogue.load(&*self.store).await?;
        changed.map_err(|e| match e.field.as_deref() {
            Some("pool.images") => e.at("warm_pool_max"),
            _ => e,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_that_names_another_version_is_told() {
        let aliases =
            ["a/sandbox-python:3.12", "a/python:3.11", "a/node:20", "a/python:latest"].map(str::to_owned);
        let mut record = ImageRecord {
            id: atoll_types::ImageId::random(),
            name: "base".into(),
            tags: Vec::new(),
            display_name: None,
            description: None,
            digest: String::new(),
            size_bytes: 0,
            origin: atoll_types::ImageOrigin::Template,
            source: String::new(),
            provider: ProviderName::native(),
            config: atoll_types::ImageConfig::default(),
            defaults: atoll_types::ImageDefaults::default(),
            packages: Vec::new(),
            package_indexes: None,
            approved: false,
            created_at: 0,
            last_used_at: None,
            deleting: false,
        };
        let notes = |record: Option<&ImageRecord>| {
            alias_notes(&aliases, record, |alias| {
                alias.contains("node").then(|| ("node".to_owned(), "built"))
            })
        };
        let host = "a/node:20 means the image node, which is not built: until then it is the machine's own";
        assert_eq!(notes(None), [host]);
        let unknown = notes(Some(&record));
        assert_eq!(unknown.len(), 3, "{unknown:?}");
        assert_eq!(unknown[2], "a/node:20 names Node.js 20, and what this image holds is not known");
        record.packages.push(atoll_types::InstalledPackage {
            manager: "debian".into(),
            name: "python3".into(),
            version: "3.11.2-1+b1".into(),
        });
        let expected = [
            "a/sandbox-python:3.12 names Python 3.12, and this image has 3.11.2-1+b1",
            "a/node:20 names Node.js 20, and this image has none",
        ];
        assert_eq!(notes(Some(&record)), expected);
    }

    #[test]
    fn names_of_the_server_and_wrong_ones_are_refused() {
        for name in ["host", "builds", "templates", "Python", "a b", "a:b", ""] {
            assert_eq!(check_name("name", name).unwrap_err().field.as_deref(), Some("name"), "{name}");
        }
        assert_eq!(check_name("name", "mcpgateway/sandbox-python"), Ok(()));
        let tags =
            |tags: &[&str]| check_tags(&tags.iter().map(ToString::to_string).collect::<Vec<_>>()).is_ok();
        assert!(tags(&[]) && tags(&["3", "latest"]));
        assert!(!tags(&["a b"]) && !tags(&["-a"]) && !tags(&["a", "a"]));
    }
}
