//! The images of this server by the names that requests use. All of them are held in memory, because every create and
//! each look at the pool asks; a change of a record reads them again.

use crate::{Caller, CoreSettings, image_specs::templates, runtime_settings::LiveSettings};
use atoll_oci::Reference;
use atoll_store::{Scope, Store};
use atoll_types::{
    Error, ErrorCode, ImageConfig, ImageDefaults, ImageId, ImageName, ImageRecord, ImageStart, ImageTag,
    Profile, Result,
};
use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

/// The image that is always there.
pub(crate) const HOST: &str = "host";
/// Names that an error lists.
const NAMED: usize = 20;

/// An image that a request names; without a record it is `host`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedImage {
    pub(crate) name: ImageName,
    pub(crate) record: Option<Arc<ImageRecord>>,
}

impl ResolvedImage {
    pub(super) fn host() -> Self {
        Self { name: ImageName::host(), record: None }
    }

    pub(super) fn of(record: &Arc<ImageRecord>) -> Self {
        Self { name: ImageName::of(record.id), record: Some(Arc::clone(record)) }
    }

    /// Whether an admin approved it; `host` is.
    pub(crate) fn is_approved(&self) -> bool {
        self.record.as_ref().is_none_or(|record| record.approved)
    }

    /// The limits of sandboxes that name none.
    pub(crate) fn defaults(&self) -> ImageDefaults {
        self.record.as_ref().map(|record| record.defaults).unwrap_or_default()
    }

    /// A profile that ships, with this image. The default profile has the image's own user.
    pub(crate) fn profile(&self, name: &str) -> Result<Profile> {
        let unknown = || {
            let message = format!("there is no profile {name:?}; there are {}", Profile::BUILTIN.join(", "));
            Error::invalid("profile", message)
        };
        let mut profile = Profile { image: self.name.clone(), ..Profile::builtin(name).ok_or_else(unknown)? };
        if let Some((uid, gid)) = self.record.as_ref().and_then(|record| record.config.ids)
            && name == "default"
        {
            (profile.uid, profile.gid) = (uid, gid);
        }
        Ok(profile)
    }
}

/// The images of this server.
pub(crate) struct Catalogue {
    settings: Arc<CoreSettings>,
    live_settings: Arc<LiveSettings>,
    records: RwLock<Arc<Vec<Arc<ImageRecord>>>>,
    /// Of two that read the records, the second is the last to write them.
    loading: tokio::sync::Mutex<()>,
}

/// Whether the user of a sandbox can begin in a directory of its image: not where the sandbox has folders of its own, which hide the
/// image's, and not in root's home unless it is root.
fn is_reachable(directory: &str, profile: &Profile) -> bool {
    let below = |folder: &str| Path::new(directory).starts_with(folder);
    let hidden = ["/workspace", "/tmp", "/dev", "/proc", "/sys", profile.home()];
    let closed = profile.uid != 0 && below("/root");
    !closed && !hidden.into_iter().any(|folder| directory != folder && below(folder))
}

/// Where commands of an image run that name no directory; none where its own cannot be begun in.
#[must_use]
pub fn image_directory(config: &ImageConfig, profile: &Profile) -> Option<String> {
    config.working_directory.clone().filter(|directory| is_reachable(directory, profile))
}

/// The characters of an id that lists show.
const SHORT_ID: usize = 8;

/// The id that a text is: as ids are written inside, or as a UUID is.
fn id_of(text: &str) -> Option<ImageId> {
    let uuid = || uuid::Uuid::try_parse(text).ok().filter(|_| text.len() == 36).map(ImageId::from_uuid);
    text.parse().ok().or_else(uuid).or_else(|| text.parse::<ImageName>().ok()?.id())
}

