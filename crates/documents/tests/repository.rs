//! The documents of this repository, held to the checks.
#![allow(clippy::unwrap_used)]

use atoll_documents::{Sources, promises, too_large, unnamed_unsafe, wrong_paths, wrong_promises};
use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn text(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// Every document, relative to the root. The changelog tells of the past, so what it names may be gone.
fn documents() -> Vec<String> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let (root, mut found) = (root(), Vec::new());
    below(&root.join("docs"), &mut found);
    let named = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
    let top = ["README.md", "ARCHITECTURE.md", "SPECIFICATION.md", "THREAT-MODEL.md", "CONTRIBUTING.md"];
    named.chain(top.map(str::to_owned)).collect()
}

#[test]
fn every_path_and_link_in_the_documents_exists() {
    let sources = Sources::read(&root()).unwrap();
    let read = |path: &Path| fs::read_to_string(root().join(path)).ok();
    let check = |name: &String| wrong_paths(name, &text(name), &sources, &read);
    let wrong: Vec<_> = documents().iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_promise_names_a_test_or_a_benchmark_that_exists() {
    let specification = text("SPECIFICATION.md");
    assert!(promises(&specification).count() > 300, "the tables are no longer read");
    let wrong = wrong_promises(&specification, &Sources::read(&root()).unwrap());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_first_documents_stay_short() {
    let wrong = [("README.md", 6), ("ARCHITECTURE.md", 10)];
    let wrong: Vec<_> = wrong.iter().filter_map(|(name, most)| too_large(name, &text(name), *most)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_readme_links_every_topic() {
    let readme = text("README.md");
    let topics =
        documents().into_iter().filter(|name| name.starts_with("docs/") && name.matches('/').count() == 1);
    let missing: Vec<_> = topics.filter(|name| !readme.contains(&format!("]({name})"))).collect();
    assert!(missing.is_empty(), "README.md does not link {missing:?}");
}

#[test]
fn contributing_names_every_module_with_unsafe_code() {
    let sources = Sources::read(&root()).unwrap();
    // The checks themselves hold the word in what they are tried against.
    let mut wrong = unnamed_unsafe(&text("CONTRIBUTING.md"), &sources);
    wrong.retain(|unnamed| !unnamed.starts_with("documents/"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
