//! Images from registries. What a registry sends is hostile: it is fetched within limits and by digest (`atoll-oci`), and its
//! layers are unpacked in the sandbox of a build, by a tool that refuses what leads out of the image.
//!
//! Admins pull what they name. With `images.pull_on_use` a create that names an image which is not here pulls it first:
//! for admins from any registry, for other keys only from those of `images.pull_on_use_registries`, under the name that the
//! registry has it by, only where they may use an image that no admin has looked at, and while such images together hold less than
//! `images.pull_on_use_max_mb`.

use super::{
    Images,
    build::{AboutImage, BuildContext, BuildSandbox, Built, NewBuild, TARGET, Work, tag_of},
    build_log::BuildLog,
    config::config_of,
    hidden::{name_hidden, name_left_out},
    layers::UsedLayers,
};
use crate::{
    Caller, PoolBounds,
    admission::Turn,
    bounds::DISK_MB,
    files::{Tool, ToolOptions, feed_tool},
    operation::OperationSpec,
};
use atoll_guest_tools::{AppliedLayer, ApplyLayer, Compression, ImageLimits};
use atoll_oci::{Credentials, Digest, PullEvent, PullLimits, PulledImage, PulledLayer, Reference};
use atoll_store::Scope;
use atoll_types::{
    BuildId, BuildProgress, BuildRecord, BuildState, Error, ErrorCode, ImageDefaults, ImageOrigin, Operation,
    Result,
};
use bytes::Bytes;
use futures_util::StreamExt;
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

const MIB: u64 = 1 << 20;
/// Pulls of one owner at a time, where no admin asks: the others have places left.
const MOST_OF_OWNER: usize = 2;
/// What the sandbox of a pull has beside the image: layers are streamed into it.
const SPOOL_MB: u64 = 64;
/// How long a request waits for another that asks whether the same image is here.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest user, password or token.
const LONGEST_LOGIN: usize = 16 << 10;

/// Who asks a registry, where a request says it.
#[derive(Clone, PartialEq, Eq)]
pub enum RegistryLogin {
    Password { username: String, password: String },
    Token(String),
}

impl fmt::Debug for RegistryLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistryLogin")
    }
}

impl RegistryLogin {
    pub(super) fn secret(&self) -> &str {
        match self {
            Self::Password { password, .. } => password,
            Self::Token(token) => token,
        }
    }

    pub(super) fn credentials(self) -> Result<Credentials> {
        let long = |text: &str| text.len() > LONGEST_LOGIN;
        Ok(match self {
            Self::Password { username, password } if long(&username) || long(&password) => {
                return Err(Error::invalid("password", "the user or the password is too long"));
            }
            Self::Token(token) if long(&token) => {
                return Err(Error::invalid("token", "the token is too long"));
            }
            Self::Password { username, password } => Credentials::Basic { user: username, password },
            Self::Token(token) => Credentials::Bearer(token),
        })
    }
}

/// An image to pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullImage {
    /// HOST/NAME, with a tag or a digest.
    pub reference: String,
    /// NAME or NAME:TAG; the reference's own where it is left out.
    pub name: Option<String>,
    /// Whether the tag may be another image's until now.
    pub replace: bool,
    /// What the image may hold; as the setting `images.max_mb` says where it is left out.
    pub disk_mb: Option<u64>,
    /// Who asks; as the operator's file says where it is left out.
    pub login: Option<RegistryLogin>,
    /// As a create does: only where `images.pull_on_use` lets this caller, and not while another request pulls it.
    pub on_use: bool,
}

/// What an image is called whose request gives it no name.
fn usual_name(reference: &Reference) -> String {
    let tag = match (reference.tag(), reference.digest()) {
        (Some(tag), _) => tag,
        (None, Some(digest)) => digest.hex().get(..12).unwrap_or_default(),
        (None, None) => "latest",
    };
    format!("{}/{}:{tag}", reference.registry(), reference.repository())
}

impl Images {
    /// Pulls an image in the background.
    pub async fn pull(&self, caller: &Caller, request: PullImage) -> Result<BuildRecord> {
        let mut what = OperationSpec::new(Operation::ImagePull).with(&request.reference);
        if let Some(name) = &request.name {
            what = what.and("name", name);
        }
        what.secrets = request.login.iter().map(|login| login.secret().to_owned()).collect();
        let audited = self.operations.audited(caller, what).await?;
        let prepared = async {
            let turn = self.counted_turn(caller).await?;
            Ok((turn, self.prepare_pull(caller, request).await?))
        };
        match prepared.await {
            Ok((turn, (new, work))) => {
                let begun = self.start_build(caller, audited, new, work).await;
                // It is recorded, and the next one counts it.
                drop(turn);
                begun
            }
            Err(error) => audited.done(Err(error)).await,
        }
    }

