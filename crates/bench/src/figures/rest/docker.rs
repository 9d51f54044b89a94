//! A sandbox through REST compared with a container through Docker's API, in turn: made, used, paused,
//! resumed and destroyed.

use super::Bench;
use crate::{
    Result,
    docker::Docker,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{self, Server},
};

const NAMES: [&str; 5] = ["create", "exec true", "pause", "resume", "delete"];

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let docker = Docker::start().await?;
    let mut client = server.connect().await?;
    let mut rows = Vec::new();
    for pace in bench.paces(20) {
        let mut series = pace.take(async || round(&mut client, &docker, pace).await).await?;
        let beside = series.split_off(NAMES.len());
        for ((name, own), docker) in NAMES.into_iter().zip(series).zip(beside) {
            let docker = Baseline::new("Docker's API", docker);
            rows.push(Row::latency(format!("rest {name}, beside Docker"), pace.name, own, vec![docker]));
        }
    }
    Ok(rows)
}

async fn tell(client: &mut Client, path: &str) -> Result<f64> {
    Ok(timed(async { client.ask("POST", path, "").await?.expect(200) }).await?.0)
}

async fn round(client: &mut Client, docker: &Docker, pace: Pace) -> Result<Vec<f64>> {
    pace.wait().await;
    let (create, sandbox) = timed(server::create(client, "{}")).await?;
    let (exec, ()) = timed(server::exec(client, &sandbox, r#"{"arguments":["true"]}"#)).await?;
    let pause = tell(client, &sandbox.path("/pause")).await?;
    let resume = tell(client, &sandbox.path("/resume")).await?;
    let (delete, ()) = timed(server::delete(client, &sandbox)).await?;
    pace.wait().await;
    let (made, id) = docker.create().await?;
    let ran = docker.exec(&id).await?;
    let (paused, resumed) = (docker.tell(&id, "pause").await?, docker.tell(&id, "unpause").await?);
    let deleted = docker.delete(&id).await?;
    Ok(vec![create, exec, pause, resume, delete, made, ran, paused, resumed, deleted])
}
