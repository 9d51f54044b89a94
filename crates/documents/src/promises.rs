//! The promises of SPECIFICATION.md: rows `| ID | promise | held by |`, whose last cell names tests and benchmark rows
//! between backticks. A test is `path::name`, `path::{name, name}` or `path::*`, where the path may begin anywhere in
//! the test's own and `crate: ` before it narrows it to one crate; `bench: row` is a row of `make bench`.

use crate::{Sources, markdown};
use std::collections::BTreeSet;

/// One promise.
#[derive(Debug)]
pub struct Promise<'a> {
    /// Its id, such as `EGR-07`.
    pub id: &'a str,
    /// The cell that says what holds it.
    pub held_by: &'a str,
}

/// Every promise of a specification.
pub fn promises(text: &str) -> impl Iterator<Item = Promise<'_>> {
    markdown::prose(text).filter_map(|(_, line)| {
        let cells: Vec<_> =
            line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::trim).collect();
        let [id, .., held_by] = cells[..] else { return None };
        (id != "id").then_some(Promise { id, held_by })
    })
}

/// What is wrong with a specification: ids that are malformed or there twice, and promises that nothing holds.
#[must_use]
pub fn wrong_promises(text: &str, sources: &Sources) -> Vec<String> {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for Promise { id, held_by } in promises(text) {
        if !is_id(id) {
            wrong.push(format!("{id} is no id such as EGR-07"));
        }
        if !seen.insert(id) {
            wrong.push(format!("{id} is there twice"));
        }
        let names: Vec<_> = markdown::code_spans(held_by).flat_map(expand).collect();
        if names.is_empty() {
            wrong.push(format!("{id} names no test and no benchmark"));
        }
        let unknown = names.iter().filter(|name| !exists(name, sources));
        wrong.extend(unknown.map(|name| format!("{id}: there is no test or benchmark `{name}`")));
    }
    wrong
}

fn is_id(id: &str) -> bool {
    id.split_once('-').is_some_and(|(area, number)| {
        area.len() == 3
            && area.chars().all(|c| c.is_ascii_uppercase())
            && number.len() >= 2
            && number.chars().all(|c| c.is_ascii_digit())
    })
}

/// `a::{b, c}` is `a::b` and `a::c`.
fn expand(span: &str) -> Vec<String> {
    match span.split_once('{').and_then(|(path, rest)| Some((path, rest.strip_suffix('}')?))) {
        Some((path, names)) => names.split(", ").map(|name| format!("{path}{name}")).collect(),
        None => vec![span.to_owned()],
    }
}

fn exists(name: &str, sources: &Sources) -> bool {
    if let Some(row) = name.strip_prefix("bench: ") {
        return sources.rows.iter().any(|template| fits(template, row));
    }
    let (package, path) = name.split_once(": ").map_or((None, name), |(package, path)| (Some(package), path));
    let (path, all) = path.strip_suffix("::*").map_or((path, false), |path| (path, true));
    let path = format!("::{path}{}", if all { "::" } else { "" });
    sources.tests.iter().any(|test| {
        let own = package
            .is_none_or(|package| test.strip_prefix(package).is_some_and(|rest| rest.starts_with("::")));
        own && if all { test.contains(&path) } else { test.ends_with(&path) }
    })
}

/// Whether a row is what a template such as `memory, {count} live` makes.
fn fits(template: &str, row: &str) -> bool {
    let Some((before, rest)) = template.split_once('{') else { return template == row };
    let Some((_, after)) = rest.split_once('}') else { return false };
    let enough = !before.is_empty() && row.len() > before.len() + after.len();
    enough && row.starts_with(before) && row.ends_with(after)
}

#[cfg(test)]
mod tests {
    use super::wrong_promises;
    use crate::Sources;
    use std::path::Path;

    fn wrong(rows: &str) -> Vec<String> {
        let mut sources = Sources::default();
        sources.take(
            Path::new("crates/core/src/exec.rs"),
            "#[test]\nfn it_ends() {}\nfn no_test() {}".to_owned(),
        );
        sources.take(Path::new("crates/bench/src/live.rs"), "(\"memory, {count} live\")".to_owned());
        wrong_promises(&format!("| id | promise | held by |\n|---|---|---|\n{rows}\n"), &sources)
    }

    #[test]
    fn promises_that_are_held_are_right() {
        let right = "| EXE-01 | one | `exec::it_ends`, `core: exec::*`, `exec::{it_ends, it_ends}` |\n\
            | SPD-100 | two | `bench: memory, 10 live` (full) |";
        assert_eq!(wrong(right), Vec::<String>::new());
    }

    #[test]
    fn a_promise_that_nothing_holds_is_found() {
        assert_eq!(wrong("| EXE-01 | one | every test |"), ["EXE-01 names no test and no benchmark"]);
        let names = [
            "it_began",
            "exec::no_test",
            "exc::*",
            "guest: exec::it_ends",
            "bench: disk, 10 live",
            "exec::{it_ends, x}",
        ];
        for name in names {
            let wrong = wrong(&format!("| EXE-01 | one | `{name}` |"));
            assert!(
                matches!(&wrong[..], [one] if one.starts_with("EXE-01: there is no")),
                "{name}: {wrong:?}"
            );
        }
    }

    #[test]
    fn an_id_that_is_there_twice_or_malformed_is_found() {
        let twice = "| EXE-01 | one | `it_ends` |\n| EXE-01 | two | `it_ends` |";
        assert_eq!(wrong(twice), ["EXE-01 is there twice"]);
        for id in ["EXE-1", "exe-01", "EXEC-01", "EXE01"] {
            assert_eq!(
                wrong(&format!("| {id} | one | `it_ends` |")),
                [format!("{id} is no id such as EGR-07")]
            );
        }
    }
}
