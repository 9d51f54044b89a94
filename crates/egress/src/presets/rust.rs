//! Which registries cargo uses: its settings, or what is built into the program.

use super::{
    Found,
    index::{Index, Role, Tool, entry},
    tool_location::ToolLocation,
};
use serde::Deserialize;
use std::{collections::BTreeSet, io::Read};
use toml::{Table, Value};
use url::Url;

/// A larger program is not searched.
const MOST_PROGRAM: u64 = 256 << 20;
/// Programs that are searched: an image may hold many, and each as large as that.
const MOST_PROGRAMS: usize = 8;
/// Steps from one source to the one that replaces it.
const MOST_STEPS: usize = 8;
/// How the index of a registry begins in cargo's program.
const SPARSE: &[u8] = b"sparse+https://";

/// cargo's own folders, the stronger first.
fn homes(place: &ToolLocation) -> Vec<String> {
    let named = place.variable("CARGO_HOME").map(str::to_owned);
    let mut homes: Vec<String> = named.into_iter().chain(place.home(".cargo")).collect();
    homes.push("/usr/local/cargo".to_owned());
    homes
}

/// The settings, the stronger first. The root's folder is one that every working directory is below.
fn tables(place: &ToolLocation) -> Vec<Table> {
    let mut folders = vec!["/.cargo".to_owned()];
    folders.extend(homes(place));
    let text = |folder: String| {
        // The older name wins where both are there, as it does for cargo.
        place
            .tree
            .text(&format!("{folder}/config"))
            .or_else(|| place.tree.text(&format!("{folder}/config.toml")))
    };
    folders.into_iter().filter_map(text).filter_map(|text| text.parse().ok()).collect()
}

fn get<'a>(tables: &'a [Table], path: [&str; 3]) -> Option<&'a str> {
    let [a, b, c] = path;
    tables.iter().find_map(|table| table.get(a)?.get(b)?.get(c)?.as_str())
}

/// The registry that stands in for the public one.
fn replacement(tables: &[Table]) -> Option<Index> {
    let mut name = get(tables, ["source", "crates-io", "replace-with"])?;
    for _ in 0..MOST_STEPS {
        match get(tables, ["source", name, "replace-with"]) {
            Some(next) => name = next,
            None => break,
        }
    }
    let url =
        get(tables, ["source", name, "registry"]).or_else(|| get(tables, ["registries", name, "index"]));
    read(Role::Main, url?)
}

/// What is not sparse is in git.
fn read(role: Role, text: &str) -> Option<Index> {
    Some(Index { git: !text.starts_with("sparse+"), ..Index::read(Tool::Cargo, role, text)? })
}

