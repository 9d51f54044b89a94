//! What may be the name and the version of a package, wherever a request, a template, a lock or an image names one. They end up
//! among the arguments of a package manager, so none can be an option, a path, an address, or more than one word of a shell.
//!
//! There are three forms. A request to install names a package and its version apart. The tools' dependencies do too, by the
//! pattern that their clients know, and are checked as a request to install once more. A template writes both as one text, as
//! its manager reads it.

/// The longest name of a package that is to be installed.
pub const LONGEST_NAME: usize = 214;
/// The longest version of a package that is to be installed.
pub const LONGEST_VERSION: usize = 100;
/// A plain name as a regular expression of its whole: what [`is_plain`] takes.
pub const PLAIN: &str = r"[A-Za-z0-9](?:(?:\.?[A-Za-z0-9_-])*\.?[A-Za-z0-9])?";
/// A version as a regular expression of its whole: what [`is_version`] takes.
pub const VERSION: &str = r"(?:[A-Za-z0-9.+_*!=<>~^,][A-Za-z0-9.+_*!=<>~^,-]*)?";
/// What [`is_dependency`] takes, as a regular expression.
pub const DEPENDENCY_PATTERN: &str = "^@?[a-zA-Z0-9]([a-zA-Z0-9._/-]*[a-zA-Z0-9])?$";

/// The longest version of one of the tools' dependencies.
const LONGEST_DEPENDENCY_VERSION: usize = 128;
/// The longest text of a package in a template, and the longest version in a lock.
const LONGEST_TEXT: usize = 200;

/// A letter or digit first and last, and between them also dots, dashes and underlines.
#[must_use]
pub fn is_plain(name: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inside = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.starts_with(ends) && name.ends_with(ends) && name.chars().all(inside) && !name.contains("..")
}

/// A plain name, perhaps of a scope, as Node has them: `@types/node`.
#[must_use]
pub fn is_scoped(name: &str) -> bool {
    match name.strip_prefix('@').and_then(|rest| rest.split_once('/')) {
        Some((scope, name)) => is_plain(scope) && is_plain(name),
        None => is_plain(name),
    }
}

/// [`is_scoped`] as a regular expression of a whole name.
#[must_use]
pub fn scoped() -> String {
    format!("(?:@{PLAIN}/)?{PLAIN}")
}

/// A plain name, perhaps with extras, as Python has them: `uvicorn[standard]`.
#[must_use]
pub fn has_plain_extras(name: &str) -> bool {
    match name.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((name, extras)) => is_plain(name) && extras.split(',').all(is_plain),
        None => is_plain(name),
    }
}

/// [`has_plain_extras`] as a regular expression of a whole name.
#[must_use]
pub fn with_extras() -> String {
    format!(r"{PLAIN}(?:\[{PLAIN}(?:,{PLAIN})*\])?")
}

/// A version of a package that is to be installed, or a range; empty for the latest.
#[must_use]
pub fn is_version(version: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || ".+_-*!=<>~^,".contains(c);
    version.len() <= LONGEST_VERSION && !version.starts_with('-') && version.chars().all(known)
}

/// The name of one of the tools' dependencies.
#[must_use]
pub fn is_dependency(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric();
    let name = name.strip_prefix('@').unwrap_or(name).as_bytes();
    let inner = name.iter().all(|b| plain(*b) || matches!(b, b'.' | b'_' | b'/' | b'-'));
    name.len() <= LONGEST_NAME
        && inner
        && name.first().is_some_and(|b| plain(*b))
        && name.last().is_some_and(|b| plain(*b))
}

/// The version of one of the tools' dependencies.
#[must_use]
pub fn is_dependency_version(version: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".+!*-_~^<>=,| ".contains(&b);
    version.len() <= LONGEST_DEPENDENCY_VERSION && !version.starts_with('-') && version.bytes().all(plain)
}

/// A package in a template: its name, perhaps with a scope, a version or extras.
#[must_use]
pub fn is_template_package(text: &str) -> bool {
    let rest = text.strip_prefix('@').unwrap_or(text);
    let first = rest.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._+-[],=~@/".contains(&b);
    let slashes = rest.matches('/').count();
    let scoped = slashes == 0 || slashes == 1 && text.starts_with('@');
    first && text.len() <= LONGEST_TEXT && text.bytes().all(plain) && scoped && !text.contains("..")
}

/// The name of a package of Python as indexes compare it (PEP 503): `Scikit_Learn` is `scikit-learn`.
#[must_use]
pub fn pip_name(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// An exact version of any manager's in a lock, and nothing that a file of apt would read otherwise.
#[must_use]
pub fn is_locked_version(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b".+~:-_!".contains(&b);
    text.len() <= LONGEST_TEXT
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_a_template_is_nothing_else() {
        for good in [
            "pandas",
            "@types/node",
            "numpy==2.1",
            "uvicorn[standard]",
            "g++",
            "left-pad@1.0.0",
            "data.table",
        ] {
            assert!(is_template_package(good), "{good}");
        }
        for bad in
            ["", "-e", "--index-url", "../x", "/etc", "a b", "a;b", "a$(b)", "https://x", "a/b", "@", "a\n"]
        {
            assert!(!is_template_package(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_locked_version_is_exact() {
        for good in ["1", "2.2.3", "1:2.36-9+deb12u4", "1.0~rc1", "1!2.0"] {
            assert!(is_locked_version(good), "{good}");
        }
        for bad in ["", "-1", ">=1", "1 2", "1\n", "*", "$(id)"] {
            assert!(!is_locked_version(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_package_of_python_has_one_name() {
        for name in ["scikit-learn", "Scikit_Learn", "scikit.-learn"] {
            assert_eq!(pip_name(name), "scikit-learn");
        }
    }

    #[test]
    fn dependencies_are_plain() {
        for name in ["pandas", "@types/node", "scikit-learn", "zope.interface", "a", "R6", "lodash_es"] {
            assert!(is_dependency(name), "{name}");
        }
        for name in ["", "-r", "--index-url", "a b", "a;b", "@", "a-", "/etc", "../x", "a\n", "é"] {
            assert!(!is_dependency(name), "{name:?}");
        }
        for version in ["", "2.2.3", "^1.0.0", ">=1,<2", "1.0rc1", "~1.2 || 3.*"] {
            assert!(is_dependency_version(version), "{version}");
        }
        for version in ["-e .", "$(id)", "1;2", "x @ y", "1\n"] {
            assert!(!is_dependency_version(version), "{version:?}");
        }
    }
}
