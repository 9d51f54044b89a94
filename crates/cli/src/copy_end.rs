//! The two ends of a copy.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::{ffi::OsString, path::PathBuf};

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CopyEnd {
    /// Standard input or output.
    Standard,
    Here(PathBuf),
    /// In a sandbox; an empty path means /workspace.
    Inside {
        id: String,
        path: String,
    },
}

/// Text before a colon names a sandbox, unless it looks like a path: `./a:b` is a file here.
fn parse(text: OsString) -> CopyEnd {
    if text == "-" {
        return CopyEnd::Standard;
    }
    let inside = text.to_str().and_then(|t| t.split_once(':')).filter(|(id, _)| {
        let path_like = id.is_empty() || id.starts_with('.') || id.contains('/');
        !path_like
    });
    match inside {
        Some((id, path)) => CopyEnd::Inside { id: id.into(), path: path.into() },
        None => CopyEnd::Here(text.into()),
    }
}

/// Parses one end; a file's name here may be any bytes.
pub(crate) fn parser() -> impl TypedValueParser<Value = CopyEnd> {
    OsStringValueParser::new().map(parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_names_a_sandbox_unless_it_looks_like_a_path() {
        let inside = |id: &str, path: &str| CopyEnd::Inside { id: id.into(), path: path.into() };
        let of = |text: &str| parse(text.into());
        assert_eq!(of("3f2a:/etc/a:b"), inside("3f2a", "/etc/a:b"));
        assert_eq!(of("my-key:notes.txt"), inside("my-key", "notes.txt"));
        assert_eq!(of("3f2a:"), inside("3f2a", ""));
        assert_eq!(of("-"), CopyEnd::Standard);
        for here in ["a", "/a:b", "./a:b", "../a:b", "a/b:c", ":a"] {
            assert_eq!(of(here), CopyEnd::Here(here.into()), "{here}");
        }
    }
}
