//! Paths and links in documents. A path is what looks like one between backticks: the name of a Rust source, or
//! a path that begins with a folder of the repository or of a crate. `path: item` also says that the file has the item.

use crate::{Sources, markdown};
use std::path::{Component, Path, PathBuf};

/// What is wrong with the paths of the document `name`: each names its line.
#[must_use]
pub fn wrong_paths(
    name: &str,
    text: &str,
    sources: &Sources,
    read: &dyn Fn(&Path) -> Option<String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in markdown::prose(text) {
        let unknown = markdown::code_spans(line).filter(|span| !known(span, sources));
        wrong.extend(unknown.map(|span| format!("{name}:{number}: there is no `{span}`")));
        let broken =
            markdown::links(line).filter(|target| !leads_somewhere(name, target, text, sources, read));
        wrong.extend(broken.map(|target| format!("{name}:{number}: the link to {target} leads nowhere")));
    }
    wrong
}

/// The sources of crates that have unsafe code and are not named in the document `text`, by their own path or by
/// that of a folder above them.
#[must_use]
pub fn unnamed_unsafe(text: &str, sources: &Sources) -> Vec<String> {
    let spans: Vec<_> = markdown::prose(text).flat_map(|(_, line)| markdown::code_spans(line)).collect();
    let named = |path: &Path| path.ancestors().any(|above| spans.iter().any(|span| Path::new(span) == above));
    let within = sources.with_unsafe().filter_map(|path| path.strip_prefix("crates").ok());
    within.filter(|path| !named(path)).map(|path| format!("{} has unsafe code", path.display())).collect()
}

/// Whether what stands between backticks is no path, or is one that exists.
fn known(span: &str, sources: &Sources) -> bool {
    let (path, item) = span.split_once(": ").map_or((span, None), |(path, item)| (path, Some(item)));
    let path = path.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    if path.is_empty() || !path.chars().all(plain) || path.starts_with(['/', '.']) {
        return true;
    }
    let first = path.split('/').next().unwrap_or(path);
    let claims = path.ends_with(".rs") || path.contains('/') && is_folder(first, sources);
    let places = places(path, sources);
    !claims
        || !places.is_empty()
            && item.is_none_or(|item| item.split("::").all(|part| sources.mentions(&places, part)))
}

fn is_folder(first: &str, sources: &Sources) -> bool {
    let at_root = matches!(first, "crates" | "docs" | "examples" | "scripts");
    at_root || sources.files.contains(&Path::new("crates").join(first))
}

/// Where a path may lie: in the root, among the crates, in a crate or its sources; a file's name alone, anywhere.
fn places(path: &str, sources: &Sources) -> Vec<PathBuf> {
    let fits = |file: &&PathBuf| {
        if !path.contains('/') {
            return file.ends_with(path);
        }
        let mut parts = file.components();
        let in_root = parts.as_path() == Path::new(path);
        let in_crates = parts.next() == Some(Component::Normal("crates".as_ref())) && {
            let below_crates = parts.as_path() == Path::new(path);
            parts.next();
            let rest = parts.as_path();
            below_crates
                || rest == Path::new(path)
                || rest.strip_prefix("src").is_ok_and(|rest| rest == Path::new(path))
        };
        in_root || in_crates
    };
    sources.files.iter().filter(fits).cloned().collect()
}

fn leads_somewhere(
    name: &str,
    target: &str,
    text: &str,
    sources: &Sources,
    read: &dyn Fn(&Path) -> Option<String>,
) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let folder = Path::new(name).parent().unwrap_or(Path::new(""));
    let path = tidy(&folder.join(file));
    let there = file.is_empty() || sources.files.contains(&path);
    let text = || if file.is_empty() { Some(text.to_owned()) } else { read(&path) };
    there
        && anchor.is_none_or(|anchor| {
            text().is_some_and(|text| markdown::anchors(&text).iter().any(|a| a == anchor))
        })
}

/// A path without `..`.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(tidy.pop()),
            Component::CurDir => {}
            part => tidy.push(part),
        }
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::{unnamed_unsafe, wrong_paths};
    use crate::Sources;
    use std::path::Path;

    fn wrong(text: &str) -> Vec<String> {
        let mut sources = Sources::default();
        sources.take(Path::new("crates/core/src/exec/start.rs"), "fn begin() {}".to_owned());
        sources.take(Path::new("docs/files.md"), String::new());
        wrong_paths("docs/page.md", text, &sources, &|_| Some("# Large files\n".to_owned()))
    }

    #[test]
    fn paths_that_exist_are_right() {
        let right = "`core/src/exec/start.rs`, `crates/core/src/exec/`, `exec/start.rs: begin`, `start.rs`, `docs/files.md`\n\
            `~/.cursor/mcp.json`, `site/css/main.css`, `/workspace`, `exec::start`, [files](files.md#large-files), [top](#top)\n# Top";
        assert_eq!(wrong(right), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        for broken in
            ["core/src/exec/end.rs", "crates/nothing/src", "core/src/gone", "end.rs", "exec/start.rs: finish"]
        {
            let wrong = wrong(&format!("first\nsee `{broken}`"));
            assert_eq!(wrong, [format!("docs/page.md:2: there is no `{broken}`")]);
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        for broken in ["gone.md", "../README.md", "files.md#small-files", "#nowhere"] {
            assert_eq!(wrong(&format!("[here]({broken})")).len(), 1, "{broken}");
        }
    }

    #[test]
    fn unsafe_code_that_is_not_named_is_found() {
        let mut sources = Sources::default();
        for path in
            ["crates/guest/src/sys/io.rs", "crates/guest/src/ready.rs", "crates/core/src/operation.rs"]
        {
            sources.take(Path::new(path), "    unsafe { libc::fork() }".to_owned());
        }
        sources.take(Path::new("crates/core/src/create.rs"), "// unsafe { no code }".to_owned());
        sources.take(Path::new("crates/core/tests/main.rs"), "unsafe { libc::fork() }".to_owned());
        let wrong = unnamed_unsafe("In `guest/src/sys` and `guest/src/ready.rs`.", &sources);
        assert_eq!(wrong, ["core/src/operation.rs has unsafe code"]);
    }
}
