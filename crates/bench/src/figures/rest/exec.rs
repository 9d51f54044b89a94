//! A command in an existing sandbox, as a program with arguments and as a line for the shell, compared with
//! the same spawned bare. A sandbox's shell is bash where there is one.

use super::Bench;
use crate::{
    Result, baseline,
    http::Client,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};
use std::path::Path;

const TRUE: Bare = Bare { name: "bare spawn of true", arguments: &["/bin/true"] };
const BASH: Bare = Bare { name: "bare bash -c true", arguments: &["/bin/bash", "-c", "true"] };
const SH: Bare = Bare { name: "bare sh -c true", arguments: &["/bin/sh", "-c", "true"] };

/// The same without a sandbox.
#[derive(Clone, Copy)]
struct Bare {
    name: &'static str,
    arguments: &'static [&'static str],
}

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let shells = [BASH, SH].into_iter().filter(|bare| Path::new(bare.arguments[0]).exists());
    let shells: Vec<Bare> = shells.collect();
    let mut rows = Vec::new();
    for pace in bench.paces(300) {
        let body = r#"{"arguments":["true"]}"#;
        rows.push(one(&mut client, &sandbox, pace, ("rest exec true", body), &[TRUE]).await?);
    }
    for pace in bench.paces(300) {
        let body = r#"{"command":"true"}"#;
        rows.push(one(&mut client, &sandbox, pace, ("rest exec true, shell", body), &shells).await?);
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

async fn one(
    client: &mut Client,
    sandbox: &Sandbox,
    pace: Pace,
    (name, body): (&str, &str),
    beside: &[Bare],
) -> Result<Row> {
    let round = async || {
        pace.wait().await;
        let mut values = vec![timed(server::exec(client, sandbox, body)).await?.0];
        for bare in beside {
            pace.wait().await;
            values.push(timed_here(|| baseline::spawn(bare.arguments))?.0);
        }
        Ok(values)
    };
    let mut series = pace.take(round).await?.into_iter();
    let own = series.next().ok_or("a series is missing")?;
    let baselines = beside.iter().zip(series).map(|(bare, samples)| Baseline::new(bare.name, samples));
    Ok(Row::latency(name, pace.name, own, baselines.collect()).by_difference())
}
