//! `atoll mcp --server`: a bridge between a client that starts programs and speaks MCP over stdin and stdout,
//! and a server that speaks it over HTTP. Messages are passed on as they are; the bridge only looks at which
//! of them start and end something.

mod ask;
mod line;
mod link;

use crate::{Failure, Secret, terminal};
use atoll_client::Client;
use bytes::Bytes;
use line::{Line, Lines};
use link::Link;
use std::{sync::Arc, time::Duration};
use tokio::{io::AsyncWriteExt, sync::mpsc, task::JoinSet, time::timeout};

/// Messages queued for a client that reads slowly.
const WAITING: usize = 64;

/// How long requests that are under way may take when stdin has ended. What takes longer is ended with its session.
const LAST: Duration = Duration::from_secs(2);

/// Bridges stdin and stdout to a server, until stdin ends. Returns the exit code; errors are printed.
pub async fn bridge(url: &str, key: Option<&Secret>, thread: String) -> u8 {
    match run(url, key, thread).await {
        Ok(()) => 0,
        Err(failure) => failure.report(false),
    }
}

async fn run(url: &str, key: Option<&Secret>, thread: String) -> Result<(), Failure> {
    let client = Client::new(url, key.and_then(Secret::value))?;
    let (out, mut waiting) = mpsc::channel::<Bytes>(WAITING);
    let writer = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(message) = waiting.recv().await {
            let written = async {
                stdout.write_all(&message).await?;
                stdout.write_all(b"\n").await?;
                stdout.flush().await
            };
            written.await?;
        }
        Ok::<_, std::io::Error>(())
    });
    let link = Arc::new(Link::new(client, thread, out));
    pass(&link).await;
    link.end().await;
    drop(link);
    match writer.await {
        Ok(Err(error)) => Err(Failure::output(error)),
        _ => Ok(()),
    }
}

/// Passes on the messages of stdin.
async fn pass(link: &Arc<Link>) {
    let mut lines = Lines::new(tokio::io::stdin());
    let mut under_way = JoinSet::new();
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            _ = under_way.join_next(), if !under_way.is_empty() => continue,
        };
        match line {
            Line::Message(bytes) if bytes.is_empty() => {}
            Line::Message(bytes) => match ask::look(bytes) {
                Some(message) if message.waits() => link.carry(message).await,
                Some(message) => {
                    let link = Arc::clone(link);
                    under_way.spawn(async move { link.carry(message).await });
                }
                None => terminal::note("a line on stdin is no message of MCP"),
            },
            Line::TooLong => terminal::note("a message on stdin is longer than 16 MiB and was left out"),
            Line::End => break,
        }
    }
    let _ = timeout(LAST, async { while under_way.join_next().await.is_some() {} }).await;
}