    /// The turn of pulls whose images count against a limit of all ordinary keys: between the count and the record of a build no other
    /// is counted.
    async fn counted_turn(&self, caller: &Caller) -> Result<Option<Turn>> {
        if caller.scope == Scope::Admin {
            return Ok(None);
        }
        let late = || Error::new(ErrorCode::Unavailable, "other images are being asked for; try again");
        self.turns.take("counted pulls", Instant::now() + PATIENCE, late).await.map(Some)
    }

    async fn prepare_pull(&self, caller: &Caller, request: PullImage) -> Result<(NewBuild, Work)> {
        let PullImage { reference, name, replace, disk_mb, login, on_use } = request;
        let reference: Reference = reference.parse()?;
        let plain = name.is_none() && !replace && disk_mb.is_none() && login.is_none();
        let by_admin = caller.scope == Scope::Admin && !on_use;
        if !(by_admin || plain && self.may_pull(caller, &reference)) {
            let message = match caller.scope {
                Scope::Admin => format!("{reference} is not pulled on use: images.pull_on_use is off"),
                _ => format!("your key may not pull {reference}; ask an admin"),
            };
            return Err(Error::new(ErrorCode::PermissionDenied, message).at("reference"));
        }
        if on_use && self.pulling(&reference).await?.is_some() {
            let message = format!("{reference} is being pulled");
            return Err(Error::new(ErrorCode::Conflict, message).at("reference"));
        }
        let tag = match &name {
            Some(name) => tag_of("name", name)?,
            None => tag_of("reference", &usual_name(&reference))?,
        };
        // What the operator's aliases mean is the operator's to decide, whatever a registry has under that name.
        if caller.scope != Scope::Admin && self.catalogue.is_alias(&tag) {
            let message = format!("{} is an alias of this server's; ask an admin", tag.name);
            return Err(Error::new(ErrorCode::PermissionDenied, message).at("reference"));
        }
        let mut disk_mb =
            super::within("disk_mb", disk_mb, &DISK_MB)?.unwrap_or(self.live_settings.now().images_max_mb);
        if caller.scope != Scope::Admin {
            disk_mb = disk_mb.min(self.left_for_pulls(&self.store.running_builds().await?)?);
        }
        let credentials = match login {
            Some(login) => login.credentials()?,
            None => self.layers.credentials(&reference).await?,
        };
        let new = NewBuild {
            tag,
            origin: ImageOrigin::Pull,
            source: reference.to_string(),
            disk_mb,
            replace,
            sandbox: BuildSandbox { disk_mb: SPOOL_MB, ..BuildSandbox::default() },
            first: None,
            pool: PoolBounds::default(),
            most_of_owner: (caller.scope != Scope::Admin).then_some(MOST_OF_OWNER),
        };
        let layers = self.layers.acquire().await?;
        let work: Work = Box::new(move |context| {
            Box::pin(async move { fetch_and_unpack(context, layers, reference, credentials, disk_mb).await })
        });
        Ok((new, work))
    }

    /// What an image may hold that an ordinary key has pulled. Images belong to no owner's plan, so together those that no
    /// admin approved have a limit; an image that is being pulled counts with the most that it may hold.
    fn left_for_pulls(&self, running: &[BuildRecord]) -> Result<u64> {
        let settings = self.live_settings.now();
        let records = self.catalogue.records();
        let unapproved =
            records.iter().filter(|record| record.origin == ImageOrigin::Pull && !record.approved);
        let there: u64 = unapproved.map(|record| record.size_bytes.div_ceil(MIB)).sum();
        let pulls = running.iter().filter(|build| build.origin == ImageOrigin::Pull).count() as u64;
        let used = there.saturating_add(pulls.saturating_mul(settings.images_max_mb));
        let allowed = settings.images_pull_on_use_max_mb;
        let left = allowed.saturating_sub(used);
        if left < *DISK_MB.start() {
            let message = format!(
                "images that were pulled and not approved hold {used} MiB, and may hold {allowed} MiB; ask an admin"
            );
            return Err(Error::new(ErrorCode::LimitExceeded, message)
                .fact("limit", "images.pull_on_use_max_mb")
                .fact("used", used)
                .fact("allowed", allowed)
                .fact("when", "when an admin approves or removes images"));
        }
        Ok(left)
    }

