//! The figures. Each is a function that takes rounds of its own work and of its baselines in turn and
//! returns rows.

mod agent;
mod audit;
mod burst;
mod console;
mod create;
mod egress;
mod exec;
mod files;
mod grpc;
mod kill;
mod mcp;
mod memory;
mod output;
mod pause;
mod rest;
mod snapshots;
mod store;

use crate::{
    Result,
    docker::Docker,
    instance::{Instance, spec},
    pace::{Pace, Scale},
    promises::PROMISES,
    report::Row,
    runc::Runc,
    tinyproxy::Tinyproxy,
};
use atoll_provider::{Container, Provider};
use clap::ValueEnum;
use serde::Serialize;
use std::{fmt, sync::Arc};

/// Everything that can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Making and destroying a container
    Create,
    /// Running a command
    Exec,
    /// Ending a tree of processes
    Kill,
    /// What an idle container takes
    Memory,
    /// Pausing and resuming a container, and the memory it gives back
    Pause,
    /// Snapshots, rollbacks and forks of a volume
    Snapshots,
    /// Writing and reading a file
    Files,
    /// Following a command's output
    Output,
    /// Making many containers at once
    Burst,
    /// Making and deleting a sandbox through REST
    RestCreate,
    /// Pausing and resuming a sandbox through REST
    RestPause,
    /// Snapshots, rollbacks and forks of a sandbox through REST
    RestSnapshots,
    /// Running a command through REST
    RestExec,
    /// Running a command through gRPC
    GrpcExec,
    /// Uploading and downloading a file through REST
    RestFiles,
    /// Saying which files a command changed, through REST
    RestChanges,
    /// Following a command's output through REST
    RestStream,
    /// Typing at a terminal through REST
    RestTerminal,
    /// Asking a server inside a sandbox through REST
    RestPreview,
    /// Writing the audit trail and finding something in it
    Audit,
    /// Operations of the database on PostgreSQL, beside SQLite
    Store,
    /// Making many sandboxes at once through REST
    RestBurst,
    /// Claiming a sandbox that is ready, through REST
    RestClaim,
    /// Claiming many that are ready at once, through REST
    RestClaimBurst,
    /// Many live sandboxes: their memory, and a server that finds them again
    RestLive,
    /// What one open connection of each kind takes of the server's memory
    RestConnections,
    /// The same beside Docker's API, where that is installed
    RestDocker,
    /// Pulling an image from a registry and unpacking it, through REST
    RestPull,
    /// Building an image again, and making sandboxes of a large one, through REST
    RestBuild,
    /// Running a cell in a live interpreter through REST
    RestKernel,
    /// Starting a live interpreter through REST, and having one from the pool
    KernelStart,
    /// Remembering a live interpreter and going back, through REST
    KernelCheckpoint,
    /// Running `1+1` in a live interpreter through MCP, over stdio and HTTP
    Mcp,
    /// Making, using and stopping many tool sessions at once through MCP
    McpSessions,
    /// Fetching much through a sandbox's proxy
    EgressThroughput,
    /// Fetching little through a sandbox's proxy
    EgressLatency,
    /// Many open connections of one sandbox
    EgressConnections,
    /// A turn of the agent, with and without a tool, beside the model and the tool alone
    AgentTurn,
    /// The first token of an answer through the agent
    AgentFirstToken,
    /// Many streams of the agent at once
    AgentStreams,
    /// The console in a browser: first view, a key at a terminal, the list of 10,000
    Console,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().as_ref().map_or("?", |value| value.get_name()))
    }
}

impl Figure {
    pub(crate) const ALL: [Self; 41] = [
        Self::Create,
        Self::Exec,
        Self::Kill,
        Self::Memory,
        Self::Pause,
        Self::Snapshots,
        Self::Files,
        Self::Output,
        Self::Burst,
        Self::RestCreate,
        Self::RestPause,
        Self::RestSnapshots,
        Self::RestExec,
        Self::GrpcExec,
        Self::RestFiles,
        Self::RestChanges,
        Self::RestStream,
        Self::RestTerminal,
        Self::RestPreview,
        Self::Audit,
        Self::Store,
        Self::RestBurst,
        Self::RestClaim,
        Self::RestClaimBurst,
        Self::RestLive,
        Self::RestConnections,
        Self::RestDocker,
        Self::RestPull,
        Self::RestBuild,
        Self::RestKernel,
        Self::KernelStart,
        Self::KernelCheckpoint,
        Self::Mcp,
        Self::McpSessions,
        Self::EgressThroughput,
        Self::EgressLatency,
        Self::EgressConnections,
        Self::AgentTurn,
        Self::AgentFirstToken,
        Self::AgentStreams,
        Self::Console,
    ];

