//! Where a path points, as far as its text says: an area and a relative path in it. Nothing here touches the
//! disk; the kernel resolves symbolic links, in `resolve`.

use atoll_guest_tools::LONGEST_PATH;
use atoll_types::{Error, ErrorCode, Result};
use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

const WORKSPACE: &str = "workspace";
const TMP: &str = "tmp";

/// The directories that links may not lead out of.
pub(crate) struct Areas {
    home: Vec<String>,
    /// Those of the configuration, and the tree of each that is not what commands see there.
    configured: Vec<(Vec<String>, Option<AreaTree>)>,
}

/// The folder that file requests work on in an area, where it is not what commands see there.
#[derive(Debug, Clone)]
pub(crate) struct AreaTree(pub(crate) Arc<OwnedFd>);

impl PartialEq for AreaTree {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_raw_fd() == other.0.as_raw_fd()
    }
}

impl Eq for AreaTree {}

/// A path, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitPath {
    /// The area's directory relative to the root, empty for the root itself.
    area: String,
    /// The area's folder itself, where its directory is another.
    tree: Option<AreaTree>,
    /// Below the area; no part is empty, `.` or `..`.
    parts: Vec<String>,
    /// The field of the request that it came from.
    pub(crate) field: &'static str,
}

impl Areas {
    pub(crate) fn new(home: &str) -> Self {
        Self { home: owned_parts(home), configured: Vec::new() }
    }

    /// Adds an area.
    pub(crate) fn add(&mut self, path: &str, tree: Option<OwnedFd>) {
        self.configured.push((owned_parts(path), tree.map(|fd| AreaTree(Arc::new(fd)))));
    }

    /// Takes a path apart, absolute or relative to the workspace.
    pub(crate) fn place(&self, path: &str, field: &'static str) -> Result<SplitPath> {
        check(path).map_err(|e| e.at(field))?;
        let workspace = if path.starts_with('/') { None } else { Some(WORKSPACE) };
        let parts: Vec<&str> = workspace.into_iter().chain(parts_of(path)).collect();
        let length = self.area_length(&parts);
        let (area, below) = parts.split_at(length);
        let configured = self.configured.iter().find(|(path, _)| path.iter().eq(area));
        let tree = configured.and_then(|(_, tree)| tree.clone());
        let parts = below.iter().map(|part| (*part).to_owned()).collect();
        Ok(SplitPath { area: area.join("/"), tree, parts, field })
    }

    /// How many parts name the innermost area.
    fn area_length(&self, parts: &[&str]) -> usize {
        let fixed = [WORKSPACE, TMP].into_iter().filter(|name| parts.first() == Some(name)).map(|_| 1);
        let others = self.configured.iter().map(|(path, _)| path).chain([&self.home]);
        let inside =
            |path: &&Vec<String>| path.len() <= parts.len() && path.iter().zip(parts).all(|(a, b)| a == b);
        fixed.chain(others.filter(inside).map(Vec::len)).max().unwrap_or(0)
    }
}

fn check(path: &str) -> Result<()> {
    let invalid = |message: &str| Err(Error::new(ErrorCode::InvalidArgument, message));
    if path.is_empty() {
        return invalid("the path is empty");
    }
    if path.len() > LONGEST_PATH {
        return invalid(&format!("the path is longer than {LONGEST_PATH} bytes"));
    }
    if path.contains('\0') {
        return invalid("the path contains a NUL byte");
    }
    if path.split('/').any(|part| part == "..") {
        return Err(Error::new(ErrorCode::PathOutsideRoot, "a path must not contain '..'"));
    }
    Ok(())
}

fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !matches!(*part, "" | "."))
}

fn owned_parts(path: &str) -> Vec<String> {
    parts_of(path).map(str::to_owned).collect()
}

impl SplitPath {
    /// The area's folder, where it is not the one at the area's path.
    pub(crate) fn tree(&self) -> Option<&OwnedFd> {
        self.tree.as_ref().map(|tree| &*tree.0)
    }

    /// The area's directory relative to the root; none for the root itself.
    pub(crate) fn area(&self) -> Option<&str> {
        (!self.area.is_empty()).then_some(self.area.as_str())
    }

    /// The path below the area, as openat wants it.
    pub(crate) fn relative(&self) -> String {
        joined(&self.parts)
    }

