//! Templates: what an image is built of. One is written as JSON, or as a Dockerfile; both become the same steps. Those
//! that ship are in a file beside this one.

use super::{
    dockerfile::{CommandForm, Step, StepKind},
    packages::PackageManager,
};
use atoll_types::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::LazyLock};

/// Most packages of one template.
pub const MOST_TEMPLATE_PACKAGES: usize = 500;
const LONGEST_PACKAGE: usize = 200;

/// Packages by what installs them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
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
#[allow(missing_docs)]
pub struct TemplateResources {
    pub memory_mb: u64,
    pub cpu_cores: f64,
    pub disk_mb: u64,
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
    /// Lines for the shell that run after that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup_commands: Vec<String>,
    /// What commands of a sandbox start with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// What a sandbox starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_command: Option<String>,
    /// A line for the shell that succeeds in an image that is as it should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_check: Option<String>,
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

/// Whether a text names a package, perhaps of a scope, a version or extras, and can be no option, path, address or
/// more than one word of a shell.
pub(super) fn is_package(text: &str) -> bool {
    let rest = text.strip_prefix('@').unwrap_or(text);
    let first = rest.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._+-[],=~@/".contains(&b);
    let slashes = rest.matches('/').count();
    let scoped = slashes == 0 || slashes == 1 && text.starts_with('@');
    first && text.len() <= LONGEST_PACKAGE && text.bytes().all(plain) && scoped && !text.contains("..")
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
    /// Refuses what no image can be built of.
    pub fn check(&self) -> Result<()> {
        let lists = self.packages.lists();
        if lists.iter().map(|(_, list)| list.len()).sum::<usize>() > MOST_TEMPLATE_PACKAGES {
            let message = format!("a template has at most {MOST_TEMPLATE_PACKAGES} packages");
            return Err(Error::invalid("packages", message));
        }
        for (manager, list) in lists {
            if let Some(wrong) = list.iter().find(|name| !is_package(name)) {
                let message = format!("{wrong:?} is no name of a package of {manager}");
                return Err(Error::invalid(format!("packages.{manager}"), message));
            }
        }
        Ok(())
    }

    /// What is done on its base, in order.
    pub fn steps(&self) -> Result<Vec<Step>> {
        self.check()?;
        let run = |line: String| StepKind::Run { command: CommandForm::Shell(line), arguments: Vec::new() };
        let TemplatePackages { debian, pip, npm, r } = &self.packages;
        let apt: Vec<String> = debian
            .iter()
            .cloned()
            .chain(r.iter().map(|name| format!("r-cran-{}", name.to_lowercase())))
            .collect();
        let mut steps = Vec::new();
        if !apt.is_empty() {
            steps.push(run(format!(
                "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {} \
                 && rm -rf /var/lib/apt/lists/*",
                apt.join(" ")
            )));
        }
        if !pip.is_empty() {
            let names = pip.join(" ");
            steps.push(run(format!("python3 -m pip install --no-cache-dir --break-system-packages {names}")));
        }
        if !npm.is_empty() {
            steps.push(run(format!("npm install --global --no-fund --no-audit {}", npm.join(" "))));
        }
        if !self.env.is_empty() {
            steps.push(StepKind::Env(self.env.clone().into_iter().collect()));
        }
        steps.extend(self.setup_commands.iter().cloned().map(run));
        steps.extend(self.start_command.clone().map(|line| StepKind::Cmd(CommandForm::Shell(line))));
        Ok(steps.into_iter().map(|kind| Step { line: 0, kind }).collect())
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
            assert!(!template.steps().unwrap().is_empty() && template.ready_check.is_some());
            for (manager, list) in template.packages.lists() {
                for name in list {
                    let known = PACKAGES.iter().any(|one| one.manager == manager && one.name == name);
                    assert!(known, "{}: {manager} {name}", template.id);
                }
            }
        }
    }

    #[test]
    fn a_name_of_a_package_is_nothing_else() {
        for good in [
            "pandas",
            "@types/node",
            "numpy==2.1",
            "uvicorn[standard]",
            "g++",
            "left-pad@1.0.0",
            "data.table",
        ] {
            assert!(is_package(good), "{good}");
        }
        for bad in
            ["", "-e", "--index-url", "../x", "/etc", "a b", "a;b", "a$(b)", "https://x", "a/b", "@", "a\n"]
        {
            assert!(!is_package(bad), "{bad:?}");
        }
        let wrong = Template {
            packages: TemplatePackages { pip: vec!["--pre".into()], ..TemplatePackages::default() },
            ..templates()[0].clone()
        };
        assert_eq!(wrong.steps().unwrap_err().field.as_deref(), Some("packages.pip"));
    }
}
