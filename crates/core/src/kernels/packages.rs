//! Packages by name and version, and the command that installs them. No shell sees names and versions, of which
//! `types/src/packages.rs` says what they may be. Everything lands in the user's home, which is on the sandbox's volume.

use atoll_kernels::Language;
use atoll_types::{
    Error, Result,
    packages::{LONGEST_NAME, has_plain_extras, is_plain, is_scoped, is_version},
};
use std::collections::BTreeMap;

/// Packages of one request.
pub const MOST: usize = 100;

/// Installs into a folder where `require` looks from everywhere.
const NODE: &str = r#"
const fs = require("fs"), os = require("os"), path = require("path");
const home = os.homedir(), dir = path.join(home, ".local/lib/atoll-node");
fs.mkdirSync(path.join(dir, "node_modules"), { recursive: true });
try { fs.symlinkSync(path.join(dir, "node_modules"), path.join(home, ".node_modules")); }
catch (e) { if (e.code !== "EEXIST") throw e; }
const args = ["install", "--prefix", dir, "--no-audit", "--no-fund", "--no-progress", "--"];
const ran = require("child_process").spawnSync("npm", args.concat(process.argv.slice(1)), { stdio: "inherit" });
if (ran.error && ran.error.code === "ENOENT") {
  console.error("npm is not in this image; Debian has it as the package npm");
  process.exit(127);
}
process.exit(ran.status === null ? 1 : ran.status);
"#;

/// Installs into the user's own library. `install.packages` only warns, so what is there is looked at.
const R: &str = r#"
wanted <- commandArgs(trailingOnly = TRUE)
lib <- path.expand(strsplit(Sys.getenv("R_LIBS_USER"), .Platform$path.sep, fixed = TRUE)[[1]][1])
dir.create(lib, recursive = TRUE, showWarnings = FALSE)
if (identical(unname(getOption("repos")["CRAN"]), "@CRAN@")) {
  ours <- Sys.getenv("ATOLL_R_REPOSITORY")
  if (!nzchar(ours)) stop("no repository is set; set one with options(repos = ...) in ~/.Rprofile")
  options(repos = c(CRAN = ours))
}
install.packages(wanted, lib = lib)
missing <- setdiff(wanted, rownames(installed.packages(lib.loc = lib)))
if (length(missing)) stop("not installed: ", paste(missing, collapse = ", "))
"#;

fn is_name(language: Language, name: &str) -> bool {
    let is_name = match language {
        Language::Python => has_plain_extras,
        Language::Node => is_scoped,
        Language::R | Language::Bash => is_plain,
    };
    name.len() <= LONGEST_NAME && is_name(name)
}

/// Refuses what no package of this language can be called.
pub(crate) fn check(language: Language, packages: &BTreeMap<String, String>) -> Result<()> {
    let wrong = |message: String| Err(Error::invalid("packages", message));
    if language == Language::Bash {
        return Err(Error::invalid("language", "bash has no packages; use python, node or r"));
    }
    if packages.is_empty() || packages.len() > MOST {
        return wrong(format!("packages must have 1 to {MOST} names"));
    }
    for (name, version) in packages {
        if !is_name(language, name) {
            return wrong(format!("{:?} is no name of a package", name.chars().take(80).collect::<String>()));
        }
        if !is_version(version) {
            return wrong(format!("the version of {name} is not one that a package manager reads"));
        }
        if language == Language::R && !version.is_empty() {
            return wrong(format!("R installs the latest version: leave that of {name} empty"));
        }
    }
    Ok(())
}

/// As a person would write it.
pub(super) fn listed(language: Language, packages: &BTreeMap<String, String>) -> String {
    let all: Vec<String> = packages.iter().map(|(name, version)| one(language, name, version)).collect();
    format!("{}: {}", language.name(), all.join(" "))
}

fn one(language: Language, name: &str, version: &str) -> String {
    match (language, version) {
        (_, "") | (Language::R | Language::Bash, _) => name.to_owned(),
        (Language::Node, version) => format!("{name}@{version}"),
        (Language::Python, version) if version.starts_with(['<', '>', '=', '!', '~']) => {
            format!("{name}{version}")
        }
        (Language::Python, version) => format!("{name}=={version}"),
    }
}

/// The command that installs them.
pub(super) fn command(language: Language, packages: &BTreeMap<String, String>) -> Vec<String> {
    let begin: &[&str] = match language {
        Language::Python => {
            &["python3", "-m", "pip", "install", "--user", "--no-input", "--disable-pip-version-check", "--"]
        }
        Language::Node => &["node", "-e", NODE],
        Language::R => &["Rscript", "-e", R],
        Language::Bash => &[],
    };
    let wanted = packages.iter().map(|(name, version)| one(language, name, version));
    begin.iter().map(ToString::to_string).chain(wanted).collect()
}

/// Variables that the package manager needs.
pub(super) fn variables(language: Language) -> BTreeMap<String, String> {
    let all: &[(&str, &str)] = match language {
        Language::Python => &[("PIP_NO_INPUT", "1")],
        _ => &[],
    };
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The preset with which a language's packages can be had.
pub(super) fn preset(language: Language) -> &'static str {
    match language {
        Language::Python => "python",
        Language::Node => "node",
        Language::R | Language::Bash => "r",
    }
}

