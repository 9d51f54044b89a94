//! Which indexes pip and uv use: their settings, or what is written in pip's own source.

use super::{
    Found,
    index::{Index, Role, Tool, entry},
    ini::{Setting, settings, unquoted},
    tool_location::ToolLocation,
};
use toml::{Table, Value};
use url::Url;

/// What is set for one tool: the last value for the main index, and all others.
#[derive(Default)]
struct ToolConfig {
    main: Option<String>,
    extra: Vec<String>,
    links: Vec<String>,
}

impl ToolConfig {
    /// A value is one URL, or several with blanks between; uv puts commas between some.
    fn say(&mut self, key: &str, value: &str) {
        let words = || {
            let parts = value.split(|c: char| c.is_whitespace() || c == ',');
            parts.filter(|word| !word.is_empty()).map(|word| unquoted(word).to_owned())
        };
        match key {
            "index-url" | "default-index" => self.main = words().next().or(self.main.take()),
            "extra-index-url" | "index" => self.extra.extend(words()),
            "find-links" => self.links.extend(words()),
            _ => {}
        }
    }

    fn indexes(self, tool: Tool) -> Found {
        let mut found = Found::default();
        for (role, texts) in
            [(Role::Main, Vec::from_iter(self.main)), (Role::Extra, self.extra), (Role::Other, self.links)]
        {
            found.add_all(texts.iter().filter_map(|text| Index::read(tool, role, text)));
        }
        found
    }
}

/// pip's files, the weaker first: the machine's, the user's, the installation's, and the one that a
/// variable names.
fn pip_files(place: &ToolLocation) -> Vec<String> {
    let named = place.variable("PIP_CONFIG_FILE").map(str::to_owned);
    // With this value pip reads no file.
    if named.as_deref() == Some("/dev/null") {
        return Vec::new();
    }
    let folders = place.variable("XDG_CONFIG_DIRS").unwrap_or("/etc/xdg");
    let mut files: Vec<String> = folders.split(':').take(8).map(|f| format!("{f}/pip/pip.conf")).collect();
    files.push("/etc/pip.conf".to_owned());
    files.extend(place.home(".pip/pip.conf"));
    files.extend(place.config("pip/pip.conf"));
    files.extend(place.prefixes().into_iter().rev().map(|prefix| format!("{prefix}/pip.conf")));
    files.extend(named);
    files
}

fn pip(place: &ToolLocation) -> Found {
    let mut said = ToolConfig::default();
    for file in pip_files(place) {
        for Setting { section, key, value } in settings(&place.tree.text(&file).unwrap_or_default(), true) {
            if matches!(section.as_str(), "global" | "install" | "download") {
                said.say(&key.to_ascii_lowercase().replace('_', "-"), &value);
            }
        }
    }
    for (name, key) in [
        ("PIP_INDEX_URL", "index-url"),
        ("PIP_EXTRA_INDEX_URL", "extra-index-url"),
        ("PIP_FIND_LINKS", "find-links"),
    ] {
        said.say(key, place.variable(name).unwrap_or_default());
    }
    said.indexes(Tool::Pip)
}

fn uv(place: &ToolLocation) -> Found {
    let mut said = ToolConfig::default();
    let mut files = vec!["/etc/uv/uv.toml".to_owned()];
    files.extend(place.config("uv/uv.toml"));
    files.extend(place.variable("UV_CONFIG_FILE").map(str::to_owned));
    for file in files {
        if let Some(table) = place.tree.text(&file).and_then(|text| text.parse::<Table>().ok()) {
            uv_table(&mut said, &table);
            if let Some(Value::Table(table)) = table.get("pip") {
                uv_table(&mut said, table);
            }
        }
    }
    for (name, key) in [
        ("UV_INDEX_URL", "index-url"),
        ("UV_DEFAULT_INDEX", "default-index"),
        ("UV_EXTRA_INDEX_URL", "extra-index-url"),
        ("UV_INDEX", "index"),
        ("UV_FIND_LINKS", "find-links"),
    ] {
        said.say(key, place.variable(name).unwrap_or_default());
    }
    // An index may have a name: `name=https://…`.
    for text in said.main.iter_mut().chain(&mut said.extra) {
        if let Some((name, url)) = text.split_once('=')
            && !name.contains(':')
        {
            *text = url.to_owned();
        }
    }
    said.indexes(Tool::Uv)
}

fn uv_table(said: &mut ToolConfig, table: &Table) {
    for key in ["index-url", "extra-index-url", "find-links"] {
        match table.get(key) {
            Some(Value::String(text)) => said.say(key, text),
            Some(Value::Array(texts)) => {
                texts.iter().filter_map(Value::as_str).for_each(|text| said.say(key, text));
            }
            _ => {}
        }
    }
    for index in table.get("index").and_then(Value::as_array).into_iter().flatten() {
        let main = index.get("default").and_then(Value::as_bool) == Some(true);
        if let Some(url) = index.get("url").and_then(Value::as_str) {
            said.say(if main { "index-url" } else { "index" }, url);
        }
    }
}

/// Paths that may hold pip, of all that an image may contain.
const MOST_PLACES: usize = 1024;

/// Where pip's own source may be, the one that is run first.
fn sources(place: &ToolLocation) -> Vec<String> {
    let mut patterns = Vec::new();
    for prefix in place.prefixes() {
        patterns.push(format!("{prefix}/lib/python3*/site-packages"));
        patterns.push(format!("{prefix}/lib/python3*/dist-packages"));
        patterns.push(format!("{prefix}/lib64/python3*/site-packages"));
    }
    patterns.extend(place.home(".pyenv/versions/*/lib/python3*/site-packages"));
    patterns.extend(place.home(".local/lib/python3*/site-packages"));
    patterns.push("/opt/*/lib/python3*/site-packages".to_owned());
    patterns.iter().flat_map(|pattern| place.tree.paths(pattern)).take(MOST_PLACES).collect()
}

