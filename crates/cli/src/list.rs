//! `atoll ls`.

use crate::{Failure, args::Ls, resolve::short, table, terminal, when};
use atoll_client::{Client, ListSandboxes, Sandbox, SandboxPage, ServerReply};
use clap::ValueEnum;
use std::{collections::HashSet, str::FromStr};

/// The statuses of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Status {
    Creating,
    Running,
    Paused,
    Stopped,
    Dead,
    Destroyed,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Destroyed => "destroyed",
        }
    }
}

/// A field to sort by, and the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sort {
    field: &'static str,
    order: &'static str,
}

impl FromStr for Sort {
    type Err = String;

    /// The newest and the busiest come first unless asked otherwise; names go up.
    fn from_str(text: &str) -> Result<Self, String> {
        let (field, order) = text.split_once(':').map_or((text, None), |(f, o)| (f, Some(o)));
        let (field, usual) = match field {
            "created" | "created_at" => ("created_at", "desc"),
            "activity" | "last_activity_at" => ("last_activity_at", "desc"),
            "execs" | "exec_count" => ("exec_count", "desc"),
            "status" => ("status", "asc"),
            "image" => ("image", "asc"),
            _ => return Err("expected created, activity, status, image or execs".into()),
        };
        let order = match order {
            None => usual,
            Some("asc") => "asc",
            Some("desc") => "desc",
            Some(_) => return Err("the order is :asc or :desc".into()),
        };
        Ok(Self { field, order })
    }
}

fn query(options: &Ls) -> ListSandboxes {
    let joined = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(","));
    ListSandboxes {
        page: None,
        page_size: options.all.then_some(200),
        status: joined(options.status.iter().map(|s| s.name().to_owned()).collect()),
        search: options.search.clone(),
        image: options.image.clone(),
        session_key: None,
        labels: joined(options.label.iter().map(|l| format!("{}={}", l.name, l.value)).collect()),
        sort_by: options.sort.map(|s| s.field.to_owned()),
        sort_order: options.sort.map(|s| s.order.to_owned()),
    }
}

async fn pages(
    client: &Client,
    query: ListSandboxes,
    all: bool,
) -> Result<Vec<ServerReply<SandboxPage>>, Failure> {
    let mut pages = Vec::new();
    let mut seen = 0;
    for page in 1.. {
        let reply = client.list(&ListSandboxes { page: Some(page), ..query.clone() }).await?;
        seen += reply.items.len() as u64;
        let done = !all || reply.items.is_empty() || seen >= reply.total;
        pages.push(reply);
        if done {
            break;
        }
    }
    Ok(pages)
}

pub(crate) async fn run(options: Ls) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let pages = pages(&client, query(&options), options.all).await?;
    if options.server.json {
        pages.iter().try_for_each(|page| terminal::print_json(&page.json))?;
        return Ok(0);
    }
    // A sandbox that was created meanwhile moves another to the next page.
    let mut seen = HashSet::new();
    let items: Vec<&Sandbox> = pages.iter().flat_map(|p| &p.items).filter(|s| seen.insert(s.id)).collect();
    terminal::print(&rendered(&items))?;
    let total = pages.last().map_or(0, |page| page.total);
    if !options.all && total > items.len() as u64 {
        terminal::note(&format!("{} of {total} are shown; --all shows the rest", items.len()));
    }
    Ok(0)
}

/// Mebibytes as people type them.
pub(crate) fn mebibytes(count: u64) -> String {
    if count > 0 && count.is_multiple_of(1024) { format!("{}g", count / 1024) } else { format!("{count}m") }
}

/// Labels in one line.
pub(crate) fn labels(sandbox: &Sandbox) -> String {
    sandbox.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

fn rendered(items: &[&Sandbox]) -> String {
    let row = |s: &&Sandbox| {
        [
            short(s.id),
            s.status.clone(),
            s.image.clone(),
            when::since(&s.created_at),
            when::since(&s.last_activity_at),
            mebibytes(s.memory_mb),
            s.cpu_cores.to_string(),
            s.session_key.clone().unwrap_or_default(),
            labels(s),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    table::render(
        ["ID", "STATUS", "IMAGE", "CREATED", "ACTIVE", "MEMORY", "CPUS", "SESSION KEY", "LABELS"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_for_people() {
        let one: Sandbox = serde_json::from_value(serde_json::json!({
            "id": "3f2a11bc-0000-4000-8000-000000000001", "status": "running", "image": "host",
            "created_at": "then", "last_activity_at": "just now", "memory_mb": 512, "cpu_cores": 0.5,
            "labels": { "team": "blue\u{1b}[5m", "a": "b" }, "session_key": null, "unknown": [1],
        }))
        .unwrap();
        let other = Sandbox { memory_mb: 2048, session_key: Some("chat-7".into()), ..one.clone() };
        insta::assert_snapshot!(rendered(&[&one, &other]), @r"
        ID        STATUS   IMAGE  CREATED  ACTIVE    MEMORY  CPUS  SESSION KEY  LABELS
        3f2a11bc  running  host   then     just now  512m    0.5   -            a=b,team=blue\u{1b}[5m
        3f2a11bc  running  host   then     just now  2g      0.5   chat-7       a=b,team=blue\u{1b}[5m
        ");
        insta::assert_snapshot!(rendered(&[]), @"ID  STATUS  IMAGE  CREATED  ACTIVE  MEMORY  CPUS  SESSION KEY  LABELS");
    }

    #[test]
    fn names_go_up_and_times_go_down() {
        let sort = |text: &str| text.parse::<Sort>().map(|s| format!("{} {}", s.field, s.order));
        assert_eq!(sort("created"), Ok("created_at desc".into()));
        assert_eq!(sort("image"), Ok("image asc".into()));
        assert_eq!(sort("execs:asc"), Ok("exec_count asc".into()));
        assert!(sort("").is_err() && sort("created:").is_err());
    }
}