/// What is to be done where the manager is not there.
pub(super) fn hint(language: Language, stderr: &str, not_there: bool) -> Option<&'static str> {
    match language {
        Language::Python if not_there => {
            Some("python3 is not in this image; Debian has it as the package python3")
        }
        Language::Python if stderr.contains("No module named pip") => {
            Some("pip is not in this image; Debian has it as the package python3-pip")
        }
        Language::Node if not_there => {
            Some("node is not in this image; Debian has it as the packages nodejs and npm")
        }
        Language::R if not_there => Some("R is not in this image; Debian has it as the package r-base-core"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_types::packages::{PLAIN, VERSION, scoped, with_extras};
    use proptest::prelude::*;

    fn packages(list: &[(&str, &str)]) -> BTreeMap<String, String> {
        list.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
    }

    #[test]
    fn names_and_versions_are_plain() {
        for (language, name, version) in [
            (Language::Python, "pandas", "2.2.3"),
            (Language::Python, "ruamel.yaml", ">=0.17,<1"),
            (Language::Python, "uvicorn[standard]", ""),
            (Language::Python, "a[b.c,d-e]", "1"),
            (Language::Node, "@types/node", "^20.1.0"),
            (Language::Node, "ms", "latest"),
            (Language::R, "ggplot2", ""),
        ] {
            assert_eq!(check(language, &packages(&[(name, version)])), Ok(()), "{name}");
        }
        for (language, name, version) in [
            (Language::Python, "-r", ""),
            (Language::Python, "--index-url=http", ""),
            (Language::Python, "a/b", ""),
            (Language::Python, "@a/b", ""),
            (Language::Python, "..", ""),
            (Language::Python, "a..b", ""),
            (Language::Python, "a b", ""),
            (Language::Python, "a;id", ""),
            (Language::Python, "$(id)", ""),
            (Language::Python, "git+https://host.example/x", ""),
            (Language::Python, "", ""),
            (Language::Python, "a[]", ""),
            (Language::Python, "a[b", ""),
            (Language::Python, "a[b]c", ""),
            (Language::Python, "a[b][c]", ""),
            (Language::Python, "a[b,]", ""),
            (Language::Python, "[b]", ""),
            (Language::Node, "a[b]", ""),
            (Language::R, "a[b]", ""),
            (Language::Python, "six", "1; id"),
            (Language::Python, "six", "-1"),
            (Language::Python, "six", "1 --pre"),
            (Language::Node, "user/repository", ""),
            (Language::Node, "@/x", ""),
            (Language::Node, "@a/b/c", ""),
            (Language::Node, "ms", "file:/etc"),
            (Language::R, "ggplot2", "1.0"),
            (Language::Python, "pändas", ""),
        ] {
            let refused = check(language, &packages(&[(name, version)])).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some("packages"), "{name} {version}");
        }
        assert_eq!(
            check(Language::Bash, &packages(&[("a", "")])).unwrap_err().field.as_deref(),
            Some("language")
        );
        assert!(check(Language::Python, &BTreeMap::new()).is_err());
    }

    #[test]
    fn versions_are_said_as_the_manager_wants_them() {
        let of = |language, list: &[(&str, &str)]| listed(language, &packages(list));
        assert_eq!(of(Language::Python, &[("a", "1"), ("b", "~=2"), ("c", "")]), "python: a==1 b~=2 c");
        assert_eq!(of(Language::Node, &[("@a/b", "^1"), ("c", "")]), "node: @a/b@^1 c");
        let command = command(Language::Python, &packages(&[("a", "1")]));
        assert_eq!(command.last().map(String::as_str), Some("a==1"));
        assert!(command.contains(&"--".to_owned()));
    }

    proptest! {
        #[test]
        fn the_patterns_are_the_checks(name in r"@?[aZ0._/-]{0,8}(\[[aZ0.,_-]{0,4}\]?)?", version in "[a0.+_*!=<>~^, -]{0,5}") {
            let whole = |pattern: &str, text| regex::Regex::new(&format!("^(?:{pattern})$")).unwrap().is_match(text);
            prop_assert_eq!(whole(&with_extras(), &name), is_name(Language::Python, &name));
            prop_assert_eq!(whole(PLAIN, &name), is_name(Language::R, &name));
            prop_assert_eq!(whole(&scoped(), &name), is_name(Language::Node, &name));
            prop_assert_eq!(whole(VERSION, &version), is_version(&version));
        }

        #[test]
        fn what_is_accepted_is_no_option_and_no_path(name in ".{0,40}", version in ".{0,20}") {
            for language in [Language::Python, Language::Node, Language::R] {
                if check(language, &packages(&[(&name, &version)])).is_ok() {
                    let argument = one(language, &name, &version);
                    prop_assert!(!argument.starts_with(['-', '.', '/']));
                    let known = |c: char| c.is_whitespace() || "\\$`;&|'\"(){}:?#".contains(c);
                    let strange = argument.contains(known);
                    prop_assert!(!strange, "{}", argument);
                }
            }
        }
    }
}
