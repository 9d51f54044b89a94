//! Installing packages, which is a command like any other: what it may reach is the sandbox's policy, it
//! ends with its caller, and its rows and notes are those of a command.

use super::{
    packages,
    request::{Dependencies, Installed},
};
use crate::{Caller, EgressView, ExecCommand, Kernels, ceiling::check_timeout, exec::MAX_TIMEOUT_SECONDS};
use atoll_egress::Mode;
use atoll_kernels::Language;
use atoll_store::SandboxId;
use atoll_types::{ExitCode, Operation, Result};
use std::collections::BTreeMap;

/// What a request calls its timeout.
const TIMEOUT: &str = "timeout";
const DEFAULT_SECONDS: u64 = 600;
/// Of each output, the end: there is the reason.
const KEPT: usize = 100_000;

/// The end of what a manager said.
fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let skipped = text.chars().count().saturating_sub(KEPT);
    text.chars().skip(skipped).collect()
}

impl Kernels {
    /// Installs packages into the sandbox's volume, through its egress policy. A failed install is an
    /// answer and no error.
    pub async fn install(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        wanted: &Dependencies,
    ) -> Result<Installed> {
        let Dependencies { language, packages, timeout_seconds, usual_seconds, id } = wanted;
        let usual = usual_seconds.unwrap_or(DEFAULT_SECONDS);
        let timeout = check_timeout(TIMEOUT, *timeout_seconds, MAX_TIMEOUT_SECONDS)
            .and_then(|()| self.limits.ceiling(caller).timeout(TIMEOUT, *timeout_seconds, Some(usual)));
        // A request that is refused is audited too, and none of it is run.
        let checked = packages::check(*language, packages).and(timeout.clone().map(drop));
        let command = ExecCommand {
            arguments: Some(packages::command(*language, packages)),
            timeout_seconds: timeout.unwrap_or_default(),
            env_vars: packages::variables(*language),
            id: *id,
            ..ExecCommand::default()
        };
        let told = (Operation::DependenciesInstall, packages::listed(*language, packages));
        let outcome = self.execs.run_as(caller, sandbox, &command, Some(told), checked).await?;
        let report = &outcome.report;
        let mut stderr = tail(&outcome.stderr);
        let mut add = |line: &str| {
            if !stderr.is_empty() && !stderr.ends_with('\n') {
                stderr.push('\n');
            }
            stderr.push_str(line);
            stderr.push('\n');
        };
        let success = report.shell_code().is_success();
        let not_there = report.failure.is_some() && report.shell_code() == ExitCode::NOT_FOUND;
        match packages::hint(*language, &String::from_utf8_lossy(&outcome.stderr), not_there) {
            Some(hint) => add(hint),
            None if report.timed_out => add("it took longer than allowed"),
            None if report.oom_killed => add("the sandbox's memory was not enough for it"),
            None if !success && self.has_no_way_out(caller, sandbox, *language).await => {
                let preset = packages::preset(*language);
                add(&format!(
                    "the sandbox may not reach the packages: create it with `--preset {preset}`, or allow it now \
                     with `atoll egress set {sandbox} --preset {preset}`"
                ));
            }
            None => {}
        }
        let (exit_code, timed_out) = (report.shell_code(), report.timed_out);
        let (stdout, redactor) = (tail(&outcome.stdout), outcome.redactor);
        Ok(Installed { success, exit_code, timed_out, stdout, stderr, redactor })
    }

    /// Whether a sandbox's policy allows nothing at all, or neither the packages' preset nor anything else.
    async fn has_no_way_out(&self, caller: &Caller, sandbox: SandboxId, language: Language) -> bool {
        let Ok(EgressView { policy, allow, .. }) = self.egress.view(caller, sandbox).await else {
            return false;
        };
        let listed = policy.presets.iter().any(|name| name == packages::preset(language));
        policy.mode == Mode::None || policy.mode == Mode::Allowlist && !listed && allow.is_empty()
    }

    /// Installs the packages of a new sandbox; one that cannot be installed is reported and does not fail the
    /// creation.
    pub(crate) async fn install_all(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        all: BTreeMap<Language, BTreeMap<String, String>>,
    ) -> String {
        let mut complaints = String::new();
        for (language, packages) in all {
            let wanted =
                Dependencies { language, packages, timeout_seconds: None, usual_seconds: None, id: None };
            match self.install(caller, sandbox, &wanted).await {
                Ok(Installed { success: true, .. }) => {}
                Ok(Installed { stderr, .. }) => {
                    complaints.push_str(&format!("{}: {stderr}", language.name()));
                }
                Err(error) => complaints.push_str(&format!("{}: {}\n", language.name(), error.message)),
            }
        }
        complaints
    }
}
