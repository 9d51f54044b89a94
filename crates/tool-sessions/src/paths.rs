//! Paths inside a session, as text. Imports and exports are below /workspace; symbolic links are resolved
//! inside, by the kernel.

use atoll_core::bounds::LONGEST_PATH;
use atoll_types::{Error, ErrorCode, Result};

pub(crate) const WORKSPACE: &str = "/workspace";

/// A path as it is stored: absolute, below /workspace or that itself, without `.`, `..` and double slashes.
pub(crate) fn normalised(path: &str) -> Result<String> {
    if path.is_empty() || path.len() > LONGEST_PATH || path.contains('\0') {
        return Err(Error::invalid("path", format!("a path must have 1 to {LONGEST_PATH} bytes and no NUL")));
    }
    let outside = || Error::new(ErrorCode::PathOutsideRoot, format!("{path} does not lie below {WORKSPACE}"));
    let mut parts: Vec<&str> = if path.starts_with('/') { Vec::new() } else { vec!["workspace"] };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            // Not even in the middle of a path.
            ".." if parts.len() <= 1 => return Err(outside()),
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    match parts.first() {
        Some(&"workspace") => Ok(format!("/{}", parts.join("/"))),
        _ => Err(outside()),
    }
}

/// The destination of a file called `name`: `destination`, or below it where that ends in a slash; its own
/// name where none is given.
pub(crate) fn destination(wanted: Option<&str>, name: &str) -> Result<String> {
    match wanted.filter(|wanted| !wanted.is_empty()) {
        None => normalised(name),
        Some(folder) if folder.ends_with('/') => normalised(&format!("{folder}{name}")),
        Some(path) => normalised(path),
    }
}

/// The last name of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// Whether a path is this one or lies below it. Both are normalised.
pub(crate) fn covers(folder: &str, path: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_lie_below_the_workspace() {
        for (path, wanted) in [
            ("a.csv", "/workspace/a.csv"),
            ("./a//b/../c/", "/workspace/a/c"),
            ("/workspace", "/workspace"),
            ("/workspace/é x", "/workspace/é x"),
            ("//workspace/./a", "/workspace/a"),
        ] {
            assert_eq!(normalised(path).unwrap(), wanted, "{path}");
        }
        for path in
            ["..", "../etc/passwd", "/etc/passwd", "/workspace/../etc", "a/../../x", "/", "/workspaces/a"]
        {
            assert_eq!(normalised(path).unwrap_err().code, ErrorCode::PathOutsideRoot, "{path}");
        }
        for path in ["", "a\0b", &"x".repeat(4097)] {
            assert_eq!(normalised(path).unwrap_err().code, ErrorCode::InvalidArgument);
        }
    }

    #[test]
    fn a_destination_is_a_name_or_a_folder() {
        for (wanted, at) in [
            (None, "/workspace/a.csv"),
            (Some(""), "/workspace/a.csv"),
            (Some("b.csv"), "/workspace/b.csv"),
            (Some("data/"), "/workspace/data/a.csv"),
            (Some("/workspace/"), "/workspace/a.csv"),
        ] {
            assert_eq!(destination(wanted, "a.csv").unwrap(), at, "{wanted:?}");
        }
        assert!(destination(Some("../"), "a.csv").is_err() && destination(None, "..").is_err());
    }

    #[test]
    fn a_folder_covers_what_is_below_it() {
        assert!(covers("/workspace/a", "/workspace/a/b") && covers("/workspace/a", "/workspace/a"));
        assert!(!covers("/workspace/a", "/workspace/ab") && !covers("/workspace/a", "/workspace"));
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_is_plain(path in "[a-z./ ]{0,30}") {
            if let Ok(path) = normalised(&path) {
                prop_assert!(covers(WORKSPACE, &path));
                prop_assert!(path[1..].split('/').all(|part| !matches!(part, "" | "." | "..")));
                prop_assert_eq!(normalised(&path).unwrap(), path);
            }
        }
    }
}
