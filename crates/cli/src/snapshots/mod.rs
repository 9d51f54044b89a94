//! `atoll snapshot` and `atoll fork`.

pub(crate) mod args;

use crate::{Failure, failure::each, pairs, resolve, resources::RequestedResources, table, terminal, when};
use args::{
    Fork, SnapshotCommand, SnapshotCreate, SnapshotDiffOptions, SnapshotLabel, SnapshotLs, SnapshotOptions,
    SnapshotRm, SnapshotRollback,
};
use atoll_client::{Client, ForkSandbox, NewSnapshot, Rollback, Snapshot, Uuid};
use serde_json::Value;

/// Snapshots that are asked for at a time.
const PAGE: u32 = 200;

pub(crate) async fn run(options: SnapshotOptions) -> Result<u8, Failure> {
    match options.command {
        SnapshotCommand::Create(options) => create(options).await,
        SnapshotCommand::Ls(options) => list(options).await,
        SnapshotCommand::Label(options) => label(options).await,
        SnapshotCommand::Rollback(options) => rollback(options).await,
        SnapshotCommand::Diff(options) => diff(options).await,
        SnapshotCommand::Rm(options) => remove(options).await,
    }
}

/// Every snapshot of a sandbox, the newest first.
pub(crate) async fn all(client: &Client, sandbox: Uuid) -> Result<Vec<Snapshot>, Failure> {
    let mut found: Vec<Snapshot> = Vec::new();
    for page in 1.. {
        let reply = client.list_snapshots(sandbox, page, PAGE).await?.value;
        let empty = reply.items.is_empty();
        found.extend(reply.items);
        if empty || found.len() as u64 >= reply.total {
            break;
        }
    }
    Ok(found)
}

/// The same as the API has it: one page with everything.
async fn all_json(client: &Client, sandbox: Uuid) -> Result<String, Failure> {
    let first = client.list_snapshots(sandbox, 1, PAGE).await?;
    let mut items = items_of(&first.json);
    if items.len() as u64 >= first.total {
        return Ok(first.json);
    }
    for page in 2.. {
        let next = items_of(&client.list_snapshots(sandbox, page, PAGE).await?.json);
        let empty = next.is_empty();
        items.extend(next);
        if empty || items.len() as u64 >= first.total {
            break;
        }
    }
    let whole = serde_json::json!({
        "total": items.len(), "page": 1, "page_size": items.len(), "items": items,
    });
    Ok(whole.to_string())
}

fn items_of(json: &str) -> Vec<Value> {
    let page: Value = serde_json::from_str(json).unwrap_or_default();
    page["items"].as_array().cloned().unwrap_or_default()
}

