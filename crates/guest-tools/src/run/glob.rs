//! Globs: `*`, `?`, `[a-z]`, `{a,b}` and `**` for any folders. A glob becomes a regular expression, which takes
//! linear time whatever the user writes. A glob with a slash matches the whole path.

use atoll_types::{Error, Result};
use regex::{Regex, RegexBuilder};

const LARGEST: usize = 256 << 10;

pub(super) struct Glob {
    regex: Regex,
    whole_path: bool,
}

impl Glob {
    pub(super) fn new(field: &str, pattern: &str) -> Result<Self> {
        let wrong = |why: &str| Error::invalid(field, format!("{field} is no glob: {why}"));
        let text = translate(pattern).map_err(wrong)?;
        let regex = RegexBuilder::new(&text)
            .size_limit(LARGEST)
            .dfa_size_limit(4 * LARGEST)
            .build()
            .map_err(|_| wrong("it is too large, or has a range that goes backwards"))?;
        Ok(Self { regex, whole_path: pattern.contains('/') })
    }

    /// Whether an entry matches, by its path below the folder that is searched.
    pub(super) fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        self.regex.is_match(&String::from_utf8_lossy(if self.whole_path { path } else { name }))
    }
}

fn translate(pattern: &str) -> Result<String, &'static str> {
    let mut regex = String::from(r"\A");
    let mut rest = pattern.strip_prefix('/').unwrap_or(pattern).chars().peekable();
    let mut open = 0;
    while let Some(c) = rest.next() {
        match c {
            '*' if rest.next_if_eq(&'*').is_some() => {
                while rest.next_if_eq(&'*').is_some() {}
                // Folders and their slashes, or whatever is left.
                let part = if rest.next_if_eq(&'/').is_some() { "(?:[^/]+/)*" } else { "(?s:.*)" };
                regex.push_str(part);
            }
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => class(&mut rest, &mut regex)?,
            '{' => {
                open += 1;
                regex.push_str("(?:");
            }
            ',' if open > 0 => regex.push('|'),
            '}' if open > 0 => {
                open -= 1;
                regex.push(')');
            }
            '\\' => literal(rest.next().ok_or("it ends in a backslash")?, &mut regex),
            c => literal(c, &mut regex),
        }
    }
    if open > 0 {
        return Err("a { has no }");
    }
    regex.push_str(r"\z");
    Ok(regex)
}

fn literal(c: char, regex: &mut String) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

fn class(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    regex: &mut String,
) -> Result<(), &'static str> {
    let negated = rest.next_if(|c| matches!(c, '!' | '^')).is_some();
    regex.push_str(if negated { "[^/" } else { "[" });
    let mut first = true;
    for c in rest.by_ref() {
        match c {
            ']' if !first => {
                regex.push(']');
                return Ok(());
            }
            // As a range; at an end it is itself.
            '-' => regex.push('-'),
            c => literal(c, regex),
        }
        first = false;
    }
    Err("a [ has no ]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap();
        Glob::new("pattern", pattern).unwrap().matches(path.as_bytes(), name.as_bytes())
    }

    #[test]
    fn globs_mean_what_shells_mean() {
        for (pattern, path) in [
            ("*.rs", "a/b/main.rs"),
            ("*", ".hidden"),
            ("?.txt", "é.txt"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]]", "]"),
            ("[a-]", "-"),
            ("*.{rs,toml}", "Cargo.toml"),
            ("a/*.rs", "a/x.rs"),
            ("a/**/x", "a/x"),
            ("a/**/x", "a/b/c/x"),
            ("**/x", "x"),
            ("a/**", "a/b/c"),
            (r"\*", "*"),
            ("a b\n", "a b\n"),
            ("a.b", "a.b"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.rs", "x.rsx"),
            ("a/*.rs", "a/b/x.rs"),
            ("a.b", "axb"),
            ("[!a]", "a"),
            ("a/**/x", "b/x"),
            ("?", ""),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_is_no_glob_is_refused_by_field() {
        for pattern in ["[a", "{a,b", "a\\", "[z-a]"] {
            let error = Glob::new("glob", pattern).err().unwrap();
            assert_eq!(error.field.as_deref(), Some("glob"), "{pattern}");
        }
        let deep = "{".repeat(4000) + &"}".repeat(4000);
        assert!(Glob::new("glob", &deep).is_err());
    }
}
