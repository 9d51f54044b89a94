//! `atoll update`: changes of a sandbox that is there.

use crate::{Failure, resolve, server::Server, size, terminal, volumes};
use atoll_client::{AttachedVolume, PatchSandbox};
use clap::Args;
use std::time::Duration;

/// What to change; what is left out stays.
#[derive(Debug, Args)]
pub struct Update {
    /// A sandbox: an id, the start of one, or a session key
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Before what the server keeps its files by itself: each command, or each piece of code in an interpreter
    #[arg(long, value_name = "WHEN", value_parser = ["off", "before_exec", "before_run"])]
    auto_snapshot: Option<String>,
    /// A volume of yours that it has from now on, in the place of all others, read-only with :ro; only while it is stopped
    #[arg(long, value_name = "NAME:PATH[:ro]", value_parser = volumes::attached)]
    volume: Vec<AttachedVolume>,
    /// Detach every volume but its tenant's storage; only while it is stopped
    #[arg(long, conflicts_with = "volume")]
    no_volumes: bool,
    /// What its files may take, such as 2G: more within your tier and plan, or less, down to what they take
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    disk: Option<u64>,
    /// How long it may be idle
    #[arg(long, value_name = "TIME", value_parser = size::duration)]
    idle_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl Update {
    fn request(&self) -> Result<PatchSandbox, Failure> {
        let seconds = self.idle_timeout.map(|time| u32::try_from(time.as_secs())).transpose();
        let request = PatchSandbox {
            idle_timeout_seconds: seconds
                .map_err(|_| Failure::usage("idle-timeout", "the time is too long"))?,
            auto_snapshot: self.auto_snapshot.clone(),
            disk_mb: self.disk.map(|bytes| bytes.div_ceil(1 << 20)),
            volumes: (self.no_volumes || !self.volume.is_empty()).then(|| self.volume.clone()),
            ..PatchSandbox::default()
        };
        if request == PatchSandbox::default() {
            let message =
                "name what to change: --auto-snapshot, --volume, --no-volumes, --disk or --idle-timeout";
            return Err(Failure::usage("id", message));
        }
        Ok(request)
    }
}

pub(crate) async fn run(options: Update) -> Result<u8, Failure> {
    let request = options.request()?;
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let changed = client.patch(id, &request).await.map_err(|e| Failure::from(e).about(&options.id))?;
    if options.server.json {
        terminal::print_json(&changed.json)?;
    } else {
        terminal::print(&format!("{}\n", resolve::short(id)))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        update: Update,
    }

    fn asked(line: &str) -> Result<serde_json::Value, Failure> {
        let all = ["atoll", "x"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(all)
            .unwrap()
            .update
            .request()
            .map(|request| serde_json::to_value(request).unwrap())
    }

    #[test]
    fn only_what_is_said_is_changed() {
        assert_eq!(
            asked("--auto-snapshot before_run --volume data:/mnt/data:ro").unwrap(),
            serde_json::json!({ "auto_snapshot": "before_run",
                "volumes": [{ "name": "data", "path": "/mnt/data", "read_only": true }] })
        );
        assert_eq!(asked("--no-volumes").unwrap(), serde_json::json!({ "volumes": [] }));
        assert_eq!(asked("--idle-timeout 5m").unwrap(), serde_json::json!({ "idle_timeout_seconds": 300 }));
        assert_eq!(asked("--disk 2G").unwrap(), serde_json::json!({ "disk_mb": 2048 }));
        assert!(asked("").is_err());
    }
}
