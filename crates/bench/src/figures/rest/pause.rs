//! Pausing and resuming a sandbox. The baselines are those of a container without the server.

use super::{super::pause, Bench};
use crate::{
    Result,
    frozen::FrozenSleep,
    http::Client,
    pace::{Pace, timed},
    report::Row,
    server::{self, Sandbox, Server},
};

const TRUE: &str = r#"{"command":"true"}"#;

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let bare = FrozenSleep::start()?;
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let mut rows = Vec::new();
    for pace in bench.paces(100) {
        let series = pace.take(async || round(&mut client, &sandbox, &bare, pace).await).await?;
        rows.extend(pause::of("rest ", pace, series)?);
    }
    server::delete(&mut client, &sandbox).await?;
    Ok(rows)
}

async fn tell(client: &mut Client, sandbox: &Sandbox, what: &str) -> Result<()> {
    client.ask("POST", &sandbox.path(what), "").await?.expect(200).map(drop)
}

async fn round(client: &mut Client, sandbox: &Sandbox, bare: &FrozenSleep, pace: Pace) -> Result<Vec<f64>> {
    pace.wait().await;
    let (pause, ()) = timed(tell(client, sandbox, "/pause")).await?;
    pace.wait().await;
    let (resume, ()) = timed(tell(client, sandbox, "/resume")).await?;
    tell(client, sandbox, "/pause").await?;
    pace.wait().await;
    // The command resumes it.
    let (first, ()) = timed(server::exec(client, sandbox, TRUE)).await?;
    let [freeze, thaw] = pause::beside(bare, pace).await?;
    Ok(vec![pause, resume, first, freeze, thaw])
}