    /// Whether a key without the scope admin may have this image pulled.
    fn may_pull(&self, caller: &Caller, reference: &Reference) -> bool {
        let settings = self.live_settings.now();
        if !settings.images_pull_on_use {
            return false;
        }
        let listed = || {
            let registry = reference.registry();
            settings.images_pull_on_use_registries.iter().any(|own| own.eq_ignore_ascii_case(registry))
        };
        caller.scope == Scope::Admin || (self.is_unrestricted() && listed())
    }

    /// Whether ordinary keys may use images that no admin has looked at.
    pub(super) fn is_unrestricted(&self) -> bool {
        let settings = self.live_settings.now();
        !settings.images_require_approved && settings.db_active_images.is_none()
    }

    /// The build that pulls an image under its own name.
    async fn pulling(&self, reference: &Reference) -> Result<Option<BuildRecord>> {
        let running = self.store.running_builds().await?;
        let name = usual_name(reference);
        let same = |build: &BuildRecord| {
            // One that could not be cleaned up is still recorded, and pulls nothing.
            let runs = self.builds.find(build.id).is_some();
            runs && build.origin == ImageOrigin::Pull && build.tag.to_string() == name
        };
        Ok(running.into_iter().find(same))
    }

    /// Pulls or builds the image that a create names, where it is not here and the settings allow it. Where they do not, the
    /// create itself says that there is no such image. For a key that may not create, it does nothing either.
    pub async fn make_on_use(&self, caller: &Caller, image: Option<&str>) -> Result<()> {
        if caller.must_write().is_err() {
            return Ok(());
        }
        if let Some(template) = image.and_then(|image| self.catalogue.unbuilt(image)) {
            return self.build_on_use(caller, &template).await;
        }
        let Some(image) = image.filter(|image| self.catalogue.find(image).is_none()) else { return Ok(()) };
        let Ok(reference) = image.parse::<Reference>() else { return Ok(()) };
        // A create that follows finds what was pulled by this very text.
        let found = image.starts_with(reference.registry())
            && (reference.tag().is_none() || reference.digest().is_none());
        if !found || !self.may_pull(caller, &reference) {
            return Ok(());
        }
        let late = || Error::new(ErrorCode::Conflict, format!("{image} is being pulled; try again"));
        // Requests for one image wait for one pull.
        let turn = self.turns.take(&format!("pull {reference}"), Instant::now() + PATIENCE, late).await?;
        if self.catalogue.find(image).is_some() {
            return Ok(());
        }
        let build = match self.pulling(&reference).await? {
            Some(build) => build.id,
            None => {
                let reference = image.to_owned();
                let request = PullImage { reference, on_use: true, ..PullImage::default() };
                self.pull(caller, request).await?.id
            }
        };
        drop(turn);
        let failed = |why| {
            let message = format!("{image} could not be pulled: {why}");
            Error::new(ErrorCode::BadGateway, message).at("image")
        };
        self.await_done(build).await?.map_err(failed)
    }

    /// Waits for a build's end; why it failed where it did.
    pub(super) async fn await_done(&self, build: BuildId) -> Result<std::result::Result<(), String>> {
        self.await_end(build).await;
        Ok(match self.store.build(build).await?.map(|build| (build.state, build.error)) {
            Some((BuildState::Done, _)) => Ok(()),
            ended => Err(ended.and_then(|(_, error)| error).unwrap_or_else(|| "it was cancelled".into())),
        })
    }
}

/// A size for people.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / MIB as f64)
}

/// Writes what a pull says into the log of its build.
struct PullLog {
    log: BuildLog,
    state: Mutex<Fetched>,
}

#[derive(Default)]
struct Fetched {
    total: u64,
    /// Bytes by layer.
    layers: HashMap<String, u64>,
}

impl PullLog {
    fn tell(&self, event: PullEvent) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            PullEvent::Resolved { manifest, layers, bytes } => {
                state.total = bytes;
                self.log.line(format!("{manifest}: {layers} layers, {}", mebibytes(bytes)));
            }
            PullEvent::Layer { digest, done, size } => {
                let before = state.layers.insert(digest.to_string(), done);
                if done == size && before != Some(size) {
                    let how = if before.is_none() { "is here" } else { "fetched" };
                    self.log.line(format!("{digest} {how}, {}", mebibytes(size)));
                }
            }
        }
        let done_bytes = state.layers.values().sum();
        self.log.progress(BuildProgress { done_bytes, total_bytes: state.total, step: 1, steps: 2 });
    }
}

