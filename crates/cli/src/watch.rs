//! `atoll watch`: a line for each change, until it is interrupted.

use crate::{
    Failure,
    args::Watch,
    resolve,
    terminal::{plain, print, print_json},
};
use atoll_client::WatchEvent;
use atoll_types::{Error, ErrorCode};

pub(crate) async fn run(options: Watch) -> Result<u8, Failure> {
    let Watch { id, path, shallow, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let mut events = client.watch(sandbox, &path, !shallow).await.map_err(|e| Failure::from(e).about(&id))?;
    while let Some(event) = events.next().await? {
        if server.json {
            print_json(&event.json)?;
        } else if event.event != "error" {
            print(&format!("{}\n", line(&event)))?;
        }
        if event.event == "error" {
            let code = event.code.as_deref().and_then(ErrorCode::from_name).unwrap_or(ErrorCode::Unavailable);
            let message = event.value.message.unwrap_or_default();
            return Err(Failure::from(Error::new(code, message)).about(&id));
        }
    }
    Ok(0)
}

fn line(event: &WatchEvent) -> String {
    let WatchEvent { event, path, to, kind, code: _, message: _ } = event;
    let folder = if kind.as_deref() == Some("directory") { "/" } else { "" };
    let name = |path: &String| format!("{}{folder}", plain(path));
    let mut line = plain(event);
    if let Some(path) = path {
        line = format!("{line:<8} {}", name(path));
    }
    if let Some(to) = to {
        line = format!("{line} -> {}", name(to));
    }
    line
}
