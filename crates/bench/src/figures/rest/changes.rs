//! The cost of reporting which files a command changed: the same command, which writes one file, in a
//! workspace of many files and in an empty one.

use super::Bench;
use crate::{
    Result,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{self, Sandbox, Server},
};

/// Writes one file anew.
const WRITE: &str = r#"{"arguments":["dd","if=/dev/zero","of=changed","bs=100","count=1","status=none"]}"#;
const EMPTY: &str = "the same, no other file";

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let mut client = server.connect().await?;
    let empty = server::create(&mut client, "{}").await?;
    let mut rows = Vec::new();
    // The quick run skips a hundred thousand files, and its rows have no promise.
    for (name, files) in [
        ("rest exec, 1,000 files", bench.scale.pick(100, 1000, 1000)),
        ("rest exec, 100,000 files", bench.scale.pick(1000, 100_000, 100_000)),
    ] {
        let full = server::create(&mut client, "{}").await?;
        fill(&mut client, &full, files).await?;
        for pace in bench.paces(100) {
            rows.push(one(&mut client, (&full, &empty), pace, name).await?);
        }
        server::delete(&mut client, &full).await?;
    }
    server::delete(&mut client, &empty).await?;
    Ok(rows)
}

/// Makes files in folders of a thousand, and lets the observer report them once.
async fn fill(client: &mut Client, sandbox: &Sandbox, files: usize) -> Result<()> {
    let program = format!(
        "import os\nfor n in range({files}):\n  d=str(n//1000)\n  os.makedirs(d,exist_ok=True)\n  open(d+'/'+str(n),'w').write('x')"
    );
    let body =
        serde_json::json!({ "arguments": ["python3", "-c", program], "timeout_seconds": 300 }).to_string();
    server::exec(client, sandbox, &body).await?;
    server::exec(client, sandbox, WRITE).await
}

async fn one(
    client: &mut Client,
    (full, empty): (&Sandbox, &Sandbox),
    pace: Pace,
    name: &str,
) -> Result<Row> {
    let round = async || {
        pace.wait().await;
        let own = timed(server::exec(client, full, WRITE)).await?.0;
        pace.wait().await;
        Ok(vec![own, timed(server::exec(client, empty, WRITE)).await?.0])
    };
    let mut series = pace.take(round).await?.into_iter();
    let own = series.next().ok_or("a series is missing")?;
    let beside = series.next().ok_or("a series is missing")?;
    Ok(Row::latency(name, pace.name, own, vec![Baseline::new(EMPTY, beside)]).by_difference())
}