async fn fetch_and_unpack(
    context: BuildContext,
    layers: UsedLayers,
    reference: Reference,
    credentials: Credentials,
    disk_mb: u64,
) -> Result<Built> {
    let bytes = disk_mb.saturating_mul(MIB);
    context.log.line(format!("pulling {reference}"));
    let pull_log = PullLog { log: context.log.clone(), state: Mutex::default() };
    let limits = PullLimits { bytes, ..PullLimits::default() };
    let UsedLayers { blobs, registries, .. } = &layers;
    let pulled =
        registries.pull(blobs, &reference, &credentials, &limits, &|event| pull_log.tell(event)).await?;
    unpack(&context, &layers, &pulled, bytes).await?;
    let PulledImage { manifest_digest, config, .. } = pulled;
    let config = config_of(&context.container, config, &context.log).await?;
    name_hidden(&context.container, &context.log, TARGET).await;
    let digest = reference.digest().cloned().unwrap_or(manifest_digest);
    Ok(Built {
        digest: digest.as_str().to_owned(),
        source: reference.to_string(),
        config,
        defaults: ImageDefaults::default(),
        about: AboutImage::default(),
    })
}

/// Unpacks the layers one after another, the lowest first.
async fn unpack(context: &BuildContext, layers: &UsedLayers, pulled: &PulledImage, bytes: u64) -> Result<()> {
    let mut left = ImageLimits { bytes, ..ImageLimits::default() };
    let total_bytes = pulled.layers.iter().map(|layer| layer.descriptor.size).sum();
    let (mut before, mut left_out) = (0, Vec::new());
    for (at, layer) in pulled.layers.iter().enumerate() {
        let PulledLayer { descriptor, diff_id } = layer;
        context.log.line(format!("unpacking layer {} of {}", at + 1, pulled.layers.len()));
        let request = ApplyLayer {
            target: TARGET.into(),
            compression: Compression::Detect,
            digest: Some(descriptor.digest.clone()),
            diff_id: Some(diff_id.clone()),
            limits: left,
            plain: false,
        };
        request.check()?;
        let tool = Tool::start(&context.container, "apply-layer", &request, ToolOptions::fed()).await?;
        let log = context.log.clone();
        let mut fed = before;
        let body = layers.blobs.stream(&descriptor.digest).await?.inspect(move |piece| {
            fed += piece.as_ref().map_or(0, Bytes::len) as u64;
            log.progress(BuildProgress { done_bytes: fed, total_bytes, step: 2, steps: 2 });
        });
        let fed: Result<AppliedLayer> = feed_tool(&context.container, tool, body).await;
        let applied = match fed {
            Ok(applied) => applied,
            Err(error) => return Err(explained(layers, &descriptor.digest, error).await),
        };
        // The tool checks it where the layer is read; its answer is no proof of that.
        if applied.diff_id != *diff_id {
            let message =
                format!("the diff_id of layer {} is not the one in the image's configuration", at + 1);
            return Err(Error::invalid("diff_id", message));
        }
        left.bytes = left.bytes.saturating_sub(applied.bytes);
        left.entries = left.entries.saturating_sub(applied.entries);
        left_out.push(applied.left_out);
        before += descriptor.size;
    }
    name_left_out(&context.log, left_out);
    Ok(())
}

/// Why a layer could not be applied. One that the disk has damaged since it was fetched is removed, or every pull of its image would
/// fail until it is old.
async fn explained(layers: &UsedLayers, digest: &Digest, error: Error) -> Error {
    match layers.blobs.remove_damaged(digest).await {
        Ok(true) => {
            let message =
                format!("the layer {digest} was damaged on this server and was removed; pull again");
            Error::new(ErrorCode::Unavailable, message)
        }
        Ok(false) => error,
        Err(unread) => {
            tracing::warn!(%digest, error = %unread, "a layer that could not be applied cannot be checked");
            error
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_called_as_its_registry_calls_it() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        for (reference, name) in [
            ("registry.example/team/app", "registry.example/team/app:latest"),
            ("127.0.0.1:5000/app:1", "127.0.0.1:5000/app:1"),
            (&format!("registry.example/app@{digest}"), "registry.example/app:abababababab"),
            (&format!("registry.example/app:2@{digest}"), "registry.example/app:2"),
        ] {
            let reference: Reference = reference.parse().unwrap();
            assert_eq!(usual_name(&reference), name);
            assert_eq!(tag_of("reference", name).unwrap().to_string(), name);
        }
    }
}
