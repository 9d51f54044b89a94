//! Images from templates and Dockerfiles. Steps run one after the other in a sandbox whose root filesystem is the image that is built;
//! a template without a base begins with packages of Debian, which are installed in a sandbox of `host` first.
//!
//! After each step that changes files the volume is sealed to an image without a name, which is kept by the step's key: a later
//! build with the same beginning starts there. A kept step is recorded after it is sealed and removed after its record, so that
//! one without a record belongs to no build, and the next start removes it. The last used are kept, for as long as layers are, and none where a
//! build found the disk full. A step that a build is about to begin with is not removed ([`step_pins`]).

mod debian;
mod files;
mod installed;
mod on_use;
mod smoke;
mod step_pins;
mod steps;
mod targets;

pub(super) use step_pins::StepPins;

use super::{
    Images,
    build::{AboutImage, BuildContext, BuildSandbox, Built, FirstStage, NewBuild, Work, tag_of},
    hidden::name_hidden,
};
use crate::{
    Caller, Policy, PoolBounds,
    bounds::{CPU_MILLIS, DISK_MB, MEMORY_MB},
    image_specs::{
        Plan, Start, Template, canonical,
        dockerfile::{Dockerfile, LONGEST_DOCKERFILE, StepKey},
        templates,
    },
    operation::{AuditedOperation, OperationSpec},
    run_to_end::run_to_end,
};
use atoll_types::{
    BuildProgress, BuildRecord, BuildStepRecord, Error, ErrorCode, ImageConfig, ImageDefaults, ImageId,
    ImageOrigin, ImageRecord, InstalledPackage, Millis, Operation, Result, VolumeRecord, time::now_ms,
};
use bytes::Bytes;
use files::BuildFiles;
use futures_util::Stream;
use sha2::{Digest, Sha256 as Hasher};
use std::{collections::BTreeMap, sync::Arc};
use step_pins::StepPin;
use steps::{Steps, changes_files, configure, shown};
use targets::check_targets;

/// Steps that are kept, and what they may hold together.
const MOST_STEPS_KEPT: usize = 64;
const MOST_BYTES_KEPT: u64 = 64 << 30;
/// The longest file with a lock: far more than the packages that one may have.
const LONGEST_LOCK: usize = 2 << 20;
/// The memory of a build that names none.
const USUAL_MEMORY_MB: u64 = 2048;
/// What the sandbox of a build may hold beside the image: temporary files of its commands.
const SPOOL_MB: u64 = 4096;
const PROCESSES: u32 = 1024;

/// What an image is built of.
#[derive(Debug, Clone, PartialEq)]
pub enum Recipe {
    /// A template that ships, by its id.
    Shipped(String),
    /// A template.
    Template(Box<Template>),
    /// A Dockerfile and values for its arguments.
    Dockerfile {
        /// Its text.
        text: String,
        /// By name.
        arguments: BTreeMap<String, String>,
    },
    /// A Dockerfile among the files that come with the build, or a template where the name ends with `.json`.
    File {
        /// Its path there.
        path: String,
        /// Values for a Dockerfile's arguments.
        arguments: BTreeMap<String, String>,
        /// The path there of a file with exact versions of packages, as JSON.
        lock: Option<String>,
    },
}

/// A request for an image from a template.
#[derive(Debug, Clone, PartialEq)]
pub struct BuildImage {
    /// What of.
    pub recipe: Recipe,
    /// NAME or NAME:TAG; the template's id where it is left out.
    pub name: Option<String>,
    /// Whether the tag may be another image's until now.
    pub replace: bool,
    /// What the image may hold; as the setting `images.max_mb` says where it is left out.
    pub disk_mb: Option<u64>,
    /// The memory of the steps.
    pub memory_mb: Option<u64>,
    /// Their processors.
    pub cpu_cores: Option<f64>,
    /// What the steps may reach; the package managers' presets where it is left out.
    pub egress: Option<Policy>,
    /// Whether every step is carried out, kept or not.
    pub no_cache: bool,
    /// Exact versions of packages.
    pub lock: Vec<InstalledPackage>,
    /// How many containers of it are kept ready.
    pub pool: PoolBounds,
}

