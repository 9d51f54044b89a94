//! What images are built of: the packages there are, templates, and Dockerfiles. Nothing here builds; everything here is
//! a table or a function of its text.

pub mod dockerfile;
mod packages;
mod plan;
mod templates;

pub use packages::{CataloguePackage, PACKAGE_SEARCH, PackageManager, packages};
pub(crate) use plan::canonical;
pub use plan::{MOST_LOCKED, Plan, Start};
pub use templates::{
    MOST_TEMPLATE_PACKAGES, Template, TemplateFile, TemplatePackages, TemplateResources, templates,
};