    pub(crate) async fn take(self, bench: &Bench<'_>) -> Result<Vec<Row>> {
        match self {
            Self::Create => create::take(bench).await,
            Self::Exec => exec::take(bench).await,
            Self::Kill => kill::take(bench).await,
            Self::Memory => memory::take(bench).await,
            Self::Pause => pause::take(bench).await,
            Self::Snapshots => snapshots::take(bench).await,
            Self::Files => files::take(bench).await,
            Self::Output => output::take(bench).await,
            Self::Burst => burst::take(bench).await,
            Self::RestCreate => rest::create(bench).await,
            Self::RestPause => rest::pause(bench).await,
            Self::RestSnapshots => rest::snapshots(bench).await,
            Self::RestExec => rest::exec(bench).await,
            Self::GrpcExec => grpc::take(bench).await,
            Self::RestFiles => rest::files(bench).await,
            Self::RestChanges => rest::changes(bench).await,
            Self::RestStream => rest::stream(bench).await,
            Self::RestTerminal => rest::terminal(bench).await,
            Self::RestPreview => rest::preview(bench).await,
            Self::Audit => audit::take(bench).await,
            Self::Store => store::take(bench).await,
            Self::RestBurst => rest::burst(bench).await,
            Self::RestClaim => rest::claim(bench).await,
            Self::RestClaimBurst => rest::claim_burst(bench).await,
            Self::RestLive => rest::live(bench).await,
            Self::RestConnections => rest::connections(bench).await,
            Self::RestDocker => rest::docker(bench).await,
            Self::RestPull => rest::pull(bench).await,
            Self::RestBuild => rest::build(bench).await,
            Self::RestKernel => rest::kernel(bench).await,
            Self::KernelStart => rest::kernel_start(bench).await,
            Self::KernelCheckpoint => rest::kernel_checkpoint(bench).await,
            Self::Mcp => mcp::round_trip(bench).await,
            Self::McpSessions => mcp::sessions(bench).await,
            Self::EgressThroughput => egress::throughput(bench).await,
            Self::EgressLatency => egress::latency(bench).await,
            Self::EgressConnections => egress::connections(bench).await,
            Self::AgentTurn => agent::turns(bench).await,
            Self::AgentFirstToken => agent::first_token(bench).await,
            Self::AgentStreams => agent::streams(bench).await,
            Self::Console => console::take(bench).await,
        }
    }

    /// Refuses a figure with missing rows.
    pub(crate) fn check(self, rows: Vec<Row>) -> Result<Vec<Row>> {
        if let Some(row) = rows.iter().find(|row| !row.sound()) {
            return Err(format!("{} has no sound measurement", row.name).into());
        }
        let mut promised = PROMISES.iter().filter(|p| p.figure == self && p.always);
        match promised.find(|p| !rows.iter().any(|row| row.name == p.row)) {
            Some(promise) => Err(format!("there is no row {:?} to judge", promise.row).into()),
            None if self == Self::RestDocker && !Docker::is_there() => Ok(rows),
            None if self == Self::RestPull && !rest::can_pull() => Ok(rows),
            None if self == Self::Store && !store::can_run() => Ok(rows),
            None if self == Self::RestBuild && !rest::can_build() => Ok(rows),
            None if self == Self::Console && !console::is_there() => Ok(rows),
            None if rows.is_empty() => Err("nothing was measured".into()),
            None => Ok(rows),
        }
    }
}

/// The context of every figure.
pub(crate) struct Bench<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) scale: Scale,
    /// None where it is not installed.
    pub(crate) runc: Option<Runc>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(instance: &'a Instance, scale: Scale) -> Result<Self> {
        Ok(Self { instance, scale, runc: Runc::find()? })
    }

    /// The figures that this machine lacks something for.
    pub(crate) fn notes(&self) -> Vec<String> {
        let missing = [
            (self.runc.is_none(), "runc is not installed, so there is no baseline of it"),
            (!Tinyproxy::is_there(), "tinyproxy is not installed, so there is no baseline of it"),
            (!Docker::is_there(), "docker is not installed, so there is no baseline of it"),
            (!rest::can_pull(), "docker-registry, skopeo or umoci is not installed, so nothing is pulled"),
            (!rest::can_build(), "busybox is not installed, so no image is built"),
            (!store::can_run(), "PostgreSQL is not installed, so the store on it is not measured"),
            (!console::is_there(), "chromium or the console (make ui) is missing, so no figure of it"),
            (!exec::has_python(), "there is no /usr/bin/python3, so no figure of it"),
        ];
        missing.into_iter().filter(|(is, _)| *is).map(|(_, note)| note.to_owned()).collect()
    }

    /// The two ways in which a latency is taken.
    pub(crate) fn paces(&self, usual: usize) -> [Pace; 2] {
        let rounds = self.scale.pick(3, usual, usual * 3);
        let paused = self.scale.pick(1, 20, 60).min(rounds);
        [Pace::tight(rounds), Pace::paused(paused)]
    }

    /// A container for a figure that needs one.
    async fn container(&self) -> Result<Arc<dyn Container>> {
        Ok(self.instance.provider.create(spec()?).await?)
    }

    /// Destroys what a failed figure left, so that the next one finds a quiet machine.
    pub(crate) async fn clear(&self) {
        for listed in self.instance.provider.list().await.unwrap_or_default() {
            let _ = self.instance.provider.destroy(listed.id).await;
        }
    }

    async fn destroy(&self, container: &Arc<dyn Container>) -> Result<()> {
        Ok(self.instance.provider.destroy(container.id()).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Baseline;

    #[test]
    fn a_figure_must_have_what_is_promised_of_it() {
        let row = |name: &str| {
            let baseline = Baseline::new("b", [1.0].into_iter().collect());
            Row::latency(name, "tight", [1.0].into_iter().collect(), vec![baseline])
        };
        assert!(Figure::Create.check(vec![row("create")]).is_ok());
        assert!(Figure::Create.check(vec![row("destroy")]).is_err());
        assert!(Figure::Burst.check(vec![row("anything")]).is_ok());
        assert!(Figure::Burst.check(Vec::new()).is_err());
        let empty = Row { samples: Default::default(), ..row("create") };
        assert!(Figure::Create.check(vec![empty]).is_err());
    }
}