/// A recipe that was read.
struct Read {
    plan: Plan,
    /// The base of a Dockerfile, whose variables its lines were read with: another image may have its tag soon.
    base: Option<Arc<ImageRecord>>,
    /// The template, where it is one.
    template: Option<Template>,
}

fn wrong_template(error: &serde_json::Error) -> Error {
    Error::invalid("template", format!("the template cannot be read: {error}"))
}

impl Recipe {
    /// As the audit trail names it.
    fn named(&self) -> String {
        match self {
            Self::Shipped(id) => format!("template {id}"),
            Self::Template(template) => format!("template {}", template.id),
            Self::Dockerfile { .. } => "Dockerfile".into(),
            Self::File { path, .. } => path.clone(),
        }
    }

    /// Reads it. `find` finds the base of a Dockerfile.
    fn read(
        self,
        files: Option<&BuildFiles>,
        lock: Vec<InstalledPackage>,
        find: impl Fn(&str) -> Result<Arc<ImageRecord>>,
    ) -> Result<Read> {
        let template = match self {
            Self::Shipped(id) => {
                let found = templates().iter().find(|template| template.id == id).cloned();
                found.ok_or_else(|| {
                    let ids: Vec<&str> = templates().iter().map(|template| template.id.as_str()).collect();
                    let message = format!("there is no template {id:?}; there are {}", ids.join(", "));
                    Error::invalid("template", message)
                })?
            }
            Self::Template(template) => *template,
            Self::File { path, arguments, lock: Some(file) } => {
                let text =
                    files.ok_or_else(steps::no_files)?.text(&file, LONGEST_LOCK).map_err(|e| e.at("lock"))?;
                let lock = serde_json::from_str(&text).map_err(|e| {
                    Error::invalid("lock", format!("{file} is no list of packages with their versions: {e}"))
                })?;
                return Self::File { path, arguments, lock: None }.read(files, lock, find);
            }
            Self::File { path, arguments, lock: None } if path.to_ascii_lowercase().ends_with(".json") => {
                if !arguments.is_empty() {
                    return Err(Error::invalid(
                        "args",
                        format!("{path} is a template, and args are a Dockerfile's"),
                    ));
                }
                let text = files.ok_or_else(steps::no_files)?.text(&path, LONGEST_DOCKERFILE)?;
                serde_json::from_str(&text).map_err(|e| wrong_template(&e))?
            }
            Self::File { path, arguments, lock: None } => {
                let text = files.ok_or_else(steps::no_files)?.text(&path, LONGEST_DOCKERFILE)?;
                return Self::Dockerfile { text, arguments }.read(files, lock, find);
            }
            Self::Dockerfile { text, arguments } => {
                let base = find(&Dockerfile::base(&text, &arguments)?)?;
                let environment = base.config.environment.clone();
                let lock = canonical(lock);
                let plan = Plan { lock, ..Dockerfile::parse(&text, arguments, environment)?.into() };
                return Ok(Read { plan, base: Some(base), template: None });
            }
        };
        let plan = template.plan(lock)?;
        Ok(Read { plan, base: None, template: Some(template) })
    }
}

/// A build that may begin.
struct Ready {
    read: Read,
    files: Option<BuildFiles>,
    keys: Vec<StepKey>,
    /// The key of what comes before all steps, where that is kept too.
    start_key: Option<StepKey>,
    /// The base's own configuration, and what identifies its files.
    config: ImageConfig,
    identity: String,
    /// How many steps are done already by what the volume begins with; with that image.
    done: usize,
    /// That image is not removed before the build has begun with it.
    pin: Option<StepPin>,
    source: String,
}

impl Images {
    /// Makes an image from a template, in the background.
    pub async fn build_image(&self, caller: &Caller, request: BuildImage) -> Result<BuildRecord> {
        let audited = self.begin_build(caller, &request).await?;
        self.build_of(caller, audited, request, None).await
    }

