//! The decisive check: start a sandbox and run something in it.

use super::Finding;
use atoll_launch_proto::Quota;
use atoll_provider::{Command as Inside, ContainerSpec, Provider};
use atoll_provider_native::{LaunchOptions, NativeProvider, Started, ensure_launcher};
use atoll_types::{Error, Profile, Result};
use std::{
    io::{self, IsTerminal},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

/// Starts a throw-away sandbox. Where sudo needs a password, it is run on a terminal only.
pub(super) async fn run(data_dir: &Path) -> Vec<Finding> {
    if !rustix::process::geteuid().is_root() && !may_use_sudo() {
        let seen = "no sandbox was started: sudo needs a password, and no terminal is there to ask for it";
        return vec![Finding::lacking("trial", seen, "run `sudo -v` first, or `sudo atoll doctor`")];
    }
    match trial(data_dir).await {
        Ok(findings) => findings,
        Err(error) => vec![Finding::bad("trial", error.to_string(), "see launch.log in the data folder")],
    }
}

/// Whether sudo works without a password, or a person can type it.
fn may_use_sudo() -> bool {
    let mut quietly = Command::new("sudo");
    quietly.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quietly.status().is_ok_and(|status| status.success()) || io::stdin().is_terminal()
}

async fn trial(data_dir: &Path) -> Result<Vec<Finding>> {
    let options = LaunchOptions {
        data_dir: data_dir.into(),
        client_uids: Vec::new(),
        ephemeral: true,
        extra: Vec::new(),
    };
    let Started { client, visit, .. } = ensure_launcher(&options).await?;
    let provider = NativeProvider::new(client);
    let report = provider.report().await?;
    let quota = match report.quota {
        Quota::None => Finding::lacking(
            "disk limits",
            format!("not enforced on {}", report.storage),
            "put the data folder on btrfs, or let the launcher make a loop-backed pool",
        ),
        kind => Finding::good("disk limits", format!("{kind} quotas on {}", report.storage)),
    };
    let spec = ContainerSpec::throw_away(
        Profile::builtin("default").ok_or_else(|| Error::internal("no default profile"))?,
    );
    let id = spec.id;
    let began = Instant::now();
    let (container, _held) = provider.create_held(spec).await?;
    drop(visit);
    let started = began.elapsed();
    let finished = container.guest().run(&Inside::new(["true"])).await?;
    let ran = began.elapsed() - started;
    provider.destroy(id).await?;
    let trial = if finished.report.exit_code == Some(0) {
        let seen = format!("a sandbox started in {started:.1?} and ran `true` in {ran:.1?}");
        Finding::good("trial", seen)
    } else {
        Finding::bad("trial", format!("`true` ended with {}", finished.report.shell_code()), "see launch.log")
    };
    Ok([quota].into_iter().chain(report.notes.into_iter().map(note)).chain([trial]).collect())
}

fn note(text: String) -> Finding {
    Finding { name: "note", verdict: super::Verdict::Good, seen: text, fix: None }
}
