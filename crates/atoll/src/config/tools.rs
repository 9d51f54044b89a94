//! Tool sessions' configuration for this machine: the public URL of the server, and the folders that files
//! may be imported from. Without them there are no links and no imports.

use super::{variable, wrong};
use atoll_types::Result;
use serde::Deserialize;
use std::path::PathBuf;

/// The section `[tools]` of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    server_url: Option<String>,
    import_dirs: Vec<PathBuf>,
}

/// Tool sessions' configuration for this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolsConfig {
    /// Without a slash at its end.
    pub(crate) server_url: Option<String>,
    pub(crate) import_dirs: Vec<PathBuf>,
}

impl File {
    pub(super) fn settings(self) -> Result<ToolsConfig> {
        let named = variable("ATOLL_TOOLS_IMPORT_DIRS").map(|text| {
            text.split(',').map(str::trim).filter(|dir| !dir.is_empty()).map(PathBuf::from).collect()
        });
        let import_dirs: Vec<PathBuf> = named.unwrap_or(self.import_dirs);
        if let Some(relative) = import_dirs.iter().find(|dir| !dir.is_absolute()) {
            let why = format!("{} is not an absolute path", relative.display());
            return Err(wrong("tools.import_dirs", why));
        }
        let server_url = variable("ATOLL_TOOLS_SERVER_URL").or(self.server_url);
        let web = |url: &&String| {
            let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            host.is_some_and(|host| !host.is_empty() && !host.contains(['?', '#', ' ', '"']))
        };
        if let Some(url) = server_url.iter().find(|url| !web(url)) {
            return Err(wrong(
                "tools.server_url",
                format!("{url:?} is no address such as https://atoll.example"),
            ));
        }
        let server_url = server_url.map(|url| url.trim_end_matches('/').to_owned());
        Ok(ToolsConfig { server_url, import_dirs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<ToolsConfig> {
        toml::from_str::<File>(text).unwrap().settings()
    }

    #[test]
    fn addresses_and_folders_are_checked() {
        assert_eq!(of("").unwrap(), ToolsConfig::default());
        let good = of("server_url = \"https://atoll.example/\"\nimport_dirs = [\"/srv/data\"]").unwrap();
        assert_eq!(good.server_url.as_deref(), Some("https://atoll.example"));
        assert_eq!(good.import_dirs, [PathBuf::from("/srv/data")]);
        for wrong in
            ["server_url = \"atoll.example\"", "server_url = \"http://\"", "import_dirs = [\"data\"]"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
