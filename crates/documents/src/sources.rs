//! What documents can name: the files of the repository, its tests, and the rows of its benchmark. Tests are found
//! by reading the sources line by line, which rustfmt makes regular, so nothing has to be compiled for it. Those of the
//! SDKs and of the console are functions of pytest, and calls of node:test whose names have underscores here for blanks.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

/// Folders that hold what was built or fetched.
const SKIPPED: [&str; 6] = [".git", ".schemathesis", ".work", "dist", "node_modules", "target"];

/// The files, tests and benchmark rows of a repository.
#[derive(Debug, Default)]
pub struct Sources {
    /// Files and folders, relative to the root.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Tests as `crate::module::name`, with the crate's folder for its name.
    pub(crate) tests: BTreeSet<String>,
    /// Rows of the benchmark as they are in its sources, with `{…}` for what is filled in.
    pub(crate) rows: BTreeSet<String>,
    texts: Vec<(PathBuf, String)>,
}

impl Sources {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// Where a folder or a source file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        found.walk(root, Path::new(""))?;
        Ok(found)
    }

    /// Takes one source file, as if it lay at `path`.
    pub(crate) fn take(&mut self, path: &Path, text: String) {
        self.files.extend(path.ancestors().map(Path::to_path_buf));
        if let Ok(within) = path.strip_prefix("crates") {
            self.tests.extend(tests(within, &text));
            if within.starts_with("bench/src") {
                self.rows.extend(literals(&text));
            }
        } else if let Ok(within) = path.strip_prefix("sdks") {
            self.tests.extend(script_tests(within, &text));
        } else if path.starts_with("ui") {
            self.tests.extend(script_tests(path, &text));
        }
        self.texts.push((path.to_path_buf(), text));
    }

    /// Whether one of the files at a path has `item` in its text.
    pub(crate) fn mentions(&self, paths: &[PathBuf], item: &str) -> bool {
        self.texts.iter().any(|(path, text)| paths.contains(path) && text.contains(item))
    }

    /// The sources of crates that have unsafe code.
    pub(crate) fn with_unsafe(&self) -> impl Iterator<Item = &Path> {
        let words = ["{", "fn", "impl", "extern"].map(|word| format!("unsafe {word}"));
        let code = |text: &str| {
            text.lines().any(|line| !is_comment(line) && words.iter().any(|word| line.contains(word)))
        };
        let product = |path: &Path| path.iter().nth(2).is_some_and(|part| part == "src");
        let found: Vec<_> = self.texts.iter().filter(|(path, text)| product(path) && code(text)).collect();
        found.into_iter().map(|(path, _)| path.as_path())
    }

    fn walk(&mut self, root: &Path, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            if entry.file_type()?.is_dir() {
                if !SKIPPED.iter().any(|skipped| name == *skipped) {
                    self.files.insert(path.clone());
                    self.walk(root, &path)?;
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") || is_script_test(&path) {
                let text = fs::read_to_string(root.join(&path))?;
                self.take(&path, text);
            } else {
                self.files.insert(path);
            }
        }
        Ok(())
    }
}

/// The tests of a file at `within`, relative to `crates`: functions with a test attribute, and the checks of
/// conformance suites, which are the plain functions that these give out.
fn tests(within: &Path, text: &str) -> Vec<String> {
    let parts: Vec<_> =
        within.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let (Some(package), Some(last)) = (parts.first(), parts.last()) else { return Vec::new() };
    let mut module = vec![package.clone()];
    module.extend(parts.iter().skip(2).cloned());
    if matches!(last.as_str(), "mod" | "lib" | "main") {
        module.pop();
    }
    let suite =
        parts.get(1).is_some_and(|part| part == "src") && parts.iter().any(|part| part == "conformance");
    let mut inner: Vec<(usize, &str)> = Vec::new();
    let (mut found, mut announced) = (Vec::new(), false);
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if code == "}" && inner.last().is_some_and(|(at, _)| *at == indent) {
            inner.pop();
        } else if let Some(name) = inline_module(code) {
            inner.push((indent, name));
        } else if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
            announced = true;
        } else if let Some(name) = function(code) {
            if announced || suite && code.starts_with("pub") {
                let path = module
                    .iter()
                    .map(String::as_str)
                    .chain(inner.iter().map(|(_, name)| *name))
                    .chain([name]);
                found.push(path.collect::<Vec<_>>().join("::"));
            }
            announced = false;
        }
    }
    found
}

