//! `atoll events`. A broken connection is made again, and continues after the last event.

use crate::{
    Failure,
    args::Events,
    resolve,
    terminal::{self, plain, print, print_json},
};
use atoll_client::{Client, Error, EventItem, HeardEvent, ListEvents};
use atoll_types::ErrorCode;
use serde_json::Value;
use std::time::Duration;

/// How many attempts to connect may fail in a row, and the pause between them.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_secs(1);
/// The largest page of the server.
const PAGE: u32 = 1000;

pub(crate) async fn run(options: Events) -> Result<u8, Failure> {
    let Events { follow, sandbox, owner, kind, after, server } = options;
    let client = server.client()?;
    let sandbox_id = match sandbox {
        Some(typed) => Some(resolve::sandbox(&client, &typed).await?),
        None => None,
    };
    let kind = (!kind.is_empty()).then(|| kind.join(","));
    let query = ListEvents { after, sandbox_id, owner, kind, limit: None };
    if follow { listen(&client, &query, server.json).await } else { list(&client, query, server.json).await }
}

async fn list(client: &Client, mut query: ListEvents, json: bool) -> Result<u8, Failure> {
    query.limit = Some(PAGE);
    loop {
        let page = client.events(&query).await?;
        if page.missed && !json {
            terminal::note("some events are gone; look at the sandboxes themselves");
        }
        if json {
            print_json(&page.json)?;
        } else {
            print(&page.events.iter().map(line).collect::<String>())?;
        }
        if page.events.len() < PAGE as usize {
            return Ok(0);
        }
        query.after = Some(page.next_after);
    }
}

async fn listen(client: &Client, query: &ListEvents, json: bool) -> Result<u8, Failure> {
    let (mut resume, mut tries, mut connected) = (None, 0, false);
    loop {
        let reason = match hear(client, query, json, &mut resume, &mut tries).await {
            Ok(reason) => reason,
            Err(Heard::Fatal(failure)) => return Err(failure),
            // Before the first connection it is an error, not a connection that broke.
            Err(Heard::Unreachable(error)) if !connected && resume.is_none() => return Err(error.into()),
            Err(Heard::Unreachable(error)) => error.to_string(),
        };
        connected = true;
        if tries >= TRIES {
            return Err(Error::Unexpected(reason).into());
        }
        if tries == 0 {
            let after = resume.map(|id| format!(" after event {id}")).unwrap_or_default();
            terminal::note(&format!("{reason}; going on{after}"));
        }
        tries += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

enum Heard {
    Fatal(Failure),
    Unreachable(Error),
}

impl From<Failure> for Heard {
    fn from(failure: Failure) -> Self {
        Self::Fatal(failure)
    }
}

/// Follows events over one connection, and returns why it ended.
async fn hear(
    client: &Client,
    query: &ListEvents,
    json: bool,
    resume: &mut Option<u64>,
    tries: &mut u32,
) -> Result<String, Heard> {
    let broken = |error: Error| match error {
        Error::Unreachable { .. } | Error::Unexpected(_) => Heard::Unreachable(error),
        Error::Api(error) if error.status >= 500 => Heard::Unreachable(Error::Api(error)),
        other => Heard::Fatal(other.into()),
    };
    let mut events = client.follow_events(query, *resume).await.map_err(broken)?;
    while let Some(heard) = events.next().await.map_err(broken)? {
        *tries = 0;
        let HeardEvent { resume: id, kind, json: text } = heard;
        match kind.as_str() {
            "" => {}
            "error" => {
                let value: Value = serde_json::from_str(&text).unwrap_or_default();
                let code = value["code"].as_str().and_then(ErrorCode::from_name);
                let message = value["message"].as_str().unwrap_or("the events ended").to_owned();
                return match code.unwrap_or(ErrorCode::Unavailable) {
                    ErrorCode::Unavailable => Ok(message),
                    code => Err(Heard::Fatal(atoll_types::Error::new(code, message).into())),
                };
            }
            _ if json => print_json(&text)?,
            "missed" => terminal::note("some events are gone; look at the sandboxes themselves"),
            _ => {
                let wrong = |e| Error::Unexpected(format!("it sent what is no event of Atoll ({e})"));
                let item: EventItem =
                    serde_json::from_str(&text).map_err(|e| Heard::Fatal(wrong(e).into()))?;
                print(&line(&item))?;
            }
        }
        *resume = id.or(*resume);
    }
    Ok("the server ended the events".into())
}

fn line(event: &EventItem) -> String {
    let EventItem { id, at, kind, sandbox_id, owner: _, reason, data: _ } = event;
    let sandbox = sandbox_id.map_or("-".into(), resolve::short);
    let reason = reason.as_deref().map(|reason| format!("  {}", plain(reason))).unwrap_or_default();
    let line = format!("{id}  {}  {sandbox:<8}  {}{reason}", plain(at), plain(kind));
    format!("{}\n", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_people() {
        let event: EventItem = serde_json::from_value(serde_json::json!({
            "id": 7, "at": "then", "kind": "dead", "reason": "out of\nmemory\u{1b}[2J",
            "sandbox_id": "3f2a11bc-0000-4000-8000-000000000001", "new": 1,
        }))
        .unwrap();
        assert_eq!(line(&event), "7  then  3f2a11bc  dead  out of\\nmemory\\u{1b}[2J\n");
        let none = EventItem { sandbox_id: None, reason: None, ..event };
        assert_eq!(line(&none), "7  then  -         dead\n");
    }
}
