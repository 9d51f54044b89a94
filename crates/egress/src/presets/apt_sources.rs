//! The archives of the machine's own release, as a build of an image from packages uses them. Other archives that the
//! machine has are left out, and so is one whose address holds credentials: a sandbox would see them.

use super::{
    index::{Index, Role, Tool},
    tool_location::ToolLocation,
};
use serde::{Deserialize, Serialize};

/// Where keyrings are that a sandbox of the machine's image has too.
const KEYRINGS: &str = "/usr/share/keyrings/";
/// The longest text that is passed on.
const LONGEST: usize = 16 << 10;

/// The archives of a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AptSources {
    /// The release, such as bookworm.
    pub suite: String,
    /// apt's sources in the deb822 format.
    pub text: String,
}

/// A source, in either format.
#[derive(Default)]
struct Source {
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    signed_by: Option<String>,
    skipped: bool,
}

fn is_no(value: &str) -> bool {
    ["no", "false", "off", "without", "disable", "0"].contains(&value.trim().to_ascii_lowercase().as_str())
}

/// `deb [options] uri suite component …`
fn line(text: &str) -> Option<Source> {
    let rest = text.split('#').next()?.trim().strip_prefix("deb")?;
    let mut rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let mut source = Source::default();
    if let Some(options) = rest.strip_prefix('[') {
        let (options, after) = options.split_once(']')?;
        source.signed_by =
            options.split_whitespace().find_map(|one| one.strip_prefix("signed-by=")).map(str::to_owned);
        rest = after;
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    (source.uris, source.suites) = (vec![words.next()?], vec![words.next()?]);
    source.components = words.collect();
    Some(source)
}

fn paragraph(lines: &[&str]) -> Source {
    let mut source = Source::default();
    let mut field = String::new();
    for line in lines {
        let value = if line.starts_with([' ', '\t']) {
            *line
        } else {
            let Some((name, value)) = line.split_once(':') else { continue };
            field = name.trim().to_ascii_lowercase();
            value
        };
        let words = || value.split_whitespace().map(str::to_owned);
        match field.as_str() {
            "uris" => source.uris.extend(words()),
            "suites" => source.suites.extend(words()),
            "components" => source.components.extend(words()),
            "types" => source.skipped |= !words().any(|kind| kind == "deb"),
            "enabled" => source.skipped |= is_no(value),
            // A key in the text itself goes over several lines.
            "signed-by" => {
                let so_far = source.signed_by.take().map(|text| text + "\n").unwrap_or_default();
                source.signed_by = Some(so_far + value.trim_end());
            }
            _ => {}
        }
    }
    source
}

impl Source {
    /// As a paragraph with what belongs to a release; none where nothing does.
    fn of(&self, suite: &str, keyring: Option<&str>) -> Option<String> {
        let own = |name: &&String| **name == suite || name.starts_with(&format!("{suite}-"));
        let suites: Vec<&str> = self.suites.iter().filter(own).map(String::as_str).collect();
        let plain = |uri: &&String| {
            ["http://", "https://"].iter().any(|scheme| uri.starts_with(scheme))
                && Index::read(Tool::Apt, Role::Main, uri).is_some_and(|index| !index.credentials)
        };
        let uris: Vec<&str> = self.uris.iter().filter(plain).map(String::as_str).collect();
        if self.skipped || suites.is_empty() || uris.is_empty() || self.components.is_empty() {
            return None;
        }
        let signed = match &self.signed_by {
            Some(said) if said.trim().starts_with(KEYRINGS) || said.contains("BEGIN PGP") => {
                Some(said.trim_start_matches([' ', '\t']).to_owned())
            }
            _ => keyring.map(str::to_owned),
        };
        let signed = signed.map(|by| format!("Signed-By: {by}\n")).unwrap_or_default();
        let (uris, suites, components) = (uris.join(" "), suites.join(" "), self.components.join(" "));
        Some(format!("Types: deb\nURIs: {uris}\nSuites: {suites}\nComponents: {components}\n{signed}"))
    }
}

/// A value of /etc/os-release.
fn release(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    let value = value.trim().trim_matches('"');
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (!value.is_empty() && value.chars().all(plain)).then(|| value.to_owned())
}

/// The archives of a place's own release; none where it is not Debian or one that is made of it.
pub(super) fn find(place: &ToolLocation) -> Option<AptSources> {
    let tree = &place.tree;
    let told = tree.text("/etc/os-release").or_else(|| tree.text("/usr/lib/os-release"))?;
    let suite = release(&told, "VERSION_CODENAME")?;
    let keyring = release(&told, "ID").map(|id| format!("{KEYRINGS}{id}-archive-keyring.gpg"));
    let keyring = keyring.filter(|path| tree.file(path, 16 << 20).is_some());
    let lists = [vec!["/etc/apt/sources.list".to_owned()], tree.paths("/etc/apt/sources.list.d/*.list")];
    let mut found: Vec<Source> = Vec::new();
    for text in lists.concat().iter().filter_map(|path| tree.text(path)) {
        found.extend(text.lines().filter_map(line));
    }
    for text in tree.paths("/etc/apt/sources.list.d/*.sources").iter().filter_map(|path| tree.text(path)) {
        found.extend(super::debian::blocks(&text).iter().map(|lines| paragraph(lines)));
    }
    let text = found.iter().filter_map(|source| source.of(&suite, keyring.as_deref())).collect::<Vec<_>>();
    let text = text.join("\n");
    (!text.is_empty() && text.len() <= LONGEST).then_some(AptSources { suite, text })
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, *};

    const RELEASE: (&str, &str) = ("etc/os-release", "NAME=\"X\"\nID=debian\nVERSION_CODENAME=bookworm\n");

    #[test]
    fn archives_of_the_release_are_passed_and_others_are_not() {
        let trial = Trial::new(&[
            RELEASE,
            ("usr/share/keyrings/debian-archive-keyring.gpg", "key"),
            (
                "etc/apt/sources.list",
                "deb http://a.example/debian bookworm main contrib # more\ndeb-src http://no.example/debian bookworm main\n\
                 deb [signed-by=/etc/apt/keyrings/x.gpg] https://u:p@no.example/debian bookworm main\n\
                 deb https://no.example/apt tool-bookworm main\n",
            ),
            (
                "etc/apt/sources.list.d/debian.sources",
                "Types: deb\nURIs: http://b.example/debian\nSuites: bookworm bookworm-updates trixie\nComponents: main\n\
                 Signed-By: /usr/share/keyrings/other.gpg\n\nTypes: deb\nEnabled: no\nURIs: http://no.example\nSuites: bookworm\nComponents: main\n",
            ),
        ]);
        let AptSources { suite, text } = find(&trial.machine(&[])).unwrap();
        assert_eq!(suite, "bookworm");
        assert_eq!(
            text,
            "Types: deb\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main contrib\n\
             Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\
             Types: deb\nURIs: http://b.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
             Signed-By: /usr/share/keyrings/other.gpg\n"
        );
    }

    #[test]
    fn a_machine_of_another_kind_has_none() {
        assert_eq!(find(&Trial::new(&[RELEASE]).machine(&[])), None);
        let other = Trial::new(&[
            ("etc/os-release", "ID=x\n"),
            ("etc/apt/sources.list", "deb http://a.example x y\n"),
        ]);
        assert_eq!(find(&other.machine(&[])), None);
        let broken =
            Trial::new(&[RELEASE, ("etc/apt/sources.list.d/x.sources", ":\n x\nURIs\nSuites: bookworm\n")]);
        assert_eq!(find(&broken.machine(&[])), None);
    }
}