/// Whether a file holds tests of an SDK or of the console.
fn is_script_test(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (python, node) = (name.starts_with("test_") && name.ends_with(".py"), name.ends_with(".test.ts"));
    (path.starts_with("sdks") || path.starts_with("ui/tests")) && (python || node)
}

/// The tests of a file at `within`, relative to `sdks`, or to the root for the console.
fn script_tests(within: &Path, text: &str) -> Vec<String> {
    let path = within.with_extension("").with_extension("");
    let module = path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("::");
    let name = |line: &str| {
        let code = line.trim_start();
        let python = code.strip_prefix("async ").unwrap_or(code).strip_prefix("def test_");
        let python = python.and_then(|rest| Some(format!("test_{}", rest.split_once('(')?.0)));
        let node = || Some(code.strip_prefix("test(\"")?.split_once('"')?.0.replace(' ', "_"));
        python.or_else(node)
    };
    text.lines().filter_map(name).map(|name| format!("{module}::{name}")).collect()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The name of a module that begins on a line.
fn inline_module(code: &str) -> Option<&str> {
    let code = code.strip_prefix("pub(crate) ").or_else(|| code.strip_prefix("pub ")).unwrap_or(code);
    code.strip_prefix("mod ")?.strip_suffix(" {")
}

/// The name of a function that begins on a line.
fn function(code: &str) -> Option<&str> {
    let (before, rest) = code.split_once("fn ")?;
    let words = ["pub", "pub(crate)", "pub(super)", "async"];
    let plain = before.split_whitespace().all(|word| words.contains(&word));
    plain.then(|| rest.split(['(', '<']).next()).flatten()
}

/// The texts between quotation marks.
fn literals(text: &str) -> impl Iterator<Item = String> {
    text.lines().flat_map(|line| line.split('"').skip(1).step_by(2)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::Sources;
    use std::path::Path;

    #[test]
    fn tests_are_found_where_they_are() {
        let mut sources = Sources::default();
        let text = "mod tests {\n    #[test]\n    fn inside() {}\n    fn helper() {}\n}\n#[tokio::test]\nasync fn below() {}\n";
        sources.take(Path::new("crates/core/src/exec/mod.rs"), text.to_owned());
        sources.take(
            Path::new("crates/provider/src/conformance/work.rs"),
            "pub(super) async fn a_check() {}\nfn helper() {}".to_owned(),
        );
        sources.take(Path::new("crates/bench/src/row.rs"), "row(\"memory, {count} live\")".to_owned());
        sources.take(
            Path::new("sdks/python/tests/test_x.py"),
            "def test_one(a: int) -> None:\nasync def test_two() -> None:\ndef helper() -> None:".to_owned(),
        );
        sources.take(
            Path::new("sdks/typescript/test/y.test.ts"),
            "  test(\"is run once, not twice\", async () => {".to_owned(),
        );
        sources.take(Path::new("ui/tests/list.test.ts"), "test(\"a row opens\", async () => {".to_owned());
        let expected = [
            "core::exec::below",
            "core::exec::tests::inside",
            "provider::conformance::work::a_check",
            "python::tests::test_x::test_one",
            "python::tests::test_x::test_two",
            "typescript::test::y::is_run_once,_not_twice",
            "ui::tests::list::a_row_opens",
        ];
        assert!(sources.tests.iter().eq(expected), "{:?}", sources.tests);
        assert!(sources.rows.iter().eq(["memory, {count} live"]));
        assert!(sources.files.contains(Path::new("crates/core/src")));
    }
}