/// Registries beside it, by file or by variable.
fn others(place: &ToolLocation, tables: &[Table]) -> Vec<Index> {
    let named = tables.iter().filter_map(|table| table.get("registries")?.as_table());
    let named = named.flat_map(|t| t.values()).filter_map(|r| r.get("index")).filter_map(Value::as_str);
    let set = place
        .variables()
        .filter(|(name, _)| name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX"));
    named.chain(set.map(|(_, value)| value)).filter_map(|text| read(Role::Extra, text)).collect()
}

/// Where cargo may be. The toolchains of rustup come first: where there are some, the program on the path is
/// rustup itself, twenty megabytes without an index.
fn programs(place: &ToolLocation) -> Vec<String> {
    let named = place.variable("RUSTUP_HOME").map(str::to_owned);
    let homes = named.into_iter().chain(place.home(".rustup")).chain(["/usr/local/rustup".to_owned()]);
    let toolchains = homes.flat_map(|home| place.tree.paths(&format!("{home}/toolchains/*/bin/cargo")));
    let mut seen = BTreeSet::new();
    let programs = toolchains.chain(place.programs().map(|folder| format!("{folder}/cargo")));
    programs.filter(|path| seen.insert(path.clone())).collect()
}

/// The URL that begins here. Strings lie beside each other in a program without anything between, so it
/// ends with the first slash after the host.
fn url_at(bytes: &[u8]) -> Option<Index> {
    let host = bytes.get(SPARSE.len()..)?;
    let end = host.iter().take(254).position(|b| *b == b'/')?;
    let host = std::str::from_utf8(&host[..end]).ok()?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-');
    (host.contains('.') && host.bytes().all(plain)).then_some(())?;
    Index::built_in(Tool::Cargo, &format!("https://{host}/"))
}

/// Searches a program for the index, a piece at a time.
fn from_program(mut program: impl Read) -> Option<Index> {
    let mut piece = vec![0; 1 << 20];
    let mut kept = 0;
    let mut total = 0_u64;
    loop {
        let read = program.read(&mut piece[kept..]).ok().filter(|n| *n > 0)?;
        total += read as u64;
        let held = &piece[..kept + read];
        let mut starts = memchr::memmem::find_iter(held, SPARSE);
        if let Some(found) = starts.find_map(|at| url_at(&held[at..])) {
            return Some(found);
        }
        if total > MOST_PROGRAM {
            return None;
        }
        // A match that begins at the end of one piece continues in the next.
        let keep = held.len().min(512);
        let end = held.len();
        piece.copy_within(end - keep..end, 0);
        kept = keep;
    }
}

/// A registry's description of itself.
#[derive(Deserialize)]
pub(super) struct Described {
    dl: Option<String>,
    api: Option<String>,
}

impl Described {
    /// The URLs that files and the API are at.
    pub(super) fn urls(&self) -> Vec<Url> {
        // `dl` may be a pattern such as `https://files.example/{crate}`.
        [&self.dl, &self.api].into_iter().flatten().filter_map(|text| Url::parse(text).ok()).collect()
    }
}

/// What cargo has cached of an index that it fetched before.
fn remembered(place: &ToolLocation, index: &mut Index) {
    let Some(host) = index.url.host_str() else { return };
    let folders = homes(place).into_iter().map(|home| format!("{home}/registry/index/{host}-*"));
    for folder in folders.flat_map(|pattern| place.tree.paths(&pattern)) {
        let text = place.tree.text(&format!("{folder}/config.json"));
        if let Some(known) = text.and_then(|text| serde_json::from_str::<Described>(&text).ok()) {
            index.files.extend(known.urls().iter().filter_map(|url| entry(url, None)));
        }
    }
}

/// What cargo uses here.
pub(super) fn find(place: &ToolLocation) -> Found {
    let tables = tables(place);
    let mut found = Found::default();
    found.add_all(replacement(&tables));
    found.add_all(others(place, &tables));
    if !found.has_main() {
        let open = |path: String| place.tree.file(&path, MOST_PROGRAM);
        let mut opened = programs(place).into_iter().filter_map(open).take(MOST_PROGRAMS);
        found.add_all(opened.find_map(from_program));
    }
    found.indexes.iter_mut().for_each(|index| remembered(place, index));
    found
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, *};

    #[test]
    fn the_program_tells_where_nothing_is_set() {
        let program = "\u{7f}ELFsparse+https://ihalf_ofitsparse+https://index.example.com/nextstring";
        for path in ["usr/bin/cargo", "home/me/.rustup/toolchains/stable-x/bin/cargo"] {
            let files = [
                (path, program),
                ("home/me/.cargo/bin/cargo", "rustup"),
                (
                    "home/me/.cargo/registry/index/index.example.com-0123/config.json",
                    r#"{"dl":"https://files.example.com/{crate}","api":"https://10.0.0.1/"}"#,
                ),
                (
                    "home/me/.cargo/registry/index/other.example.com-0123/config.json",
                    r#"{"dl":"https://no.example.com"}"#,
                ),
            ];
            let trial = Trial::new(&files);
            let found =
                find(&trial.machine(&[("HOME", "/home/me"), ("PATH", "/home/me/.cargo/bin:/usr/bin")]));
            assert_eq!(found.urls(), ["https://index.example.com/"], "{path}");
            let files: Vec<_> = found.indexes[0].files.iter().map(ToString::to_string).collect();
            assert_eq!(files, ["files.example.com:443"]);
        }
    }

    #[test]
    fn what_lies_across_two_pieces_is_found() {
        for before in [(1 << 20) - 20, (1 << 20) - 1, 1 << 20, (1 << 20) - 40] {
            let mut program = vec![b'x'; before];
            program.extend_from_slice(b"sparse+https://index.example.com/");
            program.extend_from_slice(&[b'y'; 100]);
            let found = from_program(program.as_slice()).unwrap();
            assert_eq!(found.url.as_str(), "https://index.example.com/", "{before}");
        }
        assert_eq!(from_program(&b"sparse+https://nodot/"[..]), None);
        assert_eq!(from_program(&b"sparse+https://a.example"[..]), None);
    }

    #[test]
    fn settings_replace_what_is_built_in() {
        let config = "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"b\"\n[source.b]\nregistry = \"sparse+https://u:p@mirror.example/index/\"\n[registries.team]\nindex = \"sparse+https://team.example/index/\"\n";
        let trial = Trial::new(&[
            ("usr/bin/cargo", "sparse+https://index.example.com/"),
            ("root/.cargo/config.toml", config),
        ]);
        let found = find(&trial.machine(&[("CARGO_REGISTRIES_ENV_INDEX", "https://env.example/git")]));
        let expected =
            ["https://mirror.example/index/", "https://team.example/index/", "https://env.example/git"];
        assert_eq!(found.urls(), expected);
        assert!(found.indexes[0].credentials && !found.indexes[0].built_in);
    }

    #[test]
    fn nonsense_and_nothing_are_nothing() {
        for config in [
            "",
            "= [",
            "[source.crates-io]\nreplace-with = \"a\"\n[source.a]\nreplace-with = \"crates-io\"\n",
            "[source.crates-io]\nreplace-with = 3\n",
        ] {
            let trial = Trial::new(&[("root/.cargo/config.toml", config), ("usr/bin/cargo", "nothing")]);
            assert_eq!(find(&trial.machine(&[])).indexes, [], "{config:?}");
        }
    }
}