    /// The same with files, as a tar archive.
    pub async fn build_image_with_files(
        &self,
        caller: &Caller,
        request: BuildImage,
        body: impl Stream<Item = Result<Bytes>> + Send + Unpin,
    ) -> Result<BuildRecord> {
        let audited = self.begin_build(caller, &request).await?;
        match BuildFiles::receive(self.builds.logs.folder(), body).await {
            Ok(files) => self.build_of(caller, audited, request, Some(files)).await,
            Err(error) => audited.done(Err(error)).await,
        }
    }

    async fn begin_build(&self, caller: &Caller, request: &BuildImage) -> Result<AuditedOperation> {
        let name = request.name.clone().unwrap_or_default();
        let what = OperationSpec::new(Operation::ImageBuild).with(name).and("recipe", request.recipe.named());
        self.operations.audited(caller, what).await
    }

    async fn build_of(
        &self,
        caller: &Caller,
        audited: AuditedOperation,
        request: BuildImage,
        files: Option<BuildFiles>,
    ) -> Result<BuildRecord> {
        match self.prepare_template(request, files).await {
            Ok((new, work)) => self.start_build(caller, audited, new, work).await,
            Err(error) => audited.done(Err(error)).await,
        }
    }

    async fn prepare_template(
        &self,
        request: BuildImage,
        files: Option<BuildFiles>,
    ) -> Result<(NewBuild, Work)> {
        let BuildImage { recipe, name, replace, disk_mb, memory_mb, cpu_cores, egress, no_cache, lock, pool } =
            request;
        let source = recipe.named();
        let read = recipe.read(files.as_ref(), lock, |name| self.base(name))?;
        let usual = read.template.as_ref().map(|template| template.id.clone());
        let missing = || Error::invalid("name", "an image of a Dockerfile needs a name");
        let tag = tag_of("name", &name.or(usual).ok_or_else(missing)?)?;
        let disk_mb =
            super::within("disk_mb", disk_mb, &DISK_MB)?.unwrap_or(self.live_settings.now().images_max_mb);
        let range = f64::from(*CPU_MILLIS.start()) / 1000.0..=f64::from(*CPU_MILLIS.end()) / 1000.0;
        let sandbox = BuildSandbox {
            base: None,
            as_root: true,
            egress: Some(egress.unwrap_or_else(|| self.sandboxes.egress_sessions.of_builds())),
            disk_mb: SPOOL_MB,
            memory_mb: super::within("memory_mb", memory_mb, &MEMORY_MB)?.or(Some(USUAL_MEMORY_MB)),
            cpu_cores: super::within("cpu_cores", cpu_cores, &range)?,
            processes: Some(PROCESSES),
        };
        let (ready, base, first) = self.ready(read, files, source.clone(), no_cache, &sandbox).await?;
        let images = self.clone();
        let work: Work = Box::new(move |context| Box::pin(images.carry_out_steps(context, ready)));
        let sandbox = BuildSandbox { base, ..sandbox };
        let origin = ImageOrigin::Template;
        let most_of_owner = None;
        Ok((NewBuild { tag, origin, source, disk_mb, replace, sandbox, first, pool, most_of_owner }, work))
    }

    /// The image that a build begins with.
    fn base(&self, name: &str) -> Result<Arc<ImageRecord>> {
        let found = self.catalogue.resolve(name).map_err(|e| e.at("base"))?;
        found.record.ok_or_else(|| {
            Error::invalid("base", "`host` cannot be built on; import or build an image first")
        })
    }

