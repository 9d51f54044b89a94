//! Snapshots, rollbacks and forks of a sandbox that runs, all of its files written back before. A rollback and a fork end with a
//! container that runs, so beside them stand a stop and a resume, and a create. What a volume holds takes turns too, so that a large
//! one stands beside a small one. Then a fork until its first command has printed, and what many forks take of the disk.

use super::{
    super::snapshots::{BY_HAND, COPY, Content, SMALL, VolumeFiles, contents},
    Bench,
};
use crate::{
    Result,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
    stats::Samples,
};
use serde::Deserialize;
use std::fs;

const BODY: &str = r#"{"disk_mb":4096}"#;
const ECHO: &str = r#"{"arguments":["echo","here"]}"#;
const NO_SNAPSHOT_BEFORE: &str = r#"{"keep_before":false}"#;

/// A sandbox that runs, with its files.
struct Case {
    content: Content,
    sandbox: Sandbox,
    files: VolumeFiles,
}

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let mut cases = Vec::new();
    for content in contents(bench.scale) {
        let sandbox = server::create(&mut client, BODY).await?;
        let files = VolumeFiles(server.volume(&sandbox)?);
        files.fill(&content)?;
        cases.push(Case { content, sandbox, files });
    }
    let mut rows = latencies(bench, &mut client, &cases).await?;
    let small = cases.iter().find(|case| case.content.name == SMALL.name).ok_or("nothing is small")?;
    rows.push(first_output(bench, &mut client, &small.sandbox).await?);
    rows.push(storage(bench, &mut client, small).await?);
    for case in cases {
        server::delete(&mut client, &case.sandbox).await?;
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct Snapshot {
    id: String,
}

async fn keep(client: &mut Client, sandbox: &Sandbox) -> Result<String> {
    let made = client.ask("POST", &sandbox.path("/snapshots"), "{}").await?.expect(201)?;
    Ok(serde_json::from_slice::<Snapshot>(&made)?.id)
}

async fn fork(client: &mut Client, sandbox: &Sandbox, body: &str) -> Result<Sandbox> {
    let made = client.ask("POST", &sandbox.path("/fork"), body).await?.expect(201)?;
    Ok(serde_json::from_slice(&made)?)
}

async fn tell(client: &mut Client, path: &str, body: &str, status: u16) -> Result<()> {
    client.ask("POST", path, body).await?.expect(status).map(drop)
}

/// The operations, and how many series a round of them has, but for one more of snapshots by hand.
const OPERATIONS: [&str; 3] = ["snapshot", "rollback", "fork"];
const SERIES: usize = OPERATIONS.len() + 2;

async fn latencies(bench: &Bench<'_>, client: &mut Client, cases: &[Case]) -> Result<Vec<Row>> {
    let pace = Pace::tight(bench.scale.pick(2, 15, 40));
    let Some(first) = cases.first() else { return Ok(Vec::new()) };
    let by_hand = first.files.by_hand()?.is_some();
    let rounds = async || {
        let mut values = Vec::new();
        for case in cases {
            values.extend(round(client, case, by_hand).await?);
        }
        Ok(values)
    };
    let series = pace.take(rounds).await?;
    let each: Vec<&[Samples]> = series.chunks(SERIES + usize::from(by_hand)).collect();
    let mut rows = Vec::new();
    for (case, of_case) in cases.iter().zip(&each) {
        rows.extend(rows_of(case, of_case, pace.name)?);
    }
    // A large volume beside the small one.
    for (case, of_case) in cases.iter().zip(&each).skip(1) {
        for ((operation, own), small) in OPERATIONS.iter().zip(*of_case).zip(each[0]) {
            let name = format!("rest {operation}, {} beside 10 MB", case.content.name);
            let small = Baseline::new("the same at 10 MB", small.clone());
            rows.push(Row::latency(name, pace.name, own.clone(), vec![small]).by_difference());
        }
    }
    Ok(rows)
}

/// The rows of one case, of the series of its rounds.
fn rows_of(case: &Case, series: &[Samples], pace: &'static str) -> Result<Vec<Row>> {
    // Once: it takes seconds, and what is left of it is in the way of the others.
    let (copied, copy) = case.files.copy()?;
    fs::remove_dir_all(copy)?;
    let mut series = series.iter().cloned();
    let mut next = || series.next().ok_or("a series is missing");
    let own = [next()?, next()?, next()?];
    let restart = Baseline::new("rest stop and resume", next()?);
    let create = Baseline::new("rest create", next()?);
    let copied = Baseline::new(COPY, [copied].into_iter().collect());
    let by_hand = series.next().map(|samples| Baseline::new(BY_HAND, samples));
    let beside = [
        [copied.clone()].into_iter().chain(by_hand).collect(),
        vec![restart, copied.clone()],
        vec![create, copied],
    ];
    let row = |((operation, samples), baselines): ((&str, Samples), Vec<Baseline>)| {
        let row = Row::latency(format!("rest {operation}, {}", case.content.name), pace, samples, baselines);
        if operation == "snapshot" { row } else { row.by_difference() }
    };
    Ok(OPERATIONS.into_iter().zip(own).zip(beside).map(row).collect())
}

/// Snapshot, rollback, fork; a stop and a resume, a create, and a snapshot by hand where that is possible.
async fn round(client: &mut Client, case: &Case, by_hand: bool) -> Result<Vec<f64>> {
    let Case { sandbox, files, content: _ } = case;
    let (snapshot, id) = timed(keep(client, sandbox)).await?;
    let path = sandbox.path(&format!("/snapshots/{id}"));
    let back = format!("{path}/rollback");
    let (rollback, ()) = timed(tell(client, &back, NO_SNAPSHOT_BEFORE, 200)).await?;
    let body = format!(r#"{{"snapshot":"{id}"}}"#);
    let (forked, fork) = timed(fork(client, sandbox, &body)).await?;
    server::delete(client, &fork).await?;
    let restart = async {
        tell(client, &sandbox.path("/stop"), "", 200).await?;
        tell(client, &sandbox.path("/resume"), "", 200).await
    };
    let (restart, ()) = timed(restart).await?;
    let (created, new) = timed(server::create(client, BODY)).await?;
    server::delete(client, &new).await?;
    client.ask("DELETE", &path, "").await?.expect(204)?;
    let mut values = vec![snapshot, rollback, forked, restart, created];
    if by_hand {
        values.extend(files.by_hand()?);
    }
    files.write_back()?;
    Ok(values)
}

/// A fork and its first output; beside a new sandbox and its first output.
async fn first_output(bench: &Bench<'_>, client: &mut Client, sandbox: &Sandbox) -> Result<Row> {
    let pace = Pace::tight(bench.scale.pick(2, 20, 60));
    let round = async || {
        let mut values = Vec::new();
        for forked in [true, false] {
            let work = async {
                let new = match forked {
                    true => fork(client, sandbox, "{}").await?,
                    false => server::create(client, BODY).await?,
                };
                server::exec(client, &new, ECHO).await.map(|()| new)
            };
            let (took, new) = timed(work).await?;
            server::delete(client, &new).await?;
            values.push(took);
        }
        Ok(values)
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (own, new) = (next()?, Baseline::new("the same of a new sandbox", next()?));
    Ok(Row::latency("rest fork to first output", pace.name, own, vec![new]).by_difference())
}

/// What many stopped forks of ten megabytes take of the disk; beside one copy.
async fn storage(bench: &Bench<'_>, client: &mut Client, small: &Case) -> Result<Row> {
    let Case { sandbox, files, content: _ } = small;
    let before = files.used()?;
    let mut forks = Vec::new();
    for _ in 0..bench.scale.pick(5, 100, 100) {
        let made = fork(client, sandbox, "{}").await?;
        tell(client, &made.path("/stop"), "", 200).await?;
        forks.push(made);
    }
    let forked = files.used()? - before;
    for fork in forks {
        server::delete(client, &fork).await?;
    }
    let before = files.used()?;
    let (_, copy) = files.copy()?;
    let copied = files.used()? - before;
    fs::remove_dir_all(copy)?;
    let one = |value: f64| [value].into_iter().collect();
    let copied = Baseline::new("one cp -a of the same", one(copied));
    Ok(Row::memory("rest storage of 100 forks", one(forked), copied))
}