/// The image of a name, a name with a tag, a digest or an id, among these; the last where several have a digest.
fn find_image<'a, R: AsRef<ImageRecord>>(
    records: impl DoubleEndedIterator<Item = &'a R>,
    text: &str,
) -> Option<&'a R> {
    let mut ready = records.rev().filter(|record| !(*record).as_ref().deleting);
    if let Some(id) = id_of(text) {
        return ready.find(|record| (*record).as_ref().id == id);
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (Some(name), Some(digest)),
        None => (None, text.starts_with("sha256:").then_some(text)),
    };
    if let Some(digest) = digest {
        let is =
            |record: &ImageRecord| record.digest == digest && name.is_none_or(|name| record.name == name);
        return ready.find(|record| is((*record).as_ref()));
    }
    let ImageTag { name, tag } = ImageTag::parse(text)?;
    let is = |record: &ImageRecord| record.name == name && record.tags.contains(&tag);
    let ready: Vec<&R> = ready.collect();
    ready.iter().find(|record| is((**record).as_ref())).copied().or_else(|| by_short_id(&ready, text))
}

/// The one image whose id begins so, as lists show it.
fn by_short_id<'a, R: AsRef<ImageRecord>>(records: &[&'a R], text: &str) -> Option<&'a R> {
    if text.len() < SHORT_ID || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let begins = |record: &&&R| (***record).as_ref().id.uuid().simple().to_string().starts_with(text);
    let mut found = records.iter().filter(begins);
    found.next().filter(|_| found.next().is_none()).copied()
}

/// How to get an image that is not here, for the end of an error: those that ship are built, and those of a registry are pulled.
#[must_use]
pub fn way_to(image: &str) -> String {
    if templates().iter().any(|of| of.id == image) {
        return format!("; `atoll image build --template {image}` builds it");
    }
    match image.parse::<Reference>() {
        Ok(_) if image.contains('/') => format!("; `atoll image pull {image}` pulls it"),
        _ => String::new(),
    }
}

/// The image of a name, a name with a tag, a digest or an id, where no server is asked.
pub async fn image_named(store: &dyn Store, text: &str) -> Result<Option<ImageRecord>> {
    let records: Vec<_> = store.images().await?.into_iter().map(Arc::new).collect();
    Ok(find_image(records.iter(), text).map(|found| ImageRecord::clone(found)))
}

impl Catalogue {
    pub(crate) fn new(settings: Arc<CoreSettings>, live_settings: Arc<LiveSettings>) -> Self {
        Self { settings, live_settings, records: RwLock::default(), loading: tokio::sync::Mutex::default() }
    }

    /// Reads the records again, after each change of one.
    pub(crate) async fn load(&self, store: &dyn Store) -> Result<()> {
        let _alone = self.loading.lock().await;
        let all = store.images().await?.into_iter().map(Arc::new).collect();
        *self.records.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
        Ok(())
    }

