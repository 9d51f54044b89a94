//! What a build does, in order, whatever it was written as.

use super::{
    dockerfile::{CommandForm, Dockerfile, Step, StepKey, StepKind, start_key, step_keys},
    templates::{Template, TemplateFile, TemplatePackages},
};
use atoll_types::{
    Error, InstalledPackage, Result,
    audit::Sha256,
    packages::{is_locked_version, is_template_package, pip_name},
};

/// Most packages of a lock.
pub const MOST_LOCKED: usize = 5000;

/// What a build begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// An image by its name.
    Image(String),
    /// These packages of Debian, on nothing.
    Debian(Vec<String>),
}

/// What a build does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What it begins with.
    pub start: Start,
    /// What is done on that, in order.
    pub steps: Vec<Step>,
    /// A line for the shell that must succeed in the end.
    pub check: Option<String>,
    /// Exact versions that must be installed in the end.
    pub lock: Vec<InstalledPackage>,
    /// Whether commands are root's, whatever user the base names.
    pub as_root: bool,
}

fn run(line: String) -> StepKind {
    StepKind::Run { command: CommandForm::Shell(line), arguments: Vec::new() }
}

/// A lock with one form of each name, as records of images have it.
pub(crate) fn canonical(mut lock: Vec<InstalledPackage>) -> Vec<InstalledPackage> {
    for one in lock.iter_mut().filter(|one| one.manager == "pip") {
        one.name = pip_name(&one.name);
    }
    lock
}

fn check_lock(lock: &[InstalledPackage]) -> Result<()> {
    if lock.len() > MOST_LOCKED {
        return Err(Error::invalid("lock", format!("a lock has at most {MOST_LOCKED} packages")));
    }
    let wrong = |one: &&InstalledPackage| {
        let InstalledPackage { manager, name, version } = one;
        !matches!(manager.as_str(), "debian" | "pip" | "npm")
            || !is_template_package(name)
            || !is_locked_version(version)
    };
    match lock.iter().find(wrong) {
        Some(InstalledPackage { manager, name, version }) => {
            let message = format!("{manager:?} {name:?} {version:?} is no package of debian, pip or npm");
            Err(Error::invalid("lock", message))
        }
        None => Ok(()),
    }
}

/// The packages of a manager in a lock, each as `name`, `separator`, version.
fn locked(lock: &[InstalledPackage], manager: &str, separator: &str) -> Vec<String> {
    let own = lock.iter().filter(|one| one.manager == manager);
    own.map(|one| format!("{}{separator}{}", one.name, one.version)).collect()
}

/// The name of a package without its version and extras.
fn bare(package: &str) -> &str {
    let end = package.find(['=', '~', '[', '<', '>']).unwrap_or(package.len());
    let package = &package[..end];
    // `@scope/name@version`
    package.rfind('@').filter(|at| *at > 0).map_or(package, |at| &package[..at])
}

/// The packages, each with the version that the lock has for it. Without one a build would install any version, or, of pip, nothing.
fn with_versions(
    names: &[String],
    lock: &[InstalledPackage],
    manager: &str,
    separator: &str,
) -> Result<Vec<String>> {
    if lock.is_empty() {
        return Ok(names.to_vec());
    }
    let of = |text: &String| {
        let name = if manager == "pip" { pip_name(bare(text)) } else { bare(text).to_owned() };
        let found = lock.iter().find(|one| one.manager == manager && one.name == name);
        let missing = || {
            let message = format!(
                "the lock has no version of {text}, a package of {manager} that the template names; \
                 build without a lock and use the `packages` of that image"
            );
            Error::invalid("lock", message)
        };
        found.map(|one| format!("{name}{separator}{}", one.version)).ok_or_else(missing)
    };
    names.iter().map(of).collect()
}