    /// The directory that holds it and the name in there; nothing for an area itself.
    pub(crate) fn split(&self) -> Option<(String, &str)> {
        let (name, parents) = self.parts.split_last()?;
        Some((joined(parents), name))
    }

    /// The names of the directories on the way to its parent.
    pub(crate) fn parents(&self) -> &[String] {
        self.parts.split_last().map_or(&[], |(_, parents)| parents)
    }

    /// Its own name, for listings.
    pub(crate) fn name(&self) -> &str {
        let area = || self.area.rsplit('/').next().filter(|name| !name.is_empty());
        self.parts.last().map(String::as_str).or_else(area).unwrap_or("/")
    }
}

fn joined(parts: &[String]) -> String {
    if parts.is_empty() { ".".into() } else { parts.join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(path: &str) -> Result<SplitPath> {
        Areas::new("/home/user").place(path, "path")
    }

    #[test]
    fn areas_are_chosen_by_whole_parts() {
        let seen = |path| place(path).map(|p| (p.area().map(str::to_owned), p.relative())).unwrap();
        let area = |name: &str| Some(name.to_owned());
        assert_eq!(seen("a/b"), (area("workspace"), "a/b".into()));
        assert_eq!(seen("/workspace"), (area("workspace"), ".".into()));
        assert_eq!(seen("//workspace/./x/"), (area("workspace"), "x".into()));
        assert_eq!(seen("/workspaces/x"), (None, "workspaces/x".into()));
        assert_eq!(seen("/home/user/x"), (area("home/user"), "x".into()));
        assert_eq!(seen("/home/other"), (None, "home/other".into()));
        assert_eq!(seen("/tmp/x"), (area("tmp"), "x".into()));
        assert_eq!(seen("/"), (None, ".".into()));
    }

    #[test]
    fn the_innermost_configured_area_counts() {
        let mut areas = Areas::new("/home/user");
        let null = || std::fs::File::open("/dev/null").unwrap().into();
        areas.add("/workspace/data", Some(null()));
        areas.add("/workspace/data/out", None);
        areas.add("/workspace", Some(null()));
        let seen = |path| {
            let place = areas.place(path, "path").unwrap();
            (place.area().unwrap().to_owned(), place.relative(), place.tree().is_some())
        };
        assert_eq!(seen("x"), ("workspace".into(), "x".into(), true));
        assert_eq!(seen("data/x"), ("workspace/data".into(), "x".into(), true));
        assert_eq!(seen("data/out/x/y"), ("workspace/data/out".into(), "x/y".into(), false));
        assert_eq!(seen("database"), ("workspace".into(), "database".into(), true));
        assert_eq!(seen("/tmp/x"), ("tmp".into(), "x".into(), false));
    }

    #[test]
    fn names_and_parents() {
        assert_eq!(place("a/b").unwrap().split(), Some(("a".into(), "b")));
        assert_eq!(place("a").unwrap().split(), Some((".".into(), "a")));
        assert_eq!(place("/home/user").unwrap().split(), None);
        assert_eq!(place("/home/user").unwrap().name(), "user");
        assert_eq!(place("/").unwrap().name(), "/");
    }

    #[test]
    fn what_cannot_be_a_path_is_refused_by_field() {
        for (path, code) in [
            ("", ErrorCode::InvalidArgument),
            ("a\0b", ErrorCode::InvalidArgument),
            ("..", ErrorCode::PathOutsideRoot),
            ("/workspace/../etc", ErrorCode::PathOutsideRoot),
            (&"a/".repeat(3000), ErrorCode::InvalidArgument),
        ] {
            let error = place(path).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (code, Some("path")), "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_accepted_can_climb(path in "[a./\\PC]{0,60}") {
            if let Ok(place) = place(&path) {
                let relative = place.relative();
                prop_assert!(!relative.starts_with('/'));
                prop_assert!(relative.split('/').all(|part| part != ".." && !part.is_empty()));
                prop_assert!(relative == "." || relative.split('/').all(|part| part != "."));
                let whole = format!("/{}/{}", place.area().unwrap_or("."), relative);
                prop_assert_eq!(Areas::new("/home/user").place(&whole, "path").unwrap(), place);
            }
        }
    }
}