    pub(crate) fn records(&self) -> Arc<Vec<Arc<ImageRecord>>> {
        Arc::clone(&self.records.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn direct(&self, text: &str) -> Option<ResolvedImage> {
        if text == HOST {
            return Some(ResolvedImage::host());
        }
        find_image(self.records().iter(), text).map(ResolvedImage::of)
    }

    /// The image of a name, a name with a tag, a digest, an id, or an alias of one.
    pub(crate) fn find(&self, text: &str) -> Option<ResolvedImage> {
        self.find_where(text, self.live_settings.now().images_require_approved)
    }

    /// The same, where images must be approved or not.
    fn find_where(&self, text: &str, must_be_approved: bool) -> Option<ResolvedImage> {
        let alias = || {
            let target = self.settings.aliases.get(text)?;
            let found = self.direct(target);
            if !templates().iter().any(|of| of.id == *target) {
                return found;
            }
            // Until a template is built, and approved where that is asked for, its names mean the machine's own image: building it
            // must not break the creates that name it.
            let usable = found.filter(|image| !must_be_approved || image.is_approved());
            Some(usable.unwrap_or_else(ResolvedImage::host))
        };
        self.direct(text).or_else(alias)
    }

    /// The template whose name an alias is while it means `host`, and what that image is not yet.
    pub(crate) fn stood_in_for(&self, alias: &str) -> Option<(String, &'static str)> {
        if let Some(template) = self.unbuilt(alias) {
            return Some((template, "built"));
        }
        let target = self.settings.aliases.get(alias)?;
        let is_host = self.find(alias).is_some_and(|found| found.record.is_none());
        (is_host && target != HOST).then(|| (target.clone(), "approved"))
    }

    /// The template that a text names, directly or as an alias, while no image has its name.
    pub(crate) fn unbuilt(&self, text: &str) -> Option<String> {
        if self.direct(text).is_some() {
            return None;
        }
        let target = self.settings.aliases.get(text).map_or(text, String::as_str);
        let ships = templates().iter().any(|of| of.id == target);
        (ships && self.direct(target).is_none()).then(|| target.to_owned())
    }

    /// The same; an id also finds an image that is being deleted.
    pub(crate) fn find_any(&self, text: &str) -> Option<ResolvedImage> {
        let records = self.records();
        let by_id = || Some(ResolvedImage::of(records.iter().find(|record| Some(record.id) == id_of(text))?));
        self.find(text).or_else(by_id)
    }

    /// Whether an alias has this name, with this tag or none.
    pub(crate) fn is_alias(&self, tag: &ImageTag) -> bool {
        let aliases = &self.settings.aliases;
        aliases.contains_key(&tag.name) || aliases.contains_key(&tag.to_string())
    }

    /// The aliases that mean an image.
    pub(crate) fn aliases_of(&self, image: &ImageName) -> Vec<String> {
        let means = |alias: &&String| self.find(alias).is_some_and(|found| found.name == *image);
        self.settings.aliases.keys().filter(means).cloned().collect()
    }

    /// What creates may call the image of a text, with the text itself. An alias is one name alone: what it means may change.
    pub(crate) fn names_of(&self, text: &str) -> Vec<String> {
        let mut names = vec![text.to_owned()];
        let Some(image) = self.direct(text) else { return names };
        if let Some(record) = &image.record {
            names.extend(record.tags.iter().map(|tag| format!("{}:{tag}", record.name)));
            names.extend([record.name.clone(), record.id.uuid().to_string()]);
        }
        names.extend(self.aliases_of(&image.name));
        names.retain(|name| name == text || self.means(name, &image.name));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The image of a name; an error that names those there are.
    pub(crate) fn resolve(&self, text: &str) -> Result<ResolvedImage> {
        self.find(text).ok_or_else(|| {
            let records = self.records();
            let own = records.iter().filter(|record| !record.deleting).map(|record| record.reference());
            let aliases = self.settings.aliases.keys().cloned();
            let names: Vec<_> =
                std::iter::once(HOST.to_owned()).chain(own).chain(aliases).take(NAMED).collect();
            let target = self.settings.aliases.get(text).map_or(text, String::as_str);
            let message =
                format!("there is no image {text:?}; there are {}{}", names.join(", "), way_to(target));
            Error::new(ErrorCode::InvalidArgument, message).at("image")
        })
    }

    /// Why the caller may not use an image; none where it may.
    pub(crate) fn refusal(&self, caller: &Caller, image: &ResolvedImage) -> Option<&'static str> {
        if caller.scope == Scope::Admin {
            return None;
        }
        let settings = self.live_settings.now();
        if settings.images_require_approved && !image.is_approved() {
            return Some("is not approved, and the setting images.require_approved asks for that");
        }
        let named = |names: &Vec<String>| {
            names.iter().any(|name| self.find(name).is_some_and(|found| found.name == image.name))
        };
        match &settings.db_active_images {
            Some(names) if !named(names) => Some("is not among those of the setting db_active_images"),
            _ => None,
        }
    }

    /// The image of a name, where the caller may use it.
    pub(crate) fn usable(&self, caller: &Caller, text: &str) -> Result<ResolvedImage> {
        self.usable_now(caller, text, self.resolve(text)?)
    }

    /// The same, of those that an admin approved, whatever the settings say.
    pub(crate) fn usable_approved(&self, caller: &Caller, text: &str) -> Result<ResolvedImage> {
        let image = self.find_where(text, true).map_or_else(|| self.resolve(text), Ok)?;
        if !image.is_approved() {
            return Err(Error::invalid("image", format!("the image {text} is not approved")));
        }
        self.usable_now(caller, text, image)
    }

    fn usable_now(&self, caller: &Caller, text: &str, image: ResolvedImage) -> Result<ResolvedImage> {
        match self.refusal(caller, &image) {
            Some(why) => {
                let message = format!("the image {text} {why}");
                Err(Error::new(ErrorCode::PermissionDenied, message).at("image"))
            }
            None => Ok(image),
        }
    }

    /// The default profile with the image that a name means.
    pub(crate) fn profile(&self, image: &str) -> Result<Profile> {
        self.resolve(image)?.profile("default")
    }

    fn record(&self, image: &ImageName) -> Option<Arc<ImageRecord>> {
        let id = image.id()?;
        self.records().iter().find(|record| record.id == id).cloned()
    }

    /// What identifies the content of an image; `host` and an image that is gone have none.
    pub(crate) fn digest(&self, image: &ImageName) -> Option<String> {
        self.record(image).map(|record| record.digest.clone())
    }

    /// The variables that containers of an image start with; those of the server and of the sandbox come on top.
    pub(crate) fn environment(&self, image: &ImageName) -> BTreeMap<String, String> {
        self.record(image).map(|record| record.config.environment.clone()).unwrap_or_default()
    }

    /// What each sandbox of an image starts.
    pub(crate) fn start(&self, image: &ImageName) -> Option<ImageStart> {
        self.record(image)?.config.start()
    }

    /// Where commands run that name no directory; /workspace where that is empty.
    pub(crate) fn working_directory(&self, profile: &Profile) -> String {
        self.record(&profile.image).and_then(|of| image_directory(&of.config, profile)).unwrap_or_default()
    }

    /// An image as people know it: its reference, its id and its name for them.
    pub(crate) fn shown(&self, image: &str) -> (String, String, String) {
        match image.parse().ok().and_then(|name: ImageName| self.record(&name)) {
            Some(record) => (record.reference(), record.id.uuid().to_string(), record.shown_name()),
            None => (image.to_owned(), image.to_owned(), image.to_owned()),
        }
    }

    /// Whether the settings name the image: as that of creates that name none, as one that ordinary keys may use, or as one that is kept
    /// ready.
    pub(crate) fn is_named(&self, image: &ImageName) -> bool {
        let settings = self.live_settings.now();
        let mut names = settings.pool_images.keys().chain(settings.db_active_images.iter().flatten());
        self.is_default(image) || names.any(|name| self.means(name, image))
    }

    /// Whether creates that name no image use this one.
    pub(crate) fn is_default(&self, image: &ImageName) -> bool {
        let settings = self.live_settings.now();
        self.means(settings.db_default_image.as_ref().unwrap_or(&self.settings.default_image), image)
    }

    fn means(&self, text: &str, image: &ImageName) -> bool {
        self.find(text).is_some_and(|found| found.name == *image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Preset, Source};
    use atoll_types::{ImageOrigin, ProviderName};
    use serde_json::json;

    fn record(name: &str, tag: &str, digest: char) -> ImageRecord {
        ImageRecord {
            id: ImageId::random(),
            name: name.into(),
            tags: vec![tag.into()],
            display_name: None,
            description: None,
            digest: format!("sha256:{}", digest.to_string().repeat(64)),
            size_bytes: 0,
            origin: ImageOrigin::Import,
            source: String::new(),
            provider: ProviderName::native(),
            config: ImageConfig { ids: Some((1001, 1002)), ..ImageConfig::default() },
            defaults: ImageDefaults::default(),
            packages: Vec::new(),
            package_indexes: None,
            approved: false,
            created_at: 0,
            last_used_at: None,
            deleting: false,
        }
    }

    fn catalogue(records: &[&ImageRecord], settings: &[(&str, serde_json::Value)]) -> Catalogue {
        let mut preset = Preset::default();
        for (name, value) in settings {
            preset.set(Source::Flag, name, value.clone()).unwrap();
        }
        let mut core = CoreSettings::default();
        core.aliases.extend([("snake".into(), "python:3".into()), ("broken".into(), "nosuch".into())]);
        let catalogue = Catalogue::new(Arc::new(core), Arc::new(LiveSettings::new(preset)));
        let all = records.iter().map(|record| Arc::new((*record).clone())).collect();
        *catalogue.records.write().unwrap() = Arc::new(all);
        catalogue
    }

    #[test]
    fn an_image_is_found_by_everything_that_names_it() {
        let (python, other) = (record("python", "3", 'a'), record("python", "latest", 'b'));
        let gone = ImageRecord { deleting: true, ..record("gone", "latest", 'c') };
        let catalogue = catalogue(&[&python, &other, &gone], &[]);
        let found = |text: &str| catalogue.find(text).map(|found| found.name);
        let digest = format!("sha256:{}", "a".repeat(64));
        let (id, uuid) = (python.id.to_string(), python.id.uuid().to_string());
        let name = ImageName::of(python.id);
        for text in ["python:3", "snake", &digest, &format!("python@{digest}"), &id, &uuid, name.as_str()] {
            assert_eq!(found(text), Some(name.clone()), "{text}");
        }
        assert_eq!(found("python"), Some(ImageName::of(other.id)));
        assert_eq!(found("host"), Some(ImageName::host()));
        assert_eq!(found("mcpgateway/sandbox-runtime:latest"), Some(ImageName::host()));
        let unbuilt = |text: &str| catalogue.unbuilt(text);
        assert_eq!(unbuilt("mcpgateway/sandbox-runtime:latest").as_deref(), Some("skills-runtime"));
        assert_eq!(unbuilt("data-science").as_deref(), Some("data-science"));
        for text in ["python:3", "snake", "broken", "host", "nosuch"] {
            assert_eq!(unbuilt(text), None, "{text}");
        }
        for text in ["gone", "broken", "python:4", "node", "Python", "", "../x", &format!("node@{digest}")] {
            assert_eq!(found(text), None, "{text}");
        }
        let runtime = record("skills-runtime", "latest", 'd');
        let built = self::catalogue(&[&runtime], &[]);
        let user = Caller { scope: Scope::User, ..Caller::local() };
        assert_eq!(catalogue.stood_in_for("snake"), None);
        // Built and not approved, its names stay the machine's own where approval is asked for.
        let alias = "mcpgateway/sandbox-runtime:latest";
        let strict = self::catalogue(&[&runtime], &[("images.require_approved", json!(true))]);
        assert_eq!(strict.find(alias).map(|found| found.name), Some(ImageName::host()));
        assert_eq!(strict.usable(&user, alias).unwrap().name, ImageName::host());
        assert_eq!(strict.stood_in_for(alias), Some(("skills-runtime".to_owned(), "approved")));
        assert_eq!(built.usable_approved(&user, alias).unwrap().name, ImageName::host());
        assert!(built.usable_approved(&user, "skills-runtime").is_err());
        assert_eq!(built.stood_in_for(alias), None);
        let approved = ImageRecord { approved: true, ..runtime.clone() };
        let approved = self::catalogue(&[&approved], &[("images.require_approved", json!(true))]);
        assert_eq!(approved.usable_approved(&user, alias).unwrap().name, ImageName::of(runtime.id));
        assert_eq!(approved.stood_in_for(alias), None);
        assert_eq!(built.unbuilt("mcpgateway/sandbox-runtime:latest"), None);
        assert_eq!(built.unbuilt("skills-runtime"), None);
        let found = built.find("mcpgateway/sandbox-runtime:latest").map(|found| found.name);
        assert_eq!(found, Some(ImageName::of(runtime.id)));
        let error = catalogue.resolve("node").unwrap_err();
        assert!(error.message.contains("python:3") && !error.message.contains("gone"), "{}", error.message);
        // What ships is built, and what a registry has is pulled.
        assert!(
            error.message.ends_with("`atoll image build --template node` builds it"),
            "{}",
            error.message
        );
        let error = catalogue.resolve("registry.example/team/app:1").unwrap_err();
        assert!(
            error.message.ends_with("`atoll image pull registry.example/team/app:1` pulls it"),
            "{error}"
        );
        assert!(catalogue.resolve("nosuch").unwrap_err().message.ends_with(|last| last != '`'));
        // The image's user is that of the default profile alone.
        let ids =
            |name: &str| catalogue.find("python").unwrap().profile(name).map(|of| (of.uid, of.gid)).unwrap();
        assert_eq!((ids("default"), ids("root"), ids("tools")), ((1001, 1002), (0, 0), (65532, 65532)));
    }

    #[test]
    fn ordinary_keys_use_what_the_settings_allow() {
        let approved = ImageRecord { approved: true, ..record("approved", "latest", 'a') };
        let other = record("other", "latest", 'b');
        let user = Caller { scope: Scope::User, ..Caller::local() };
        let may = |catalogue: &Catalogue, caller: &Caller| {
            ["host", "approved", "other"].map(|name| catalogue.usable(caller, name).is_ok())
        };
        let of = |settings: &[(&str, serde_json::Value)]| catalogue(&[&approved, &other], settings);
        assert_eq!(may(&of(&[]), &user), [true, true, true]);
        let strict = of(&[("images.require_approved", json!(true))]);
        assert_eq!(may(&strict, &user), [true, true, false]);
        assert_eq!(may(&strict, &Caller::local()), [true, true, true]);
        let narrow = of(&[("db_active_images", json!(["other:latest", "no/such"]))]);
        assert_eq!(may(&narrow, &user), [false, false, true]);
        let error = narrow.usable(&user, "host").unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::PermissionDenied, Some("image")));
        assert!(narrow.is_named(&ImageName::of(other.id)) && !narrow.is_named(&ImageName::of(approved.id)));
    }

    #[test]
    fn an_image_has_the_names_that_mean_it_now() {
        let (python, other) = (record("python", "3", 'a'), record("python", "latest", 'b'));
        let catalogue = catalogue(&[&python, &other], &[]);
        let (id, other) = (python.id.uuid().to_string(), other.id.uuid().to_string());
        for (text, names) in [
            ("python:3", vec!["python:3", "snake", &id]),
            ("python", vec!["python", "python:latest", &other]),
            ("python:latest", vec!["python", "python:latest", &other]),
            (&id, vec![&id, "python:3", "snake"]),
            ("snake", vec!["snake"]),
            ("nosuch", vec!["nosuch"]),
        ] {
            let found = catalogue.names_of(text);
            assert!(found.iter().all(|name| names.contains(&name.as_str())), "{text}: {found:?}");
            assert_eq!(found.len(), names.len(), "{text}: {found:?}");
        }
        assert!(catalogue.names_of("host").contains(&"mcpgateway/sandbox-runtime:latest".to_owned()));
    }

    #[test]
    fn an_image_is_found_by_the_beginning_of_its_id() {
        let (one, two) = (record("one", "1", 'a'), record("deadbeef", "latest", 'b'));
        let catalogue = catalogue(&[&one, &two], &[]);
        let short = &one.id.uuid().simple().to_string()[..SHORT_ID];
        assert_eq!(catalogue.find(short).map(|found| found.name), Some(ImageName::of(one.id)));
        assert_eq!(catalogue.find(&short[..SHORT_ID - 1]), None);
        assert_eq!(catalogue.find("deadbeef").map(|found| found.name), Some(ImageName::of(two.id)));
    }

    #[test]
    fn commands_begin_where_the_sandbox_hides_nothing() {
        let user = Profile::builtin("default").unwrap();
        let root = Profile::builtin("root").unwrap();
        for (directory, for_user, for_root) in [
            ("/app", true, true),
            ("/workspace", true, true),
            ("/workspace/app", false, false),
            ("/home/user/app", false, true),
            ("/root", false, true),
            ("/root/app", false, false),
            ("/rooted", true, true),
        ] {
            assert_eq!(is_reachable(directory, &user), for_user, "{directory}");
            assert_eq!(is_reachable(directory, &root), for_root, "{directory} for root");
        }
    }
}