impl Template {
    /// What a build of it does, with the exact versions of a lock.
    pub fn plan(&self, lock: Vec<InstalledPackage>) -> Result<Plan> {
        self.check()?;
        check_lock(&lock)?;
        let lock = canonical(lock);
        let TemplatePackages { debian, pip, npm, r } = &self.packages;
        let r = r.iter().map(|name| format!("r-cran-{}", name.to_lowercase()));
        let debian: Vec<String> = debian.iter().cloned().chain(r).collect();
        let debian = with_versions(&debian, &lock, "debian", "=")?;
        let mut steps = Vec::new();
        let start = match &self.base {
            None => Start::Debian(debian),
            Some(base) => {
                if !debian.is_empty() {
                    let names = debian.join(" ");
                    steps.push(run(format!(
                        "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {names} \
                         && apt-get clean && rm -rf /var/lib/apt/lists/*"
                    )));
                }
                Start::Image(base.clone())
            }
        };
        if !pip.is_empty() {
            let names = with_versions(pip, &lock, "pip", "==")?;
            // A lock has all that these need.
            let (names, more) =
                if lock.is_empty() { (names, "") } else { (locked(&lock, "pip", "=="), "--no-deps ") };
            let names = names.join(" ");
            steps.push(run(format!(
                "python3 -m pip install --no-cache-dir --break-system-packages --root-user-action=ignore {more}{names}"
            )));
        }
        if !npm.is_empty() {
            let names = with_versions(npm, &lock, "npm", "@")?.join(" ");
            steps.push(run(format!(
                "npm install --global --no-fund --no-audit {names} && npm cache clean --force"
            )));
        }
        for TemplateFile { path, content, mode } in &self.files {
            let (path, content, mode) = (path.clone(), content.clone(), mode.clone());
            steps.push(StepKind::File { path, content, mode });
        }
        if !self.env.is_empty() {
            steps.push(StepKind::Env(self.env.clone().into_iter().collect()));
        }
        steps.extend(self.setup_commands.iter().cloned().map(run));
        steps.extend(self.start()?.map(|start| StepKind::Label(start.labels())));
        let steps = steps.into_iter().map(|kind| Step { line: 0, kind }).collect();
        // Where sandboxes start a command, the check is for what that makes ready.
        let check = self.ready_check.clone().filter(|_| self.start_command.is_none());
        Ok(Plan { start, steps, check, lock, as_root: true })
    }
}

impl From<Dockerfile> for Plan {
    fn from(file: Dockerfile) -> Self {
        let Dockerfile { base, steps } = file;
        Self { start: Start::Image(base), steps, check: None, lock: Vec::new(), as_root: false }
    }
}

