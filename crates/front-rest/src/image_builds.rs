//! Images from templates and Dockerfiles: what a build is asked for with, without files and with them.

use crate::{
    App,
    builds::Build,
    egress::EgressPolicy,
    files::steady,
    parse::{Params, Raw, required_json, seconds},
};
use atoll_core::{
    BuildImage, BuildView, Policy, PoolBounds, Recipe,
    image_specs::{Template, TemplateFile, TemplatePackages, TemplateResources},
};
use atoll_http::{Busy, Failure, Repeat, Who, once};
use atoll_types::{BuildProgress, BuildRecord, Error, InstalledPackage};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// A package with its exact version.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackageVersion {
    /// debian, pip or npm; in an image that was pulled or imported also alpine, which no lock may have.
    manager: String,
    name: String,
    version: String,
}

impl From<InstalledPackage> for PackageVersion {
    fn from(package: InstalledPackage) -> Self {
        let InstalledPackage { manager, name, version } = package;
        Self { manager, name, version }
    }
}

impl From<PackageVersion> for InstalledPackage {
    fn from(package: PackageVersion) -> Self {
        let PackageVersion { manager, name, version } = package;
        Self { manager, name, version }
    }
}

/// Packages by what installs them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TemplatePackagesBody {
    debian: Vec<String>,
    pip: Vec<String>,
    npm: Vec<String>,
    /// Debian's r-cran-NAME.
    r: Vec<String>,
}

/// A file that is written into the image.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateFileBody {
    /// From the root.
    path: String,
    content: String,
    /// Permissions in octal; 0644 without them.
    mode: Option<String>,
}

/// What a sandbox gets that names no limits.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateResourcesBody {
    memory_mb: u64,
    cpu_cores: f64,
    disk_mb: u64,
}

/// What an image is built of, in this order: packages, files, variables, lines for the shell, the check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateBody {
    /// The image's name where the request has none.
    id: String,
    /// Its name for people; the id without it.
    name: Option<String>,
    #[serde(default)]
    description: String,
    /// The image that it begins with; Debian's packages alone without it.
    base: Option<String>,
    #[serde(default)]
    packages: TemplatePackagesBody,
    #[serde(default)]
    files: Vec<TemplateFileBody>,
    #[serde(default)]
    setup_commands: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// A line for the shell that each sandbox of the image starts, as its user; kept in the label `atoll.start_command`.
    start_command: Option<String>,
    /// A line for the shell that must succeed in the end, as an ordinary user. With a start_command it is tried until it succeeds, in the
    /// build and in each sandbox; kept in the label `atoll.ready_check`.
    ready_check: Option<String>,
    /// How long that may take: 1 to 600, 60 without it.
    #[schema(value_type = Option<f64>)]
    #[serde(default, deserialize_with = "seconds")]
    ready_timeout_seconds: Option<u32>,
    /// The time between two tries: 50 to 60000, 500 without it.
    ready_interval_ms: Option<u32>,
    default_resources: Option<TemplateResourcesBody>,
}

impl From<TemplateBody> for Template {
    fn from(body: TemplateBody) -> Self {
        let TemplateBody {
            id,
            name,
            description,
            base,
            packages: TemplatePackagesBody { debian, pip, npm, r },
            files,
            setup_commands,
            env,
            start_command,
            ready_check,
            ready_timeout_seconds,
            ready_interval_ms,
            default_resources,
        } = body;
        let file = |TemplateFileBody { path, content, mode }| TemplateFile { path, content, mode };
        let resources = |TemplateResourcesBody { memory_mb, cpu_cores, disk_mb }| TemplateResources {
            memory_mb,
            cpu_cores,
            disk_mb,
        };
        Self {
            name: name.unwrap_or_else(|| id.clone()),
            id,
            description,
            base,
            packages: TemplatePackages { debian, pip, npm, r },
            files: files.into_iter().map(file).collect(),
            setup_commands,
            env,
            start_command,
            ready_check,
            ready_timeout_seconds,
            ready_interval_ms,
            default_resources: default_resources.map(resources),
        }
    }
}

/// An image to build: of `template`, of `spec` or of `dockerfile`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BuildBody {
    /// A template that ships, by its id.
    template: Option<String>,
    /// A template.
    spec: Option<TemplateBody>,
    /// The text of a Dockerfile that copies no files.
    dockerfile: Option<String>,
    /// Values for the Dockerfile's arguments.
    #[serde(default)]
    args: BTreeMap<String, String>,
    /// NAME or NAME:TAG; the template's id without it.
    name: Option<String>,
    /// Take the tag from the image that has it.
    #[serde(default)]
    replace: bool,
    /// What the image may hold; as the setting `images.max_mb` without it.
    disk_mb: Option<u64>,
    /// The memory of the steps.
    memory_mb: Option<u64>,
    /// Their processors.
    cpu_cores: Option<f64>,
    /// What the steps may reach; the presets of package managers without it.
    #[schema(value_type = Option<EgressPolicy>)]
    egress: Option<Policy>,
    /// Carry out every step, also those whose result is kept.
    #[serde(default)]
    no_cache: bool,
    /// Exact versions, as `packages` of an image has them.
    #[serde(default)]
    lock: Vec<PackageVersion>,
    /// How many are kept ready, even when no sandbox is requested.
    warm_pool_min: Option<u32>,
    /// At most, when many sandboxes are requested.
    warm_pool_max: Option<u32>,
}

impl TryFrom<BuildBody> for BuildImage {
    type Error = Failure;

