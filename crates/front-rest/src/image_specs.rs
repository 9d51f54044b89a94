//! What images are built of: the packages there are, and the templates that ship.

use crate::{App, parse::Params};
use atoll_core::image_specs::{
    CataloguePackage, PACKAGE_SEARCH, PackageManager, Template, TemplatePackages, TemplateResources,
    packages, templates,
};
use atoll_http::{Failure, Who};
use atoll_types::{Error, ImageRecord, time::rfc3339};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};

/// A package that images can be built with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PackageItem {
    name: &'static str,
    /// debian, pip, npm or r; the last are Debian's r-cran-NAME.
    manager: &'static str,
    description: &'static str,
}

impl From<CataloguePackage> for PackageItem {
    fn from(package: CataloguePackage) -> Self {
        let CataloguePackage { manager, name, category: _, description } = package;
        Self { name, manager: manager.as_str(), description }
    }
}

/// Packages of one kind.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PackageCategory {
    name: &'static str,
    packages: Vec<PackageItem>,
}

/// The packages that were found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PackageCatalogue {
    categories: Vec<PackageCategory>,
    total: usize,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PackageParams {
    /// In name or description, whatever the case.
    q: Option<String>,
    /// The name of one.
    category: Option<String>,
    manager: Option<String>,
}

/// The packages that images can be built with, by category.
#[utoipa::path(get, path = "/api/v1/sandbox-images/packages", tag = "images", params(PackageParams),
    responses((status = 200, body = PackageCatalogue), (status = 422)))]
pub(crate) async fn package_catalogue(
    Who(_caller): Who,
    Params(params): Params<PackageParams>,
) -> Result<Json<PackageCatalogue>, Failure> {
    let PackageParams { q, category, manager } = params;
    let q = q.unwrap_or_default();
    PACKAGE_SEARCH.check("q", &q).map_err(Failure::in_query)?;
    let unknown = || Error::invalid("manager", "manager is debian, pip, npm or r");
    let manager = manager.map(|name| PackageManager::from_name(&name).ok_or_else(unknown)).transpose();
    let found = packages(&q, category.as_deref(), manager.map_err(Failure::in_query)?);
    let total = found.values().map(Vec::len).sum();
    let of = |(name, packages): (_, Vec<CataloguePackage>)| PackageCategory {
        name,
        packages: packages.into_iter().map(Into::into).collect(),
    };
    Ok(Json(PackageCatalogue { categories: found.into_iter().map(of).collect(), total }))
}

/// Packages by what installs them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplatePackageItem {
    debian: Vec<String>,
    pip: Vec<String>,
    npm: Vec<String>,
    r: Vec<String>,
}

/// What a sandbox gets that names no limits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResourcesItem {
    memory_mb: u64,
    cpu_cores: f64,
    disk_mb: u64,
}

/// What an image is built of.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateItem {
    id: String,
    name: String,
    description: String,
    /// The image that it begins with; Debian's packages alone where there is none.
    base: Option<String>,
    packages: TemplatePackageItem,
    /// Lines for the shell that run after that.
    setup_commands: Vec<String>,
    env: BTreeMap<String, String>,
    /// A line for the shell that each sandbox starts.
    start_command: Option<String>,
    /// A line for the shell that succeeds in an image that is as it should be; where sandboxes start a command, once that is ready.
    ready_check: Option<String>,
    ready_timeout_seconds: Option<u32>,
    ready_interval_ms: Option<u32>,
    default_resources: Option<ResourcesItem>,
    is_builtin: bool,
    /// The image that was last built of it; null before that.
    image: Option<String>,
    built: bool,
    built_at: Option<String>,
    size_mb: Option<u64>,
}

impl From<Template> for TemplateItem {
    fn from(template: Template) -> Self {
        let Template {
            id,
            name,
            description,
            base,
            packages: TemplatePackages { debian, pip, npm, r },
            files: _,
            setup_commands,
            env,
            start_command,
            ready_check,
            ready_timeout_seconds,
            ready_interval_ms,
            default_resources,
        } = template;
        let resources = |TemplateResources { memory_mb, cpu_cores, disk_mb }| ResourcesItem {
            memory_mb,
            cpu_cores,
            disk_mb,
        };
        Self {
            id,
            name,
            description,
            base,
            packages: TemplatePackageItem { debian, pip, npm, r },
            setup_commands,
            env,
            start_command,
            ready_check,
            ready_timeout_seconds,
            ready_interval_ms,
            default_resources: default_resources.map(resources),
            is_builtin: true,
            image: None,
            built: false,
            built_at: None,
            size_mb: None,
        }
    }
}

/// The templates that ship.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TemplateList {
    templates: Vec<TemplateItem>,
}

/// The templates that ship, as specs of packages.
#[utoipa::path(get, path = "/api/v1/sandbox-images/templates", tag = "images",
    responses((status = 200, body = TemplateList)))]
pub(crate) async fn template_list(
    State(app): State<App>,
    Who(caller): Who,
) -> Result<Json<TemplateList>, Failure> {
    let images = app.core.images.list(&caller).await?;
    let item = |template: &Template| {
        let last = template.last_built(images.iter().filter_map(|view| view.record.as_ref()));
        TemplateItem {
            image: last.map(ImageRecord::reference),
            built: last.is_some(),
            built_at: last.map(|of| rfc3339(of.created_at)),
            size_mb: last.map(|of| of.size_bytes.div_ceil(1 << 20)),
            ..template.clone().into()
        }
    };
    Ok(Json(TemplateList { templates: templates().iter().map(item).collect() }))
}
