//! `atoll pool`: the pool of ready containers.

use crate::{Failure, server::Server, table, terminal};
use atoll_client::{PatchPool, Pool, PoolSize};
use clap::{Args, Subcommand};

/// `pool`.
#[derive(Debug, Args)]
pub struct PoolOptions {
    #[command(subcommand)]
    pub(crate) command: PoolCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Shows what is ready, by image
    Show(Show),
    /// Destroys what is ready; it is made anew
    Drain(Drain),
    /// Changes how many are kept ready of an image, at once; it outlives the server
    Resize(Resize),
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Keep nothing ready from now on either
    #[arg(long)]
    pub(crate) stop: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Resize {
    /// The image
    pub(crate) image: String,
    /// How many, even without any demand
    #[arg(long, required_unless_present_any = ["max", "reset"])]
    pub(crate) min: Option<u32>,
    /// How many, at most, with much demand
    #[arg(long)]
    pub(crate) max: Option<u32>,
    /// Take back what was set for this image
    #[arg(long, conflicts_with_all = ["min", "max"])]
    pub(crate) reset: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl PoolOptions {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            PoolCommand::Show(Show { server })
            | PoolCommand::Drain(Drain { server, .. })
            | PoolCommand::Resize(Resize { server, .. }) => server.json,
        }
    }
}

fn rendered(pool: &Pool) -> String {
    let seconds = |s: Option<f64>| s.map_or_else(String::new, |s| format!("{s:.1}s"));
    let rows: Vec<[String; 9]> = pool
        .keys
        .iter()
        .map(|key| {
            [
                key.image.clone(),
                key.ready.to_string(),
                key.starting.to_string(),
                key.target.to_string(),
                format!("{}-{}", key.min, key.max),
                key.hits.to_string(),
                key.misses.to_string(),
                seconds(key.oldest_age_seconds),
                key.last_failure.as_ref().map(|failure| failure.reason.clone()).unwrap_or_default(),
            ]
        })
        .collect();
    let heading =
        ["IMAGE", "READY", "STARTING", "TARGET", "MIN-MAX", "HITS", "MISSES", "OLDEST", "LAST FAILURE"];
    let off = if pool.enabled { "" } else { "the pool is off (warm_pool_enabled)\n" };
    format!("{}{off}", table::render(heading, &rows))
}

pub(crate) async fn run(command: PoolCommand) -> Result<u8, Failure> {
    let (server, reply) = match command {
        PoolCommand::Show(Show { server }) => {
            let reply = server.client()?.pool().await?;
            (server, reply)
        }
        PoolCommand::Drain(Drain { stop, server }) => {
            let reply = server.client()?.drain_pool(stop).await?;
            match server.json {
                true => terminal::print_json(&reply.json)?,
                false => terminal::print(&format!("{} destroyed\n", reply.drained))?,
            }
            return Ok(0);
        }
        PoolCommand::Resize(Resize { image, min, max, reset, server }) => {
            let size = (!reset).then_some(PoolSize { min, max });
            let change = PatchPool { enabled: None, images: [(image, size)].into() };
            let reply = server.client()?.patch_pool(&change).await?;
            (server, reply)
        }
    };
    match server.json {
        true => terminal::print_json(&reply.json)?,
        false => terminal::print(&rendered(&reply))?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_for_people() {
        let pool: Pool = serde_json::from_value(serde_json::json!({"enabled": false, "keys": [
            {"image": "host", "profile": "default", "ready": 2, "starting": 1, "target": 3, "min": 2, "max": 8,
             "hits": 12, "misses": 1, "oldest_age_seconds": 61.25, "refills": 9, "refill_seconds": 0.02,
             "failures": 1, "last_failure": {"at": "2026-01-01T00:00:00Z", "reason": "no room\u{1b}[2J"}}]}))
        .unwrap();
        insta::assert_snapshot!(rendered(&pool), @r"
        IMAGE  READY  STARTING  TARGET  MIN-MAX  HITS  MISSES  OLDEST  LAST FAILURE
        host   2      1         3       2-8      12    1       61.2s   no room\u{1b}[2J
        the pool is off (warm_pool_enabled)
        ");
    }
}