/// The text between the first two quotes.
fn quoted(text: &str) -> Option<&str> {
    let start = text.find(['"', '\''])?;
    let quote = text.as_bytes()[start] as char;
    text[start + 1..].split(quote).next()
}

/// Parses `PyPI = PackageIndex("https://…/", file_storage_domain="…")`.
fn from_source(text: &str) -> Option<Index> {
    let call = text.split("\nPyPI = ").nth(1)?;
    let call = &call[..call.find(')')?];
    let mut found = Index::built_in(Tool::Pip, quoted(call)?)?;
    found.url = found.url.join("simple/").ok()?;
    if let Some(domain) = call.split("file_storage_domain=").nth(1).and_then(quoted) {
        let files = Url::parse(&format!("https://{domain}/")).ok();
        found.files.extend(files.and_then(|url| entry(&url, None)));
    }
    Some(found)
}

/// What pip and uv use here.
pub(super) fn find(place: &ToolLocation) -> Found {
    let mut found = pip(place);
    found.add_all(uv(place).indexes);
    if !found.has_main() {
        let text = |folder: String| {
            let here = format!("{folder}/pip/_internal/models/index.py");
            place.tree.text(&here).or_else(|| place.tree.text(&format!("{folder}/pip/models/index.py")))
        };
        found.add_all(sources(place).into_iter().filter_map(text).find_map(|text| from_source(&text)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, *};

    const SOURCE: &str = "class PackageIndex:\n    pass\n\n\nPyPI = PackageIndex(\n    \"https://index.example/\", file_storage_domain=\"files.example.com\"\n)\nTestPyPI = PackageIndex(\"https://test.example/\", file_storage_domain=\"t.example\")\n";

    #[test]
    fn the_source_of_pip_tells_where_nothing_is_set() {
        for path in [
            "usr/lib/python3/dist-packages/pip/_internal/models/index.py",
            "opt/venv/lib/python3.12/site-packages/pip/_internal/models/index.py",
            "home/me/.pyenv/versions/3.9/lib/python3.9/site-packages/pip/models/index.py",
        ] {
            let trial = Trial::new(&[(path, SOURCE)]);
            let found = find(&trial.machine(&[("HOME", "/home/me"), ("PATH", "/opt/venv/bin:/usr/bin")]));
            assert_eq!(found.urls(), ["https://index.example/simple/"], "{path}");
            assert!(found.indexes[0].built_in);
            assert_eq!(found.indexes[0].files[0].to_string(), "files.example.com:443");
        }
    }

    #[test]
    fn settings_replace_what_is_built_in_and_the_stronger_wins() {
        let trial = Trial::new(&[
            ("usr/lib/python3/dist-packages/pip/_internal/models/index.py", SOURCE),
            ("etc/pip.conf", "[global]\nindex-url = https://weak.example/simple\n"),
            (
                "home/me/.config/pip/pip.conf",
                "[global]\n# index-url = https://no.example/\nindex_url = https://mirror.example/simple\nextra-index-url =\n    https://one.example/simple\n    https://me:pw@two.example/simple\nfind-links = /opt/wheels https://wheels.example/page\n[list]\nindex-url = https://other.example/\n",
            ),
        ]);
        let found = find(&trial.machine(&[("HOME", "/home/me")]));
        let expected = [
            "https://mirror.example/simple",
            "https://one.example/simple",
            "https://two.example/simple",
            "https://wheels.example/page",
        ];
        assert_eq!(found.urls(), expected);
        assert_eq!(
            found.indexes.iter().map(|i| i.credentials).collect::<Vec<_>>(),
            [false, false, true, false]
        );
        let env = [("HOME", "/home/me"), ("PIP_INDEX_URL", "https://env.example/simple")];
        assert_eq!(find(&trial.machine(&env)).urls()[0], "https://env.example/simple");
        let none = [("HOME", "/home/me"), ("PIP_CONFIG_FILE", "/dev/null")];
        assert_eq!(find(&trial.machine(&none)).urls(), ["https://index.example/simple/"]);
    }

    #[test]
    fn uv_has_settings_of_its_own() {
        let text = "extra-index-url = [\"https://x.example/simple\"]\n[[index]]\nname = \"m\"\nurl = \"https://m.example/simple\"\ndefault = true\n[[index]]\nurl = \"https://n.example/simple\"\n";
        let trial = Trial::new(&[("etc/uv/uv.toml", text)]);
        let found = find(&trial.machine(&[("UV_INDEX", "named=https://v.example/simple")]));
        let expected = [
            "https://m.example/simple",
            "https://x.example/simple",
            "https://n.example/simple",
            "https://v.example/simple",
        ];
        assert_eq!(found.urls(), expected);
    }

    #[test]
    fn nonsense_and_nothing_are_nothing() {
        let path = "usr/lib/python3/dist-packages/pip/_internal/models/index.py";
        for text in [
            "",
            "\nPyPI = ",
            "\nPyPI = PackageIndex(",
            "\nPyPI = X(\"",
            "\nPyPI = X('nonsense')",
            "é\nPyPI = é\"é)",
        ] {
            let trial = Trial::new(&[
                (path, text),
                ("etc/pip.conf", "[global]\nindex-url\n[\n=x"),
                ("etc/uv/uv.toml", "= ["),
            ]);
            assert_eq!(find(&trial.machine(&[])).indexes, [], "{text:?}");
        }
    }
}