async fn create(options: SnapshotCreate) -> Result<u8, Failure> {
    let SnapshotCreate { id, label, kernels, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let new = NewSnapshot { label, kernels };
    let made = client.create_snapshot(sandbox, &new).await.map_err(|e| Failure::from(e).about(&id))?;
    if server.json {
        terminal::print_json(&made.json)?;
    } else {
        // The whole id, because scripts keep it.
        terminal::print(&format!("{}\n", made.id))?;
    }
    Ok(0)
}

async fn list(options: SnapshotLs) -> Result<u8, Failure> {
    let SnapshotLs { id, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    if server.json {
        terminal::print_json(&all_json(&client, sandbox).await.map_err(|error| error.about(&id))?)?;
    } else {
        terminal::print(&rendered(&all(&client, sandbox).await?))?;
    }
    Ok(0)
}

fn rendered(snapshots: &[Snapshot]) -> String {
    let row = |snapshot: &Snapshot| {
        [
            resolve::short(snapshot.id),
            snapshot.label.clone().unwrap_or_default(),
            snapshot.kind.clone(),
            when::since(&snapshot.created_at),
            format!("{}m", snapshot.size_bytes.div_ceil(1 << 20)),
            snapshot.made_before.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = snapshots.iter().map(row).collect();
    table::render(["ID", "LABEL", "KIND", "CREATED", "SIZE", "MADE BEFORE"], &rows)
}

async fn label(options: SnapshotLabel) -> Result<u8, Failure> {
    let SnapshotLabel { id, snapshot, label, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let which = resolve::snapshot(&client, sandbox, &snapshot).await?;
    let labelled = client.label_snapshot(sandbox, which, label.as_deref()).await;
    let labelled = labelled.map_err(|e| Failure::from(e).about(&snapshot))?;
    if server.json {
        terminal::print_json(&labelled.json)?;
    } else {
        terminal::print(&format!("{}\n", resolve::short(labelled.id)))?;
    }
    Ok(0)
}

async fn rollback(options: SnapshotRollback) -> Result<u8, Failure> {
    let SnapshotRollback { id, snapshot, kernels, no_before, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let to = resolve::snapshot(&client, sandbox, &snapshot).await?;
    let how = Rollback { kernels, keep_before: no_before.then_some(false) };
    let rolled = client.roll_back(sandbox, to, how).await.map_err(|e| Failure::from(e).about(&snapshot))?;
    if server.json {
        terminal::print_json(&rolled.json)?;
        return Ok(0);
    }
    terminal::print(&format!("{}\n", resolve::short(rolled.sandbox.id)))?;
    if let Some(before) = &rolled.before {
        let before = resolve::short(before.id);
        terminal::note(&format!("the files as they were before are in the snapshot {before}"));
    }
    Ok(0)
}

async fn diff(options: SnapshotDiffOptions) -> Result<u8, Failure> {
    let SnapshotDiffOptions { id, snapshot, to, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let from = resolve::snapshot(&client, sandbox, &snapshot).await?;
    let to = match to.as_deref() {
        None | Some("now") => None,
        Some(text) => Some(resolve::snapshot(&client, sandbox, text).await?),
    };
    let found =
        client.diff_snapshot(sandbox, from, to).await.map_err(|e| Failure::from(e).about(&snapshot))?;
    if server.json {
        terminal::print_json(&found.json)?;
        return Ok(0);
    }
    let lines = found.files.iter().map(|file| {
        let sign = match file.action.as_str() {
            "created" => '+',
            "deleted" => '-',
            _ => '~',
        };
        format!("{sign} {}\n", terminal::plain(&file.path))
    });
    terminal::print(&lines.collect::<String>())?;
    if found.truncated {
        terminal::note("there may be more: the comparison has bounds");
    }
    Ok(0)
}

async fn remove(options: SnapshotRm) -> Result<u8, Failure> {
    let SnapshotRm { id, snapshots, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    each(&snapshots, server.json, async |typed| {
        let which = resolve::snapshot(&client, sandbox, typed).await?;
        client.delete_snapshot(sandbox, which).await.map_err(|e| Failure::from(e).about(typed))?;
        terminal::print_done(&resolve::short(which), server.json)
    })
    .await
}

pub(crate) async fn fork(options: Fork) -> Result<u8, Failure> {
    let Fork { id, snapshot, resources, env, secret, processes, auto_snapshot, label, server } = options;
    let RequestedResources { memory_mb, cpu_cores, disk_mb, idle_timeout_seconds, max_lifetime_seconds } =
        resources.request()?;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let snapshot = match snapshot {
        Some(text) => Some(resolve::snapshot(&client, sandbox, &text).await?),
        None => None,
    };
    let fork = ForkSandbox {
        snapshot,
        idle_timeout_seconds,
        max_lifetime_seconds,
        memory_mb,
        cpu_cores,
        disk_mb,
        processes,
        env_vars: (!env.is_empty()).then(|| pairs::map(env)),
        secrets: (!secret.is_empty()).then(|| pairs::map(secret)),
        auto_snapshot,
        labels: (!label.is_empty()).then(|| pairs::map(label)),
    };
    let made = client.fork(sandbox, &fork).await.map_err(|e| Failure::from(e).about(&id))?;
    if server.json {
        terminal::print_json(&made.json)?;
    } else {
        terminal::print(&format!("{}\n", made.id))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_for_people() {
        let snapshot: Snapshot = serde_json::from_value(serde_json::json!({
            "id": "3f2a11bc-0000-4000-8000-000000000001", "label": "before\x1b", "kind": "manual",
            "created_at": "then", "size_bytes": 1_048_577,
        }))
        .unwrap();
        insta::assert_snapshot!(rendered(&[snapshot]), @r"
        ID        LABEL         KIND    CREATED  SIZE  MADE BEFORE
        3f2a11bc  before\u{1b}  manual  then     2m    -
        ");
    }
}
