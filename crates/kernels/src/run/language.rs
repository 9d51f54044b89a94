//! What differs between languages: the program, how its driver is loaded, and the form of its requests.

use crate::Language;
use atoll_types::{Error, ErrorCode, Result};
use rustix::fs::Access;
use std::{collections::BTreeMap, path::PathBuf};

/// Each reads its driver from descriptor 3: a line with the driver's length, then so many bytes.
const PYTHON_BEGIN: &str = include_str!("../../drivers/python/boot.py");
/// The driver, then the parts of it that are compiled when they are needed, by name.
const PYTHON: &str = concat!(
    include_str!("../../drivers/python.py"),
    "\n#### cell\n",
    include_str!("../../drivers/python/cell.py"),
    "\n#### complete\n",
    include_str!("../../drivers/python/complete.py"),
    "\n#### copy\n",
    include_str!("../../drivers/python/copy.py"),
    "\n#### errors\n",
    include_str!("../../drivers/python/errors.py"),
    "\n#### ipython\n",
    include_str!("../../drivers/python/ipython.py"),
    "\n#### show\n",
    include_str!("../../drivers/python/show.py"),
    "\n#### world\n",
    include_str!("../../drivers/python/world.py"),
);
const NODE_BEGIN: &str = include_str!("../../drivers/start-node.js");
const NODE: &str = include_str!("../../drivers/node.js");
const R_BEGIN: &str = include_str!("../../drivers/start-r.R");
const R: &str = include_str!("../../drivers/r.R");
const BASH_BEGIN: &str = include_str!("../../drivers/start-bash.sh");
const BASH: &str = include_str!("../../drivers/bash.sh");

/// A language's program and its arguments.
pub(super) struct Interpreter {
    pub(super) program: PathBuf,
    pub(super) arguments: &'static [&'static str],
}

impl Language {
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["python3", "python"],
            Self::Node => &["node", "nodejs"],
            Self::R => &["R"],
            Self::Bash => &["bash"],
        }
    }

    /// What brings the first of its programs.
    fn package(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::Node => "nodejs",
            Self::R => "r-base-core",
            Self::Bash => "bash",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Python => &["-c", PYTHON_BEGIN],
            Self::Node => &["--expose-internals", "--no-force-async-hooks-checks", "-e", NODE_BEGIN],
            Self::R => &["--no-echo", "--no-save", "--no-restore", "--no-init-file", "-e", R_BEGIN],
            Self::Bash => &["-c", BASH_BEGIN],
        }
    }

    /// What is written to its interpreter first.
    pub(super) fn driver(self) -> Vec<u8> {
        let text = match self {
            Self::Python => PYTHON,
            Self::Node => NODE,
            Self::R => R,
            Self::Bash => BASH,
        };
        format!("{}\n{text}", text.len()).into_bytes()
    }

    /// Whether it can be checkpointed and forked.
    pub(super) fn forks(self) -> bool {
        self == Self::Python
    }

    /// Its program on a path.
    pub(super) fn interpreter(self, path: &str) -> Result<Interpreter> {
        let runs = |file: &PathBuf| file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok();
        let places = || path.split(':').filter(|place| place.starts_with('/'));
        let mut found =
            self.programs().iter().flat_map(|name| places().map(move |p| PathBuf::from(p).join(name)));
        match found.find(runs) {
            Some(program) => Ok(Interpreter { program, arguments: self.arguments() }),
            None => Err(self.missing()),
        }
    }

    fn missing(self) -> Error {
        let message = format!(
            "{} is not in this image: use an image that has it; for `host`, install {} on the machine",
            self.own_name(),
            self.package()
        );
        Error::new(ErrorCode::Unsupported, message).at("language")
    }

    /// Its name as it is written in prose.
    fn own_name(self) -> &'static str {
        match self {
            Self::Python => "Python",
            Self::Node => "Node.js",
            Self::R => "R",
            Self::Bash => "bash",
        }
    }

    /// Refuses code that cannot be passed to its driver.
    pub(super) fn check(self, code: &str) -> Result<()> {
        let by_length = matches!(self, Self::R | Self::Bash);
        if by_length && code.contains('\0') {
            return Err(Error::invalid("code", format!("{} code has no NUL characters", self.name())));
        }
        Ok(())
    }

    /// A request to run a cell.
    pub(super) fn execute(self, id: u64, code: &str, result_variable: bool) -> Vec<u8> {
        match self {
            Self::Python if result_variable => {
                line(&serde_json::json!({ "op": "execute", "id": id, "code": code, "result_variable": true }))
            }
            _ => self.about_code("execute", id, code),
        }
    }

    /// A request for completions.
    pub(super) fn complete(self, id: u64, code: &str) -> Vec<u8> {
        self.about_code("complete", id, code)
    }

    fn about_code(self, op: &str, id: u64, code: &str) -> Vec<u8> {
        match self {
            Self::Python | Self::Node => line(&serde_json::json!({ "op": op, "id": id, "code": code })),
            Self::R | Self::Bash => format!("{op} {id} {}\n{code}", code.len()).into_bytes(),
        }
    }

    /// A request to change variables.
    pub(super) fn variables(self, set: &BTreeMap<String, String>, unset: &[String]) -> Vec<u8> {
        let entries = match self {
            Self::Python | Self::Node => {
                return line(&serde_json::json!({ "op": "variables", "set": set, "unset": unset }));
            }
            Self::Bash => {
                let set = set.iter().map(|(name, value)| format!("{name}={value}\0"));
                set.chain(unset.iter().map(|name| format!("{name}\0"))).collect::<String>()
            }
            Self::R => {
                let plain = |text: &str| text.replace('\\', "\\\\").replace('\n', "\\n");
                let set = set.iter().map(|(name, value)| format!("{}={}\n", plain(name), plain(value)));
                set.chain(unset.iter().map(|name| format!("{}\n", plain(name)))).collect::<String>()
            }
        };
        format!("variables 0 {}\n{entries}", entries.len()).into_bytes()
    }

    /// A request that has only an id.
    pub(super) fn plain(op: &str, id: u64) -> Vec<u8> {
        line(&serde_json::json!({ "op": op, "id": id }))
    }
}

fn line(value: &serde_json::Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let error = Language::Node.interpreter("/nowhere:relative:").err().unwrap();
        assert_eq!((error.code, error.field.as_deref()), (ErrorCode::Unsupported, Some("language")));
        assert!(
            error.message.starts_with("Node.js is not in this image: ") && error.message.contains("nodejs")
        );
        assert!(Language::Bash.interpreter("/nowhere:/usr/bin:/bin").is_ok());
    }

    #[test]
    fn the_python_driver_is_whole() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/drivers/python");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let Some(part) = name.strip_suffix(".py").filter(|part| *part != "boot") else { continue };
            assert!(PYTHON.contains(&format!("\n#### {part}\n")), "{part}");
        }
    }

    #[test]
    fn requests_hold_any_code() {
        let code = "a\n\"é\\\0";
        let told: serde_json::Value =
            serde_json::from_slice(&Language::Python.execute(7, code, false)).unwrap();
        assert_eq!(told, serde_json::json!({ "op": "execute", "id": 7, "code": code }));
        assert_eq!(Language::Bash.execute(7, "é\n", true), "execute 7 3\né\n".as_bytes());
        let set = BTreeMap::from([("A".into(), "b\nc\\".into())]);
        assert_eq!(Language::R.variables(&set, &["X".into()]), b"variables 0 11\nA=b\\nc\\\\\nX\n");
        assert_eq!(Language::Bash.variables(&set, &[]), b"variables 0 7\nA=b\nc\\\0");
    }
}
