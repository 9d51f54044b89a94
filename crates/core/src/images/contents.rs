//! What an image holds that was pulled or imported, as the databases of its package managers say: of Debian, of Alpine, and of
//! Python's and Node's packages beside those. An image that was built here is asked by its own programs instead.
//!
//! Everything in an image is hostile. PID 1 of a container of it reads the files, and nothing of the image runs; names and
//! versions are checked one by one, and sizes and counts have limits.

use crate::image_specs::MOST_LOCKED;
use atoll_egress::presets::ImageFiles;
use atoll_types::{
    InstalledPackage,
    packages::{is_locked_version, is_template_package, pip_name},
};
use serde::Deserialize;
use std::{collections::BTreeSet, io::Read};

/// The largest database that is read.
const LARGEST: u64 = 32 << 20;
/// Names of one folder that are looked at.
const MOST_NAMES: usize = 4096;
/// Versions of Python whose folders are looked at.
const MOST_PYTHONS: usize = 8;
/// Packages of Node that are looked at, each in a file of its own, and the largest such file.
const MOST_OF_NODE: usize = 256;
const LARGEST_MANIFEST: u64 = 1 << 20;

/// A package with the one form of its name, where name and version are ones.
pub(super) fn package(manager: &str, name: &str, version: &str) -> Option<InstalledPackage> {
    let is_one = is_template_package(name) && is_locked_version(version);
    let name = if manager == "pip" { pip_name(name) } else { name.to_owned() };
    is_one.then(|| InstalledPackage { manager: manager.to_owned(), name, version: version.to_owned() })
}

