//! What an image holds, as its package managers say. They run inside and are as hostile as the rest of it: names and versions are
//! checked one by one, and there is a limit of them.

use crate::{image_specs::MOST_LOCKED, images::contents::package};
use atoll_provider::{Command, Container};
use atoll_types::{Error, ErrorCode, InstalledPackage, Result};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// How long a package manager may take.
const LONGEST: Duration = Duration::from_secs(120);
/// The longest answer of one.
const LARGEST: u64 = 4 << 20;
/// Those of a lock that an error names.
const NAMED: usize = 5;

const DEBIAN: &str = r"dpkg-query -W -f '${db:Status-Abbrev}\t${Package}\t${Version}\n'";
/// Only what pip installed: Debian's own are packages of Debian.
const PIP: &str = "python3 -m pip list --format=freeze --disable-pip-version-check \
                   --path \"$(python3 -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')\"";
const NPM: &str = "npm ls --global --depth=0 --json";

/// A line for the shell as an ordinary user: nothing that it does stays in the image.
pub(super) fn ordinary(line: &str) -> Command {
    let mut command = Command::new(["/bin/sh", "-c", line]);
    command.user = "1000:1000".into();
    command.working_directory = "/tmp".into();
    command.environment = [("HOME".to_owned(), "/tmp".to_owned())].into();
    command.timeout = Some(LONGEST);
    command
}

async fn answer(container: &Arc<dyn Container>, line: &str) -> Option<String> {
    let mut command = ordinary(line);
    command.output_limit = Some(LARGEST);
    let finished = container.guest().run(&command).await.ok()?;
    (finished.report.exit_code == Some(0)).then(|| String::from_utf8_lossy(&finished.stdout).into_owned())
}

fn of_debian(text: &str) -> Vec<InstalledPackage> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        let (state, name, version) = (fields.next()?, fields.next()?, fields.next()?);
        state.starts_with("ii").then(|| package("debian", name, version))?
    };
    text.lines().filter_map(line).collect()
}

fn of_pip(text: &str) -> Vec<InstalledPackage> {
    text.lines()
        .filter_map(|line| line.trim().split_once("=="))
        .filter_map(|(n, v)| package("pip", n, v))
        .collect()
}

fn of_npm(text: &str) -> Vec<InstalledPackage> {
    #[derive(Deserialize)]
    struct Listed {
        #[serde(default)]
        dependencies: BTreeMap<String, Dependency>,
    }
    #[derive(Deserialize)]
    struct Dependency {
        #[serde(default)]
        version: String,
    }
    let listed = serde_json::from_str::<Listed>(text).map(|listed| listed.dependencies).unwrap_or_default();
    listed.iter().filter_map(|(name, one)| package("npm", name, &one.version)).collect()
}

/// All that is installed, by manager and name.
pub(super) async fn installed(container: &Arc<dyn Container>) -> Vec<InstalledPackage> {
    let mut all = BTreeSet::new();
    for (line, read) in
        [(DEBIAN, of_debian as fn(&str) -> Vec<InstalledPackage>), (PIP, of_pip), (NPM, of_npm)]
    {
        all.extend(answer(container, line).await.map(|text| read(&text)).unwrap_or_default());
    }
    all.into_iter().take(MOST_LOCKED).collect()
}

/// Refuses an image that lacks what its lock has, or has it in another version.
pub(super) fn check_lock(lock: &[InstalledPackage], installed: &[InstalledPackage]) -> Result<()> {
    let installed: BTreeSet<_> = installed.iter().collect();
    let lacking: Vec<String> = lock
        .iter()
        .filter(|one| !installed.contains(one))
        .map(|one| format!("{} {} {}", one.manager, one.name, one.version))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let named = lacking.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let message = format!("{} packages of the lock could not be installed: {named}", lacking.len());
    Err(Error::new(ErrorCode::ExecFailed, message).at("lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_package_managers_are_read() {
        let names = |all: Vec<InstalledPackage>| -> Vec<String> {
            all.iter().map(|one| format!("{} {} {}", one.manager, one.name, one.version)).collect()
        };
        let text = "ii \tbash\t5.2.15-2+b2\nrc \tgone\t1\nii \tg++\t4:12.2.0-3\nii \tbad name\t1\nbroken\n";
        assert_eq!(names(of_debian(text)), ["debian bash 5.2.15-2+b2", "debian g++ 4:12.2.0-3"]);
        assert_eq!(names(of_pip("Six==1.17.0\n--x==1\ny\n")), ["pip six 1.17.0"]);
        let text =
            r#"{"name":"lib","dependencies":{"@a/b":{"version":"1.0.0"},"c":{},"d;e":{"version":"1"}}}"#;
        assert_eq!(names(of_npm(text)), ["npm @a/b 1.0.0"]);
        assert_eq!(names(of_npm("nonsense")), [""; 0]);
    }

    #[test]
    fn a_lock_that_was_not_kept_is_refused() {
        let (a, b) = (package("pip", "six", "1").unwrap(), package("pip", "six", "2").unwrap());
        assert_eq!(check_lock(std::slice::from_ref(&a), &[a.clone(), b.clone()]), Ok(()));
        let error = check_lock(&[a], &[b]).unwrap_err();
        assert!(error.message.contains("pip six 1"), "{error}");
    }
}