    /// Where a build begins: with a step that is kept, with its base, or with packages.
    async fn ready(
        &self,
        read: Read,
        files: Option<BuildFiles>,
        source: String,
        no_cache: bool,
        sandbox: &BuildSandbox,
    ) -> Result<(Ready, Option<ImageId>, Option<FirstStage>)> {
        let plan = &read.plan;
        let digest = |path: &str| files.as_ref().ok_or_else(steps::no_files)?.digest(path);
        let (keys, start_key, config, identity, base, sources);
        match &plan.start {
            Start::Image(name) => {
                let record = read.base.clone().map_or_else(|| self.base(name), Ok)?;
                (start_key, keys) = plan.keys(&record.digest, digest).map(|(_, keys)| (None, keys))?;
                sources = None;
                config = record.config.clone();
                (identity, base) = (record.digest.clone(), Some(record.id));
            }
            Start::Debian(_) => {
                let found = self.sandboxes.egress_sessions.apt_sources();
                let found = debian::sources_of(found)?;
                (start_key, keys) =
                    plan.keys(&found.text, digest).map(|(first, keys)| (Some(first), keys))?;
                sources = Some(found);
                (config, identity, base) = (ImageConfig::default(), String::new(), None);
            }
        }
        check_targets(&plan.steps, &config)?;
        if let Some(files) = &files {
            files.check_archives(&plan.steps)?;
        }
        let mut ready = Ready { read, files, keys, start_key, config, identity, done: 0, pin: None, source };
        let mut base = base;
        if !no_cache && let Some((done, step, pin)) = self.kept(&ready).await? {
            (ready.done, ready.identity, base) = (done, step.image.to_string(), Some(step.image));
            ready.pin = Some(pin);
            return Ok((ready, base, None));
        }
        let first = match (&ready.read.plan.start, sources) {
            (Start::Debian(packages), Some(sources)) => {
                let (packages, lock) = (packages.clone(), ready.read.plan.lock.clone());
                let sandbox = BuildSandbox { as_root: false, ..sandbox.clone() };
                let work = Box::new(move |context: BuildContext| {
                    context.log.line(format!("installing {} packages of Debian", packages.len()));
                    Box::pin(debian::install(context, sources, packages, lock)) as _
                });
                Some(FirstStage { sandbox, work })
            }
            _ => None,
        };
        Ok((ready, base, first))
    }

    /// The last step whose result is kept, as how many are done with it.
    async fn kept(&self, ready: &Ready) -> Result<Option<(usize, BuildStepRecord, StepPin)>> {
        let steps = ready.read.plan.steps.iter().zip(&ready.keys).enumerate();
        let changing = steps.filter(|(_, (step, _))| changes_files(&step.kind));
        let keys: Vec<(usize, StepKey)> = changing.map(|(at, (_, key))| (at + 1, *key)).collect();
        let start = ready.start_key.map(|key| (0, key));
        for (done, key) in keys.into_iter().rev().chain(start) {
            let Some(found) = self.store.use_build_step(key, now_ms()).await? else { continue };
            let pin = self.builds.step_pins.pin(found.image);
            // A removal that did not see the pin has taken the record out by now.
            let again = self.store.use_build_step(key, now_ms()).await?;
            if again.is_some_and(|again| again.image == found.image) {
                return Ok(Some((done, found, pin)));
            }
        }
        Ok(None)
    }

    async fn carry_out_steps(self, context: BuildContext, ready: Ready) -> Result<Built> {
        let Ready { read, files, keys, start_key, config, mut identity, done, pin, source } = ready;
        // The volume has what it begins with.
        drop(pin);
        let BuildContext { container, log, volume } = context;
        let Read { plan, base: _, template } = read;
        if identity.is_empty() {
            identity = self.keep(&volume, start_key).await?;
        }
        let mut steps = Steps { container, log, files, config, as_root: plan.as_root };
        let count = u32::try_from(plan.steps.len()).unwrap_or(u32::MAX);
        for (at, (step, key)) in plan.steps.iter().zip(&keys).enumerate() {
            let number = u32::try_from(at + 1).unwrap_or(u32::MAX);
            steps.log.progress(BuildProgress { step: number, steps: count, ..BuildProgress::default() });
            let kept = if at < done && changes_files(&step.kind) { " (kept)" } else { "" };
            steps.log.line(format!("step {number}/{count}: {}{kept}", shown(&step.kind)));
            if at < done {
                configure(&mut steps.config, &step.kind)?;
                continue;
            }
            let failed = |e: Error| match e.code {
                ErrorCode::DiskFull => e.context(format!("step {number}: the image has no room left")),
                _ => e.context(format!("step {number}")),
            };
            steps.step(step).await.map_err(failed)?;
            if changes_files(&step.kind) {
                identity = self.keep(&volume, Some(*key)).await?;
            }
        }
        let packages = installed::installed(&steps.container).await;
        installed::check_lock(&plan.lock, &packages)?;
        if let Some(line) = &plan.check {
            steps.log.line(format!("check: {line}"));
            let mut command = installed::ordinary(line);
            command.environment.extend(steps.config.environment.clone());
            steps::run_logged(&steps.container, &steps.log, command, "the check").await?;
        }
        let config = steps.finished().await;
        smoke::try_start(&steps.container, &steps.log, &config).await?;
        name_hidden(&steps.container, &steps.log, "").await;
        let digest = identity_digest(&identity, &config)?;
        let about = AboutImage {
            display_name: template.as_ref().map(|template| template.name.clone()),
            description: template.as_ref().map(|of| of.description.clone()).filter(|text| !text.is_empty()),
            packages,
        };
        let defaults = template.and_then(|template| template.default_resources).map(|of| ImageDefaults {
            memory_mb: Some(of.memory_mb),
            cpu_millis: Some((of.cpu_cores * 1000.0).round() as u32),
            disk_mb: Some(of.disk_mb),
        });
        Ok(Built { digest, source, config, defaults: defaults.unwrap_or_default(), about })
    }

