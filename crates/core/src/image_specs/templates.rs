//! Templates: what an image is built of. One is written as JSON, or as a Dockerfile; both become the same steps. Those
//! that ship are in a file beside this one.

use super::{
    dockerfile::{MOST_STEPS, is_mode},
    packages::PackageManager,
};
use atoll_types::{Error, ImageRecord, ImageStart, Result, packages::is_template_package};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::LazyLock};

/// Most packages of one template.
pub const MOST_TEMPLATE_PACKAGES: usize = 500;

/// Packages by what installs them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TemplatePackages {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub debian: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pip: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub npm: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub r: Vec<String>,
}

/// What a sandbox of the image gets that names no limits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateResources {
    pub memory_mb: u64,
    pub cpu_cores: f64,
    pub disk_mb: u64,
}

/// A file that is written into the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateFile {
    /// Where, from the root.
    pub path: String,
    /// What is in it.
    pub content: String,
    /// Its permissions in octal; 0644 where they are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// What an image is built of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its name in requests.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// The image that it begins with; where there is none, Debian's packages alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What is installed.
    #[serde(default)]
    pub packages: TemplatePackages,
    /// What is written into it after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<TemplateFile>,
    /// Lines for the shell that run after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup_commands: Vec<String>,
    /// What commands of a sandbox start with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A line for the shell that each sandbox starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_command: Option<String>,
    /// A line for the shell that succeeds in an image that is as it should be; where sandboxes start a command, once that is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_check: Option<String>,
    /// How long it may take until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_timeout_seconds: Option<u32>,
    /// How long the check waits before the next try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_interval_ms: Option<u32>,
    /// Limits of a sandbox that names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_resources: Option<TemplateResources>,
}

static SHIPPED: LazyLock<Vec<Template>> =
    LazyLock::new(|| serde_json::from_str(include_str!("templates.json")).unwrap_or_default());

/// The templates that ship.
#[must_use]
pub fn templates() -> &'static [Template] {
    &SHIPPED
}

impl TemplatePackages {
    /// The lists, by what installs them.
    fn lists(&self) -> [(PackageManager, &[String]); 4] {
        let Self { debian, pip, npm, r } = self;
        [
            (PackageManager::Debian, debian),
            (PackageManager::R, r),
            (PackageManager::Pip, pip),
            (PackageManager::Npm, npm),
        ]
    }
}

impl Template {
    /// The image that was last built of it, where it ships.
    pub fn last_built<'a>(&self, images: impl Iterator<Item = &'a ImageRecord>) -> Option<&'a ImageRecord> {
        let source = format!("template {}", self.id);
        images.filter(|of| of.source == source && !of.tags.is_empty()).max_by_key(|of| of.created_at)
    }

    /// Refuses what no image can be built of.
    pub fn check(&self) -> Result<()> {
        let lists = self.packages.lists();
        if lists.iter().map(|(_, list)| list.len()).sum::<usize>() > MOST_TEMPLATE_PACKAGES {
            let message = format!("a template has at most {MOST_TEMPLATE_PACKAGES} packages");
            return Err(Error::invalid("packages", message));
        }
        for (manager, list) in lists {
            if let Some(wrong) = list.iter().find(|name| !is_template_package(name)) {
                let message = format!("{wrong:?} is no name of a package of {manager}");
                return Err(Error::invalid(format!("packages.{manager}"), message));
            }
        }
        if self.setup_commands.len() + self.files.len() > MOST_STEPS {
            return Err(Error::invalid(
                "setup_commands",
                format!("a template has at most {MOST_STEPS} steps"),
            ));
        }
        for TemplateFile { path, mode, .. } in &self.files {
            let inside =
                path.starts_with('/') && !path.contains('\0') && path.split('/').all(|part| part != "..");
            if !inside || path.ends_with('/') {
                return Err(Error::invalid("files", format!("{path:?} is no path of a file from the root")));
            }
            if mode.as_ref().is_some_and(|mode| !is_mode(mode)) {
                return Err(Error::invalid("files", "mode is three or four octal digits"));
            }
        }
        self.start().map(drop)
    }

    /// What each sandbox starts.
    pub(super) fn start(&self) -> Result<Option<ImageStart>> {
        let Self { start_command, ready_check, ready_timeout_seconds, ready_interval_ms, .. } = self;
        let of_check =
            [("ready_timeout_seconds", ready_timeout_seconds), ("ready_interval_ms", ready_interval_ms)];
        if let Some((field, _)) = of_check.into_iter().find(|(_, number)| number.is_some())
            && (start_command.is_none() || ready_check.is_none())
        {
            let message = format!("{field} is of a start_command with a ready_check");
            return Err(Error::invalid(field, message));
        }
        let Some(command) = start_command.clone() else { return Ok(None) };
        ImageStart::new(command, ready_check.clone(), *ready_timeout_seconds, *ready_interval_ms).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_specs::packages::PACKAGES;

    #[test]
    fn what_ships_is_built_of_packages_of_the_catalogue() {
        let ids: Vec<&str> = templates().iter().map(|template| template.id.as_str()).collect();
        assert_eq!(ids, ["base", "skills-runtime", "data-science", "r", "node"]);
        for template in templates() {
            assert!(template.plan(Vec::new()).unwrap().check.is_some());
            for (manager, list) in template.packages.lists() {
                for name in list {
                    let known = PACKAGES.iter().any(|one| one.manager == manager && one.name == name);
                    assert!(known, "{}: {manager} {name}", template.id);
                }
            }
        }
    }

    #[test]
    fn an_option_is_no_package() {
        let wrong = Template {
            packages: TemplatePackages { pip: vec!["--pre".into()], ..TemplatePackages::default() },
            ..templates()[0].clone()
        };
        assert_eq!(wrong.check().unwrap_err().field.as_deref(), Some("packages.pip"));
    }

    #[test]
    fn what_a_sandbox_starts_is_checked() {
        let of = |start: Option<&str>, check: Option<&str>, timeout| Template {
            start_command: start.map(str::to_owned),
            ready_check: check.map(str::to_owned),
            ready_timeout_seconds: timeout,
            ..templates()[0].clone()
        };
        let wrong = |template: Template| template.check().unwrap_err().field.unwrap();
        assert_eq!(of(Some("serve"), None, None).check(), Ok(()));
        assert_eq!(of(Some("serve"), Some("check"), Some(1)).check(), Ok(()));
        assert_eq!(wrong(of(Some(" "), None, None)), "start_command");
        assert_eq!(wrong(of(Some("serve"), Some(""), None)), "ready_check");
        assert_eq!(wrong(of(Some("serve"), Some("check"), Some(0))), "ready_timeout_seconds");
        assert_eq!(wrong(of(Some("serve"), None, Some(1))), "ready_timeout_seconds");
        assert_eq!(wrong(of(None, Some("check"), Some(1))), "ready_timeout_seconds");
    }
}
