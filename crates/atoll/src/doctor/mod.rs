//! `atoll doctor`: what this machine can and cannot do, each with a remedy, and a trial that starts a real
//! sandbox. It fails only when no sandbox can run.

mod probes;
mod trial;

use crate::cli;
use atoll_types::Result;
use serde::Serialize;
use std::path::Path;

/// The verdict of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As it should be.
    Good,
    /// Works, with something missing.
    Lacking,
    /// No sandbox can run like this.
    Bad,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was probed.
    pub(crate) name: &'static str,
    /// The verdict.
    pub(crate) verdict: Verdict,
    /// What was seen.
    pub(crate) seen: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

impl Finding {
    fn good(name: &'static str, seen: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, seen: seen.into(), fix: None }
    }

    fn lacking(name: &'static str, seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Lacking, seen: seen.into(), fix: Some(fix.into()) }
    }

    fn bad(name: &'static str, seen: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Bad, seen: seen.into(), fix: Some(fix.into()) }
    }
}

/// Probes, prints, and returns the exit code.
pub(crate) async fn run(options: &cli::Doctor) -> Result<u8> {
    let mut findings = probes::all(&options.data.dir());
    let blocked = findings.iter().any(|f| f.verdict == Verdict::Bad);
    if !blocked {
        findings.extend(trial::run(&options.data.dir()).await);
    }
    let code = u8::from(findings.iter().any(|f| f.verdict == Verdict::Bad));
    if options.json {
        let report = serde_json::json!({ "can_run": code == 0, "findings": findings });
        say!("{report:#}");
    } else {
        print(&findings);
    }
    Ok(code)
}

/// What the server finds itself, for the console. It is an ordinary user whose launcher runs already, so its own privilege
/// says nothing.
pub(crate) fn seen_by_server(data_dir: &Path) -> Vec<atoll_front_ui::Finding> {
    let findings = probes::all(data_dir).into_iter().filter(|finding| finding.name != probes::PRIVILEGE);
    let shown = |Finding { name, verdict, seen, fix }: Finding| {
        let verdict = match verdict {
            Verdict::Good => "good",
            Verdict::Lacking => "lacking",
            Verdict::Bad => "bad",
        };
        atoll_front_ui::Finding { name, verdict, seen, fix }
    };
    findings.map(shown).collect()
}

fn print(findings: &[Finding]) {
    let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for Finding { name, verdict, seen, fix } in findings {
        let mark = match verdict {
            Verdict::Good => "ok  ",
            Verdict::Lacking => "warn",
            Verdict::Bad => "FAIL",
        };
        say!("{mark}  {name:width$}  {seen}");
        if let Some(fix) = fix {
            say!("      {:width$}  -> {fix}", "");
        }
    }
}