impl Plan {
    /// The key of what it begins with, and the keys after each step. `base` is what identifies the image, or the archives that
    /// packages come from.
    pub fn keys(
        &self,
        base: &str,
        digest: impl FnMut(&str) -> Result<Sha256>,
    ) -> Result<(StepKey, Vec<StepKey>)> {
        let first = match &self.start {
            Start::Image(_) => base.to_owned(),
            Start::Debian(packages) => {
                let lock = locked(&self.lock, "debian", "=");
                serde_json::to_string(&("debian", base, packages, lock))
                    .map_err(|e| Error::internal(e.to_string()))?
            }
        };
        Ok((start_key(&first, self.as_root), step_keys(&first, self.as_root, &self.steps, digest)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::templates, *};
    use atoll_types::ImageStart;

    fn package(manager: &str, name: &str, version: &str) -> InstalledPackage {
        InstalledPackage { manager: manager.into(), name: name.into(), version: version.into() }
    }

    fn lines(plan: &Plan) -> Vec<String> {
        let line = |step: &Step| match &step.kind {
            StepKind::Run { command: CommandForm::Shell(line), .. } => Some(line.clone()),
            _ => None,
        };
        plan.steps.iter().filter_map(line).collect()
    }

    fn shipped(id: &str) -> Template {
        templates::templates().iter().find(|template| template.id == id).unwrap().clone()
    }

    #[test]
    fn packages_of_debian_are_the_start_or_a_step() {
        let node = shipped("node");
        let plan = node.plan(Vec::new()).unwrap();
        let Start::Debian(names) = &plan.start else { panic!("{plan:?}") };
        assert!(names.contains(&"nodejs".to_owned()));
        assert!(lines(&plan)[0].starts_with("npm install") && plan.check.is_some());
        let Start::Debian(names) = shipped("r").plan(Vec::new()).unwrap().start else { panic!() };
        assert!(names.contains(&"r-cran-ggplot2".to_owned()));
        let on = Template { base: Some("box".into()), ..node };
        let plan = on.plan(Vec::new()).unwrap();
        assert_eq!(plan.start, Start::Image("box".into()));
        assert!(lines(&plan)[0].contains("apt-get install") && lines(&plan)[1].starts_with("npm install"));
    }

    #[test]
    fn what_sandboxes_start_is_in_labels() {
        let template = Template { start_command: Some("serve".into()), ..shipped("node") };
        let plan = template.plan(Vec::new()).unwrap();
        let labels = plan.steps.iter().find_map(|step| match &step.kind {
            StepKind::Label(labels) => Some(labels.iter().cloned().collect()),
            _ => None,
        });
        let start = ImageStart::read(&labels.unwrap()).unwrap().unwrap();
        assert_eq!((start.command.as_str(), start.ready.unwrap().line.as_str()), ("serve", "tsc --version"));
        assert_eq!(plan.check, None);
    }

    #[test]
    fn a_command_of_root_and_one_of_the_bases_user_are_two_steps() {
        let template = Template {
            base: Some("box".into()),
            packages: TemplatePackages::default(),
            files: Vec::new(),
            setup_commands: vec!["id -u > /who".into()],
            env: [].into(),
            ..shipped("base")
        };
        let of_root = template.plan(Vec::new()).unwrap();
        let file = Dockerfile::parse("FROM box\nRUN id -u > /who", [].into(), [].into()).unwrap();
        let of_user = Plan::from(file);
        assert_eq!(lines(&of_root), lines(&of_user));
        let keys = |plan: &Plan| plan.keys("base", |_| unreachable!()).unwrap().1;
        assert_ne!(keys(&of_root), keys(&of_user));
    }

    /// A template of these packages alone.
    fn of(debian: &[&str], pip: &[&str], npm: &[&str]) -> Template {
        let [debian, pip, npm] =
            [debian, pip, npm].map(|list| list.iter().map(|name| (*name).into()).collect());
        Template { packages: TemplatePackages { debian, pip, npm, r: Vec::new() }, ..shipped("base") }
    }

    #[test]
    fn a_lock_says_the_versions() {
        let lock = vec![
            package("debian", "nodejs", "18.1"),
            package("npm", "typescript", "5.9.3"),
            package("pip", "PyYAML", "6.0.2"),
            package("pip", "six", "1.17.0"),
        ];
        let template = of(&["nodejs"], &["pyyaml"], &["typescript"]);
        let plan = template.plan(lock).unwrap();
        assert_eq!(plan.start, Start::Debian(vec!["nodejs=18.1".into()]));
        assert!(lines(&plan)[0].ends_with("--no-deps pyyaml==6.0.2 six==1.17.0"), "{:?}", lines(&plan));
        assert!(lines(&plan)[1].contains(" typescript@5.9.3 "), "{:?}", lines(&plan));
        let keys = |plan: Plan| plan.keys("x", |_| unreachable!()).unwrap();
        assert_ne!(keys(template.plan(Vec::new()).unwrap()), keys(plan));
        for wrong in [package("cargo", "a", "1"), package("pip", "--pre", "1"), package("pip", "a", "1;b")] {
            let refused = shipped("base").plan(vec![wrong]).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some("lock"));
        }
        assert_eq!(["@a/b@1", "c[d]", "e==1", "f"].map(bare), ["@a/b", "c", "e", "f"]);
    }

    #[test]
    fn a_lock_without_a_package_of_the_template_is_refused() {
        let lock =
            vec![package("debian", "six", "1"), package("npm", "six", "1"), package("pip", "six", "1")];
        assert!(of(&["six"], &["Six[x]==2"], &["six@2"]).plan(lock.clone()).is_ok());
        for template in [of(&["curl"], &[], &[]), of(&[], &["pandas"], &[]), of(&[], &[], &["docx"])] {
            let refused = template.plan(lock.clone()).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some("lock"));
            assert!(refused.message.contains("no version of"), "{refused}");
            assert!(template.plan(Vec::new()).is_ok());
        }
    }
}
