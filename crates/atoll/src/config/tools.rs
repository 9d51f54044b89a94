//! Tool sessions' configuration for this machine: the public URL of the server, the folders that files may be imported from, the
//! usual timeout, and how much output is shown. Without the first two there are no links and no imports. The names that
//! the reference system gives these settings are read as well.

use super::{limits::truth, mcp::value, variable, wrong};
use atoll_core::OutputLimits;
use atoll_types::Result;
use serde::Deserialize;
use std::{ops::RangeInclusive, path::PathBuf};

/// Seconds that a call may name, and so the default of one that names none.
const TIMEOUT_SECONDS: RangeInclusive<u32> = 1..=300;
const USUAL_SECONDS: u32 = 30;
/// What is shown of an output has room for a notice, and a reader.
const CHARACTERS: RangeInclusive<u32> = 100..=1_000_000;

/// The section `[tools]` of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    server_url: Option<String>,
    import_dirs: Vec<PathBuf>,
    timeout_seconds: Option<u32>,
    max_stdout_chars: Option<u32>,
    max_stderr_chars: Option<u32>,
    max_result_chars: Option<u32>,
    max_traceback_chars: Option<u32>,
    execute_as_root: Option<bool>,
}

/// Tool sessions' configuration for this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolsConfig {
    /// Without a slash at its end.
    pub(crate) server_url: Option<String>,
    pub(crate) import_dirs: Vec<PathBuf>,
    /// Of calls that name no timeout.
    pub(crate) timeout_seconds: u32,
    /// How much of what code and commands write is shown.
    pub(crate) output: OutputLimits,
    /// Whether sessions are root inside, where the key's tier has that profile.
    pub(crate) execute_as_root: bool,
}

/// A number: of the own variable, of the reference system's, of the file, or the usual one.
fn number(
    name: &str,
    other: &str,
    file: Option<u32>,
    usual: u32,
    range: &RangeInclusive<u32>,
) -> Result<u32> {
    let at = format!("ATOLL_TOOLS_{}", name.to_uppercase());
    let variable = if variable(&at).is_some() { at.as_str() } else { other };
    let number = value(variable, file)?.unwrap_or(usual);
    match range.contains(&number) {
        true => Ok(number),
        false => {
            let why = format!("must be between {} and {}", range.start(), range.end());
            Err(wrong(&format!("tools.{name}"), why))
        }
    }
}

impl File {
    fn output(&self) -> Result<OutputLimits> {
        let usual = OutputLimits::default();
        let characters = |name: &str, file, usual| {
            number(
                &format!("max_{name}_chars"),
                &format!("MAX_{}_CHARS", name.to_uppercase()),
                file,
                usual,
                &CHARACTERS,
            )
        };
        Ok(OutputLimits {
            stdout: characters("stdout", self.max_stdout_chars, usual.stdout)?,
            stderr: characters("stderr", self.max_stderr_chars, usual.stderr)?,
            result: characters("result", self.max_result_chars, usual.result)?,
            traceback: characters("traceback", self.max_traceback_chars, usual.traceback)?,
            ..usual
        })
    }

    pub(super) fn settings(self) -> Result<ToolsConfig> {
        let own = |name: &str, other: &str| variable(name).or_else(|| variable(other));
        let named = own("ATOLL_TOOLS_IMPORT_DIRS", "IMPORT_ALLOWED_DIRS").map(|text| {
            text.split(',').map(str::trim).filter(|dir| !dir.is_empty()).map(PathBuf::from).collect()
        });
        let output = self.output()?;
        let timeout_seconds = number(
            "timeout_seconds",
            "CONTAINER_EXECUTION_TIMEOUT_SECONDS",
            self.timeout_seconds,
            USUAL_SECONDS,
            &TIMEOUT_SECONDS,
        )?;
        let import_dirs: Vec<PathBuf> = named.unwrap_or(self.import_dirs);
        if let Some(relative) = import_dirs.iter().find(|dir| !dir.is_absolute()) {
            let why = format!("{} is not an absolute path", relative.display());
            return Err(wrong("tools.import_dirs", why));
        }
        let server_url = own("ATOLL_TOOLS_SERVER_URL", "API_BASE_URL").or(self.server_url);
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
        let at = "ATOLL_TOOLS_EXECUTE_AS_ROOT";
        let at = if variable(at).is_some() { at } else { "CONTAINER_EXECUTE_AS_ROOT" };
        let execute_as_root = match variable(at) {
            Some(text) => truth(&text).ok_or_else(|| wrong(at, "expected true or false"))? == "true",
            None => self.execute_as_root.unwrap_or(false),
        };
        Ok(ToolsConfig { server_url, import_dirs, timeout_seconds, output, execute_as_root })
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
        let usual = of("").unwrap();
        assert_eq!((usual.server_url, usual.import_dirs, usual.timeout_seconds), (None, vec![], 30));
        assert_eq!(usual.output, OutputLimits::default());
        assert!(!usual.execute_as_root && of("execute_as_root = true").unwrap().execute_as_root);
        let good = of("server_url = \"https://atoll.example/\"\nimport_dirs = [\"/srv/data\"]").unwrap();
        assert_eq!(good.server_url.as_deref(), Some("https://atoll.example"));
        assert_eq!(good.import_dirs, [PathBuf::from("/srv/data")]);
        let set = of("timeout_seconds = 300\nmax_stdout_chars = 100\nmax_traceback_chars = 200").unwrap();
        assert_eq!((set.timeout_seconds, set.output.stdout, set.output.traceback), (300, 100, 200));
        for wrong in [
            "server_url = \"atoll.example\"",
            "server_url = \"http://\"",
            "import_dirs = [\"data\"]",
            "timeout_seconds = 301",
            "max_result_chars = 1",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