    fn try_from(body: BuildBody) -> Result<Self, Failure> {
        let BuildBody {
            template,
            spec,
            dockerfile,
            args,
            name,
            replace,
            disk_mb,
            memory_mb,
            cpu_cores,
            egress,
            no_cache,
            lock,
            warm_pool_min,
            warm_pool_max,
        } = body;
        if !args.is_empty() && dockerfile.is_none() {
            return Err(Error::invalid("args", "args are values for the arguments of a dockerfile").into());
        }
        let recipe = match (template, spec, dockerfile) {
            (Some(id), None, None) => Recipe::Shipped(id),
            (None, Some(spec), None) => Recipe::Template(Box::new(spec.into())),
            (None, None, Some(text)) => Recipe::Dockerfile { text, arguments: args },
            _ => {
                let message = "expected one of template, spec and dockerfile";
                return Err(Error::invalid("template", message).into());
            }
        };
        let lock = lock.into_iter().map(Into::into).collect();
        let pool = PoolBounds { min: warm_pool_min, max: warm_pool_max };
        Ok(Self { recipe, name, replace, disk_mb, memory_mb, cpu_cores, egress, no_cache, lock, pool })
    }
}

fn begun(record: BuildRecord) -> (StatusCode, Build) {
    (StatusCode::ACCEPTED, Build::from(BuildView { record, progress: Some(BuildProgress::default()) }))
}

/// Builds an image from a template or a Dockerfile, in the background. Steps run in a sandbox; those whose result is kept are not
/// carried out again. Of a build that fails or is cancelled no image is left. For admins.
#[utoipa::path(post, path = "/api/v1/sandbox-images", tag = "images", request_body = BuildBody,
    responses((status = 202, body = Build), (status = 403), (status = 409, description = "Another image has the tag"),
        (status = 422, description = "There is no such template or base, or a line of the Dockerfile is not supported"),
        (status = 429, description = "As many images are being built as may be"),
        (status = 501, description = "It needs what this server cannot do")))]
pub(crate) async fn build_image(
    State(app): State<App>,
    Who(caller): Who,
    headers: HeaderMap,
    Raw(body): Raw,
) -> Result<Response, Failure> {
    let request: BuildBody = required_json(&body)?;
    let request = BuildImage::try_from(request)?;
    let repeat = Repeat::of(&headers, "build", &body)?;
    let (core, asker) = (app.core.clone(), caller.clone());
    let work = async move { Ok(begun(core.images.build_image(&asker, request).await?)) };
    once(&app.core, &caller, repeat, Busy::Refuse, work).await
}

/// How files become an image.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BuildParams {
    /// NAME or NAME:TAG; the template's id without it.
    name: Option<String>,
    /// The Dockerfile among the files, or a template where the name ends with `.json`.
    file: Option<String>,
    /// Values for the Dockerfile's arguments, as a JSON object.
    args: Option<String>,
    /// Take the tag from the image that has it.
    #[serde(default)]
    replace: bool,
    /// What the image may hold; as the setting `images.max_mb` without it.
    disk_mb: Option<u64>,
    /// The memory of the steps.
    memory_mb: Option<u64>,
    /// Their processors.
    cpu_cores: Option<f64>,
    /// What the steps may reach, an egress policy as a JSON object; the presets of package managers without it.
    egress: Option<String>,
    /// Carry out every step, also those whose result is kept.
    #[serde(default)]
    no_cache: bool,
    /// A file among the files with exact versions: `packages` of an image as JSON.
    lock: Option<String>,
    /// How many are kept ready, even when no sandbox is requested.
    warm_pool_min: Option<u32>,
    /// At most, when many sandboxes are requested.
    warm_pool_max: Option<u32>,
}

/// The same with the files that steps copy: the body is a tar archive of the folder that is built in, of at most 1 GiB. For admins.
#[utoipa::path(post, path = "/api/v1/sandbox-images/build", tag = "images", params(BuildParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "A tar archive; any content type will do"),
    responses((status = 202, body = Build), (status = 403), (status = 409, description = "Another image has the tag"),
        (status = 413, description = "There are too many files"),
        (status = 422, description = "The archive or the Dockerfile is broken, or a line of it is not supported"),
        (status = 429, description = "As many images are being built as may be"),
        (status = 501, description = "It needs what this server cannot do"),
        (status = 507, description = "The server's disk has no room for the files")))]
pub(crate) async fn build_image_with_files(
    State(app): State<App>,
    Who(caller): Who,
    Params(params): Params<BuildParams>,
    body: Body,
) -> Result<(StatusCode, Json<Build>), Failure> {
    let BuildParams {
        name,
        file,
        args,
        replace,
        disk_mb,
        memory_mb,
        cpu_cores,
        egress,
        no_cache,
        lock,
        warm_pool_min,
        warm_pool_max,
    } = params;
    let wrong = |_| Failure::in_query(Error::invalid("args", "expected a JSON object of texts"));
    let arguments = args.map(|text| serde_json::from_str(&text)).transpose().map_err(wrong)?;
    let wrong = |e: serde_json::Error| {
        Failure::in_query(Error::invalid("egress", format!("expected an egress policy as JSON: {e}")))
    };
    let egress: Option<Policy> = egress.map(|text| serde_json::from_str(&text)).transpose().map_err(wrong)?;
    let path = file.unwrap_or_else(|| "Dockerfile".into());
    let request = BuildImage {
        recipe: Recipe::File { path, arguments: arguments.unwrap_or_default(), lock },
        name,
        replace,
        disk_mb,
        memory_mb,
        cpu_cores,
        egress,
        no_cache,
        lock: Vec::new(),
        pool: PoolBounds { min: warm_pool_min, max: warm_pool_max },
    };
    let body = Box::pin(steady(body));
    let (status, build) = begun(app.core.images.build_image_with_files(&caller, request, body).await?);
    Ok((status, Json(build)))
}
