//! A company's mirror, inside of sandboxes. Where the machine is set to another index, tools inside use it too,
//! although the image's settings do not name it.
//!
//! By variable: pip, uv and npm. cargo takes no variable for the replacement of a source and R none for its
//! repositories, so these get a file each. npm's registries of a scope and cargo's named registries are set by
//! their projects: their hosts are in the presets, and no more is passed. A URL that holds credentials is not
//! passed at all: without them it would not work, and with them a sandbox would have them.

use super::{
    Ecosystem, Findings,
    index::{Index, Role, Tool},
};

/// The settings for tools inside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Variables.
    pub variables: Vec<(String, String)>,
    /// Files: where, what is in them, and the variable that names each to its tool where it needs one. A
    /// variable must not be set without its file.
    pub files: Vec<SettingsFile>,
}

/// A file for a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsFile {
    /// Where it must be, inside.
    pub path: &'static str,
    /// What is in it.
    pub text: String,
    /// What must be set for the tool to read it.
    pub variable: Option<(&'static str, &'static str)>,
}

/// cargo looks for settings in every folder above the one it works in, and this is above them all.
const CARGO: &str = "/.cargo/config.toml";
const R: &str = "/etc/atoll/Rprofile.site";

fn passed(machine: &Findings, ecosystem: Ecosystem, tool: Tool) -> impl Iterator<Item = &Index> {
    let found = machine.found.get(&ecosystem).into_iter().flat_map(|found| &found.indexes);
    found.filter(move |index| index.tool == tool && !index.credentials)
}

fn urls(machine: &Findings, ecosystem: Ecosystem, tool: Tool, role: Role) -> Vec<&str> {
    let set = passed(machine, ecosystem, tool).filter(|index| index.role == role && !index.built_in);
    set.map(|index| index.url.as_str()).collect()
}

fn python(machine: &Findings) -> Vec<(String, String)> {
    let of = |tool, role| urls(machine, Ecosystem::Python, tool, role).join(" ");
    let pip = (of(Tool::Pip, Role::Main), of(Tool::Pip, Role::Extra));
    let uv = (of(Tool::Uv, Role::Main), of(Tool::Uv, Role::Extra));
    // An operator who set one of the two means both.
    let or = |own: &String, other: &String| if own.is_empty() { other.clone() } else { own.clone() };
    let variables = [
        ("PIP_INDEX_URL", or(&pip.0, &uv.0)),
        ("PIP_EXTRA_INDEX_URL", or(&pip.1, &uv.1)),
        ("UV_DEFAULT_INDEX", or(&uv.0, &pip.0)),
        ("UV_INDEX", or(&uv.1, &pip.1)),
    ];
    let set = variables.into_iter().filter(|(_, value)| !value.is_empty());
    set.map(|(name, value)| (name.to_owned(), value)).collect()
}

fn cargo(machine: &Findings) -> Option<SettingsFile> {
    let set = |index: &&Index| index.role == Role::Main && !index.built_in;
    let Index { url, git, .. } = passed(machine, Ecosystem::Rust, Tool::Cargo).find(set)?;
    let kind = if *git { "" } else { "sparse+" };
    let text = format!(
        "[source.crates-io]\nreplace-with = \"mirror\"\n\n[source.mirror]\nregistry = \"{kind}{url}\"\n"
    );
    Some(SettingsFile { path: CARGO, text, variable: None })
}

/// R has no repository until a profile sets one, and an image may have none, so the built-in one is passed too;
/// but only a setting of the machine replaces an image's.
fn r(machine: &Findings) -> Option<SettingsFile> {
    let Index { url, built_in, .. } = passed(machine, Ecosystem::R, Tool::R).next()?;
    let stronger = if *built_in { "FALSE" } else { "TRUE" };
    let text = format!(
        "local({{\n  site <- file.path(R.home(\"etc\"), \"Rprofile.site\")\n  \
         if (file.exists(site)) sys.source(site, envir = baseenv())\n  \
         r <- getOption(\"repos\")\n  \
         if ({stronger} || is.null(r) || is.na(r[\"CRAN\"]) || r[\"CRAN\"] == \"@CRAN@\") {{\n    \
         r[\"CRAN\"] <- \"{url}\"\n    options(repos = r)\n  }}\n}})\n"
    );
    Some(SettingsFile { path: R, text, variable: Some(("R_PROFILE", R)) })
}