    /// Keeps what the volume holds now, and returns what identifies it. Runs to its end, also where the build is cancelled.
    async fn keep(&self, volume: &VolumeRecord, key: Option<StepKey>) -> Result<String> {
        let image = ImageId::random();
        let Some(key) = key else { return Ok(image.to_string()) };
        let (images, volume) = (self.clone(), volume.clone());
        run_to_end("the keeping of a step", async move {
            let power = images.power(&volume.provider)?;
            power.seal(volume.id, image).await?;
            let sizes = power.list_images().await?;
            let size_bytes = sizes.iter().find(|one| one.id == image).map_or(0, |one| one.bytes);
            let (provider, now) = (volume.provider.clone(), now_ms());
            let new =
                BuildStepRecord { key, image, provider, size_bytes, created_at: now, last_used_at: now };
            if let Some(there) = images.store.insert_build_step(new.clone()).await? {
                // A build without the cache replaces what was kept.
                images.forget_step(&there).await?;
                if images.store.insert_build_step(new).await?.is_some() {
                    // Another build begins with what was kept.
                    power.remove_image(image).await?;
                }
            }
            if let Err(error) = images.forget_old_steps(Millis::MIN).await {
                tracing::warn!(%error, "old steps of builds are not removed");
            }
            Ok(())
        })
        .await?;
        Ok(image.to_string())
    }

    /// Removes a step, unless a build is about to begin with it.
    async fn forget_step(&self, step: &BuildStepRecord) -> Result<()> {
        self.store.remove_build_step(step.key).await?;
        if self.builds.step_pins.is_pinned(step.image) {
            return Ok(self.store.insert_build_step(step.clone()).await.map(drop)?);
        }
        self.power(&step.provider)?.remove_image(step.image).await
    }

    /// Removes what was last used before this time, and what was not used for longest, above the number and the size that
    /// are kept.
    pub(crate) async fn forget_old_steps(&self, used_before: Millis) -> Result<()> {
        let mut bytes = 0_u64;
        for (at, step) in self.store.build_steps().await?.into_iter().enumerate() {
            bytes = bytes.saturating_add(step.size_bytes);
            let is_old = step.last_used_at < used_before;
            if is_old || at >= MOST_STEPS_KEPT || (bytes > MOST_BYTES_KEPT && at > 0) {
                self.forget_step(&step).await?;
            }
        }
        Ok(())
    }
}

/// What identifies an image: its files, which are of one build, and its configuration.
fn identity_digest(files: &str, config: &ImageConfig) -> Result<String> {
    let text = serde_json::to_vec(&("atoll-template-1", files, config));
    let text = text.map_err(|e| Error::internal(e.to_string()))?;
    let digest: [u8; 32] = Hasher::digest(&text).into();
    Ok(format!("sha256:{}", atoll_types::audit::Sha256(digest)))
}