fn text(files: &dyn ImageFiles, path: &str, largest: u64) -> String {
    let mut bytes = Vec::new();
    // What was read before a failure is whole lines but for the last.
    let _ = files.open(path, largest).map(|file| file.take(largest).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The value of a field in a paragraph of lines.
fn field<'a>(paragraph: &'a str, name: &str) -> Option<&'a str> {
    paragraph.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn of_debian(status: &str) -> impl Iterator<Item = InstalledPackage> {
    status.split("\n\n").filter_map(|of| {
        let installed = field(of, "Status:")?.ends_with(" installed");
        installed.then(|| package("debian", field(of, "Package:")?, field(of, "Version:")?))?
    })
}

fn of_alpine(installed: &str) -> impl Iterator<Item = InstalledPackage> {
    installed.split("\n\n").filter_map(|of| package("alpine", field(of, "P:")?, field(of, "V:")?))
}

/// `NAME-VERSION.dist-info` is what pip leaves of a package.
fn of_pip(files: &dyn ImageFiles) -> Vec<InstalledPackage> {
    let mut found = Vec::new();
    for root in ["/usr/local/lib", "/usr/lib", "/opt/venv/lib"] {
        let pythons = files.names(root, MOST_NAMES).into_iter().filter(|name| name.starts_with("python3."));
        for python in pythons.take(MOST_PYTHONS) {
            // Debian's own are in dist-packages below /usr/lib, and are packages of Debian.
            for below in ["site-packages", "dist-packages"] {
                let names = files.names(&format!("{root}/{python}/{below}"), MOST_NAMES);
                let packages =
                    names.iter().filter_map(|name| name.strip_suffix(".dist-info")?.rsplit_once('-'));
                found.extend(packages.filter_map(|(name, version)| package("pip", name, version)));
            }
        }
    }
    found
}

/// What `npm install --global` leaves: a folder for each package, those of a scope in a folder of the scope.
fn of_npm(files: &dyn ImageFiles) -> Vec<InstalledPackage> {
    let mut found = Vec::new();
    for root in ["/usr/local/lib/node_modules", "/usr/lib/node_modules"] {
        let below = |name: String| match name.starts_with('@') {
            false => vec![name],
            true => {
                let of_scope = files.names(&format!("{root}/{name}"), MOST_NAMES);
                of_scope.into_iter().map(|one| format!("{name}/{one}")).collect()
            }
        };
        let names = files.names(root, MOST_NAMES).into_iter().flat_map(below);
        for name in names.filter(|name| is_template_package(name)).take(MOST_OF_NODE) {
            let manifest = text(files, &format!("{root}/{name}/package.json"), LARGEST_MANIFEST);
            let manifest: Manifest = serde_json::from_str(&manifest).unwrap_or_default();
            found.extend(package("npm", &name, &manifest.version));
        }
    }
    found
}

#[derive(Default, Deserialize)]
struct Manifest {
    version: String,
}

/// The packages of an image, each once, sorted.
pub(super) fn packages(files: &dyn ImageFiles) -> Vec<InstalledPackage> {
    let [debian, alpine] =
        ["/var/lib/dpkg/status", "/lib/apk/db/installed"].map(|path| text(files, path, LARGEST));
    let all = of_debian(&debian).chain(of_alpine(&alpine)).chain(of_pip(files)).chain(of_npm(files));
    let key = |one: InstalledPackage| (one.manager, one.name, one.version);
    let once: BTreeSet<_> = all.take(MOST_LOCKED).map(key).collect();
    let of = |(manager, name, version)| InstalledPackage { manager, name, version };
    once.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_egress::presets::FileBytes;
    use std::collections::BTreeMap;

    struct Files(BTreeMap<&'static str, &'static str>);

    impl ImageFiles for Files {
        fn open(&self, path: &str, _most: u64) -> Option<FileBytes> {
            self.0.get(path).map(|text| Box::new(text.as_bytes()) as FileBytes)
        }

        fn names(&self, folder: &str, most: usize) -> Vec<String> {
            let below = |path: &&&str| {
                Some(path.strip_prefix(folder)?.strip_prefix('/')?.split('/').next()?.to_owned())
            };
            self.0.keys().filter_map(|path| below(&path)).take(most).collect()
        }
    }

    #[test]
    fn packages_are_read_from_the_databases_of_their_managers() {
        let files = Files(BTreeMap::from([
            (
                "/var/lib/dpkg/status",
                "Package: python3\nStatus: install ok installed\nVersion: 3.11.2-1+b1\nDescription: x\n Version: 9\n\n\
                 Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                 Package: ../evil; rm\nStatus: install ok installed\nVersion: 1\n",
            ),
            ("/lib/apk/db/installed", "C:Q1abc\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nP:busybox\nV:1.36.1-r15\n"),
            ("/usr/local/lib/python3.12/site-packages/numpy-2.1.0.dist-info/METADATA", ""),
            ("/usr/local/lib/python3.12/site-packages/numpy-2.1.0.dist-info/RECORD", ""),
            ("/usr/local/lib/python3.12/site-packages/numpy/x", ""),
            ("/usr/local/lib/python3.12/site-packages/scikit_learn-1.5.2.dist-info/METADATA", ""),
            ("/usr/local/lib/node_modules/@types/node/package.json", r#"{"version":"22.1.0"}"#),
            ("/usr/local/lib/node_modules/docx/package.json", r#"{"name":"docx","version":"9.5.1"}"#),
            ("/usr/local/lib/node_modules/docx/node_modules/x/package.json", r#"{"version":"1.0.0"}"#),
            ("/usr/lib/node_modules/-evil/package.json", r#"{"version":"1.0.0"}"#),
            ("/usr/lib/node_modules/worse/package.json", r#"{"version":"1; rm"}"#),
            ("/usr/lib/node_modules/worst/package.json", "nonsense"),
        ]));
        let found: Vec<String> = packages(&files)
            .iter()
            .map(|one| format!("{} {} {}", one.manager, one.name, one.version))
            .collect();
        assert_eq!(
            found,
            [
                "alpine busybox 1.36.1-r15",
                "alpine musl 1.2.4-r2",
                "debian python3 3.11.2-1+b1",
                "npm @types/node 22.1.0",
                "npm docx 9.5.1",
                "pip numpy 2.1.0",
                "pip scikit-learn 1.5.2"
            ]
        );
        assert_eq!(packages(&Files(BTreeMap::new())), []);
    }
}