/// The settings by which tools inside use the same indexes as the machine.
#[must_use]
pub fn mirrors(machine: &Findings) -> Settings {
    let mut variables = python(machine);
    let npm = urls(machine, Ecosystem::Node, Tool::Npm, Role::Main);
    variables.extend(npm.first().map(|url| ("NPM_CONFIG_REGISTRY".to_owned(), (*url).to_owned())));
    // R itself reads no such variable; Atoll's kernels and installs do, where no repository is set.
    let r_index = passed(machine, Ecosystem::R, Tool::R).next();
    variables.extend(r_index.map(|index| ("ATOLL_R_REPOSITORY".to_owned(), index.url.to_string())));
    Settings { variables, files: cargo(machine).into_iter().chain(r(machine)).collect() }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{learn, trial::Trial},
        *,
    };

    fn settings_of(trial: &Trial) -> Settings {
        mirrors(&learn(&trial.machine(&[])))
    }

    #[test]
    fn what_the_machine_is_set_to_is_passed() {
        let trial = Trial::new(&[
            (
                "etc/pip.conf",
                "[global]\nindex-url = https://mirror.example/simple\nextra-index-url = https://a.example/s https://u:p@b.example/s\n",
            ),
            ("root/.npmrc", "registry=https://npm.example/\n@s:registry=https://s.example/\n"),
            (
                "root/.cargo/config.toml",
                "source.crates-io.replace-with='m'\nsource.m.registry='sparse+https://c.example/i/'\n",
            ),
            ("etc/R/Rprofile.site", "options(repos = c(CRAN = 'https://cran.example'))\n"),
        ]);
        let Settings { variables, files } = settings_of(&trial);
        let variables: Vec<_> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let expected = [
            ("PIP_INDEX_URL", "https://mirror.example/simple"),
            ("PIP_EXTRA_INDEX_URL", "https://a.example/s"),
            ("UV_DEFAULT_INDEX", "https://mirror.example/simple"),
            ("UV_INDEX", "https://a.example/s"),
            ("NPM_CONFIG_REGISTRY", "https://npm.example/"),
            ("ATOLL_R_REPOSITORY", "https://cran.example/"),
        ];
        assert_eq!(variables, expected);
        assert!(files[0].text.contains("registry = \"sparse+https://c.example/i/\""));
        assert!(
            files[1].text.contains("r[\"CRAN\"] <- \"https://cran.example/\"")
                && files[1].text.contains("(TRUE")
        );
    }

    #[test]
    fn credentials_and_what_is_built_in_are_not() {
        let trial = Trial::new(&[
            ("etc/pip.conf", "[global]\nindex-url = https://user:secret@mirror.example/simple\n"),
            ("root/.npmrc", "registry=https://user:secret@npm.example/\n"),
            (
                "root/.cargo/config.toml",
                "source.crates-io.replace-with='m'\nsource.m.registry='sparse+https://u:secret@c.example/'\n",
            ),
            ("usr/lib/R/doc/CRAN_mirrors.csv", "x\n0-Cloud,https://cloud.example/,y\n"),
        ]);
        let Settings { variables, files } = settings_of(&trial);
        let cloud = ("ATOLL_R_REPOSITORY".to_owned(), "https://cloud.example/".to_owned());
        assert_eq!(variables, [cloud]);
        assert_eq!(files.len(), 1);
        assert!(files[0].text.contains("https://cloud.example/") && files[0].text.contains("(FALSE"));
    }
}
