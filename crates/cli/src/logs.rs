//! `atoll logs`. A broken connection is made again, and continues where the last one ended.

use crate::{
    Failure,
    args::Logs,
    print::{Printer, Step},
    resolve, terminal,
};
use atoll_client::{Client, Error, Uuid};
use std::time::Duration;

/// How many attempts may fail in a row, and the pause between them.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);

/// Reads until the end of the output or of the connection; returns the reason of the latter.
async fn read(
    client: &Client,
    (id, exec): (Uuid, Uuid),
    follow: bool,
    printer: &mut Printer,
    tries: &mut u32,
) -> Result<Option<String>, Failure> {
    let broken = |error: Error| match error {
        Error::Unreachable { .. } | Error::Unexpected(_) => Ok(Some(error.to_string())),
        other => Err(other.into()),
    };
    let mut events = match client.exec_output(id, exec, printer.resume(), follow).await {
        Ok(events) => events,
        Err(error) => return broken(error),
    };
    loop {
        let event = match events.next().await {
            Ok(None) if !follow => return Ok(None),
            Ok(event) => event,
            Err(error) => return broken(error),
        };
        *tries = 0;
        match printer.print(event)? {
            Step::More => {}
            Step::Exit(_) => return Ok(None),
            Step::Broken(reason) => return Ok(Some(reason)),
        }
    }
}

pub(crate) async fn run(options: Logs) -> Result<u8, Failure> {
    let Logs { id: typed, exec, follow, from, server } = options;
    let client = server.client()?;
    let id = resolve::sandbox(&client, &typed).await?;
    let about = |failure: Failure| failure.about(&typed);
    let exec = resolve::exec(&client, id, &exec).await.map_err(about)?;
    let mut printer = Printer::new(from, server.json);
    let mut tries = 0;
    loop {
        let Some(reason) =
            read(&client, (id, exec), follow, &mut printer, &mut tries).await.map_err(about)?
        else {
            return Ok(0);
        };
        // Before the first event it is an error, not a connection that broke.
        if tries >= TRIES || printer.exec().is_none() {
            return Err(Error::Unexpected(reason).into());
        }
        if tries == 0 {
            terminal::note(&format!("{reason}; going on at offset {}", printer.resume()));
        }
        tries += 1;
        tokio::time::sleep(PAUSE).await;
    }
}
