//! Which registries npm uses: its settings, or what is written in its own source.

use super::{
    Found,
    index::{Index, Role, Tool},
    ini::{Setting, settings, unquoted},
    tool_location::ToolLocation,
};

/// Where npm keeps its defaults, by version.
const DEFAULTS: &[&str] = &[
    "node_modules/@npmcli/config/lib/definitions/definitions.js",
    "lib/utils/config/definitions.js",
    "lib/config/defaults.js",
];

/// The folders of npm itself, the one that is run first.
fn folders(place: &ToolLocation) -> Vec<String> {
    let mut folders: Vec<String> =
        place.prefixes().iter().map(|prefix| format!("{prefix}/lib/node_modules/npm")).collect();
    folders.extend(place.tree.paths("/usr/share/nodejs/npm"));
    for pattern in [".nvm/versions/node/*/lib/node_modules/npm", ".local/lib/node_modules/npm"] {
        folders.extend(place.home(pattern).flat_map(|pattern| place.tree.paths(&pattern)));
    }
    folders.extend(place.tree.paths("/opt/*/lib/node_modules/npm"));
    folders
}

/// A setting by variable: npm takes the name in any case.
fn variable<'a>(place: &'a ToolLocation, name: &str) -> Option<&'a str> {
    let fits = |found: &str| {
        found.len() > 11 && found.is_char_boundary(11) && {
            let (head, tail) = found.split_at(11);
            head.eq_ignore_ascii_case("npm_config_") && tail.eq_ignore_ascii_case(name)
        }
    };
    place.variables().find(|(n, v)| fits(n) && !v.is_empty()).map(|(_, value)| value)
}

/// npm's files, the weaker first: those beside npm, the machine's, the user's.
fn files(place: &ToolLocation, folders: &[String]) -> Vec<String> {
    let mut files: Vec<String> = folders.iter().map(|folder| format!("{folder}/npmrc")).collect();
    match variable(place, "globalconfig") {
        Some(file) => files.push(file.to_owned()),
        None => {
            files.extend(place.prefixes().into_iter().rev().map(|prefix| format!("{prefix}/etc/npmrc")));
            files.push("/etc/npmrc".to_owned());
        }
    }
    match variable(place, "userconfig") {
        Some(file) => files.push(file.to_owned()),
        None => files.extend(place.home(".npmrc")),
    }
    files
}

/// Fills `${NAME}` in, as npm does. A name that is not set stays, and then it is no URL.
fn filled(place: &ToolLocation, value: &str) -> String {
    let mut filled = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            rest = after;
            break;
        };
        filled.push_str(place.variable(name).unwrap_or("${}"));
        rest = after;
    }
    filled + rest
}

/// The default in npm's source: `registry: new Definition('registry', { default: 'https://…'`, or
/// `registry: 'https://…'` as it was.
fn from_source(text: &str) -> Option<Index> {
    let quoted = |text: &str| text.trim_start().strip_prefix('\'')?.split('\'').next().map(str::to_owned);
    let defined = |text: &str| {
        let inside = text.split("('registry',").nth(1)?;
        let inside = &inside[..inside.find("\n})").or_else(|| inside.find("\n  })"))?];
        quoted(inside.split("default:").nth(1)?)
    };
    let plain =
        |text: &str| text.lines().find_map(|line| quoted(line.trim_start().strip_prefix("registry:")?));
    Index::built_in(Tool::Npm, &defined(text).or_else(|| plain(text))?)
}

/// What npm uses here.
pub(super) fn find(place: &ToolLocation) -> Found {
    let folders = folders(place);
    let mut main = None;
    let mut scoped = Vec::new();
    for file in files(place, &folders) {
        for Setting { section, key, value } in settings(&place.tree.text(&file).unwrap_or_default(), false) {
            let value = || filled(place, unquoted(&value));
            match unquoted(&key) {
                "registry" if section.is_empty() => main = Some(value()),
                key if key.starts_with('@') && key.ends_with(":registry") => scoped.push(value()),
                _ => {}
            }
        }
    }
    let main = variable(place, "registry").map(str::to_owned).or(main);
    let mut found = Found::default();
    found.add_all(main.and_then(|text| Index::read(Tool::Npm, Role::Main, &text)));
    found.add_all(scoped.iter().filter_map(|text| Index::read(Tool::Npm, Role::Other, text)));
    if !found.has_main() {
        let texts = |folder: String| DEFAULTS.iter().map(move |file| format!("{folder}/{file}"));
        // Debian keeps npm's libraries beside it.
        let debian = "/usr/share/nodejs/@npmcli/config/lib/definitions/definitions.js".to_owned();
        let mut paths = folders.into_iter().flat_map(texts).chain([debian]);
        found.add_all(paths.find_map(|path| from_source(&place.tree.text(&path)?)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, *};

    const SOURCE: &str = "  'read-only': new Definition('read-only', {\n    default: false,\n  }),\n  registry: new Definition('registry', {\n    default: 'https://registry.example/',\n    type: url,\n  }),\n  other: new Definition('other', {\n    default: 'https://other.example/',\n  }),\n";
    const AT: &str = "usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js";

    #[test]
    fn the_source_of_npm_tells_where_nothing_is_set() {
        let trial = Trial::new(&[(AT, SOURCE), ("etc/npmrc", "fund=false\n")]);
        assert_eq!(find(&trial.machine(&[])).urls(), ["https://registry.example/"]);
        let old = "define('registry', {\n  default: 'https://old.example/',\n})\n";
        let trial = Trial::new(&[("usr/local/lib/node_modules/npm/lib/utils/config/definitions.js", old)]);
        assert_eq!(find(&trial.machine(&[])).urls(), ["https://old.example/"]);
        let older = "  'read-only': false,\n    registry: 'https://older.example/',\n";
        let trial = Trial::new(&[("usr/share/nodejs/npm/lib/config/defaults.js", older)]);
        assert_eq!(find(&trial.machine(&[])).urls(), ["https://older.example/"]);
    }

    #[test]
    fn settings_replace_what_is_built_in_and_the_stronger_wins() {
        let trial = Trial::new(&[
            (AT, SOURCE),
            ("usr/etc/npmrc", "registry=https://weak.example/\n"),
            (
                "home/me/.npmrc",
                "; registry=https://no.example/\nregistry = \"https://${WHO}.example/npm/\"\n@team:registry=https://team.example/\n//team.example/:_authToken=secret\n@bad:registry=${UNSET}/x\n",
            ),
        ]);
        let env = [("HOME", "/home/me"), ("WHO", "mirror")];
        let found = find(&trial.machine(&env));
        assert_eq!(found.urls(), ["https://mirror.example/npm/", "https://team.example/"]);
        let env = [("HOME", "/home/me"), ("Npm_Config_REGISTRY", "https://env.example/")];
        assert_eq!(find(&trial.machine(&env)).urls()[0], "https://env.example/");
    }

    #[test]
    fn nonsense_and_nothing_are_nothing() {
        for text in [
            "",
            "('registry',",
            "('registry',\n default: 'x\n})",
            "registry: 'nonsense'",
            "registry: 'ftp://a.example/'",
        ] {
            let trial = Trial::new(&[(AT, text), ("etc/npmrc", "registry=\nregistry=${\n=x\n")]);
            assert_eq!(find(&trial.machine(&[])).indexes, [], "{text:?}");
        }
    }
}
