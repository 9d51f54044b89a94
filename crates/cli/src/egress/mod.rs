//! `atoll egress`.

pub(crate) mod args;

use crate::{Failure, resolve, table, terminal, when};
use args::{EgressCommand, Lists, Log, Presets, Set, Show};
use atoll_client::{
    Client, EgressDecision, EgressEntry, EgressInfo, EgressPolicy, EgressPreset, EgressRefusals, ListEgress,
    Uuid,
};
use serde_json::Value;
use std::{io::Read, time::Duration};

/// The largest page of the server.
const PAGE: usize = 500;
/// How often `--follow` polls.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(command: EgressCommand) -> Result<u8, Failure> {
    match command {
        EgressCommand::Show(options) => show(options).await,
        EgressCommand::Set(options) => set(options).await,
        EgressCommand::Log(options) => log(options).await,
        EgressCommand::Presets(options) => presets(options).await,
    }
}

/// The policy of the options; none when none was given.
pub(crate) fn policy(mode: Option<String>, lists: Lists) -> Option<EgressPolicy> {
    let Lists { preset, allow, deny, limit } = lists;
    let listed = !(preset.is_empty() && allow.is_empty());
    if mode.is_none() && !listed && deny.is_empty() && limit.is_empty() {
        return None;
    }
    let entries = |list: Vec<String>| list.into_iter().map(Value::from).collect();
    Some(EgressPolicy {
        mode: mode.unwrap_or_else(|| "allowlist".into()),
        presets: preset,
        allow: entries(allow),
        deny: entries(deny),
        limits: limit.into_iter().map(|(name, most)| (name, Some(most))).collect(),
    })
}

async fn show(options: Show) -> Result<u8, Failure> {
    let Show { id, server } = options;
    let client = server.client()?;
    let found = client.egress(resolve::sandbox(&client, &id).await?).await?;
    if server.json {
        terminal::print_json(&found.json)?;
    } else {
        terminal::print(&shown(&found))?;
    }
    Ok(0)
}

fn read(file: &std::path::Path) -> Result<Value, Failure> {
    let unreadable = |e: std::io::Error| Failure::usage("file", format!("{}: {e}", file.display()));
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
    } else {
        text = std::fs::read_to_string(file).map_err(unreadable)?;
    }
    serde_json::from_str(&text)
        .map_err(|e| Failure::usage("file", format!("{} is no JSON: {e}", file.display())))
}

async fn set(options: Set) -> Result<u8, Failure> {
    let Set { id, mode, lists, file, server } = options;
    let policy = match (file, policy(mode, lists)) {
        (Some(file), _) => read(&file)?,
        (None, Some(policy)) => serde_json::to_value(policy).unwrap_or_default(),
        (None, None) => {
            return Err(Failure::usage("mode", "say --mode, --preset, --allow, --deny or --file"));
        }
    };
    let client = server.client()?;
    let id = resolve::sandbox(&client, &id).await?;
    let found = client.set_egress(id, &policy).await?;
    if server.json {
        terminal::print_json(&found.json)?;
    } else {
        terminal::print(&shown(&found))?;
    }
    Ok(0)
}

/// An entry as a person would type it.
fn entry(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => {
            let list = |name: &str| {
                let words = other[name].as_array().into_iter().flatten().filter_map(Value::as_str);
                words.collect::<Vec<_>>().join(",")
            };
            let to = other["to"].as_str().unwrap_or_default();
            [to.to_owned(), list("methods"), list("paths")].join(" ").trim_end().to_owned()
        }
    }
}

fn place(host: &str, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn shown(info: &EgressInfo) -> String {
    let EgressInfo { policy, allow, transparent, problem, refusals, .. } = info;
    let joined = |list: Vec<String>| (!list.is_empty()).then(|| list.join(", "));
    let yes_no = |yes: &bool| if *yes { "yes" } else { "no" }.to_owned();
    let limits = policy
        .limits
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_ref()?)))
        .collect();
    let rows = [
        ("Mode", Some(policy.mode.clone())),
        ("Presets", joined(policy.presets.clone())),
        ("Deny", joined(policy.deny.iter().map(entry).collect())),
        ("Limits", joined(limits)),
        ("Served", Some(yes_no(&info.served))),
        ("Transparent", transparent.as_ref().map(yes_no)),
        ("Problem", problem.clone()),
        ("Open", Some(info.connections_open.to_string())),
        ("Allowed", Some(info.allowed.to_string())),
        ("Refused", Some(info.refused.to_string())),
        ("Sent", Some(format!("{} bytes", info.bytes_sent))),
        ("Received", Some(format!("{} bytes", info.bytes_received))),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut text = table::fields(&rows);
    if !allow.is_empty() {
        let row = |EgressEntry { entry: e, by, .. }: &EgressEntry| [entry(e), by.clone()];
        let rows: Vec<_> = allow.iter().map(row).collect();
        text += "\n";
        text += &table::render(["ALLOWED", "BY"], &rows);
    }
    if !refusals.is_empty() {
        let row = |refused: &EgressRefusals| {
            let EgressRefusals { host, port, rule, count, last_at } = refused;
            [place(host, *port), count.to_string(), when::since(last_at), rule.clone()]
        };
        let rows: Vec<_> = refusals.iter().map(row).collect();
        text += "\n";
        text += &table::render(["REFUSED", "COUNT", "LAST", "RULE"], &rows);
    }
    text
}

/// The latest decisions, the latest first.
async fn latest(
    client: &Client,
    id: Uuid,
    query: &mut ListEgress,
    limit: usize,
    json: bool,
) -> Result<Vec<EgressDecision>, Failure> {
    let (mut found, mut more) = (Vec::new(), true);
    while more && found.len() < limit {
        query.limit = u32::try_from((limit - found.len()).min(PAGE)).ok();
        let page = client.egress_log(id, query).await?;
        if json {
            terminal::print_json(&page.json)?;
        }
        query.before = page.next_before;
        more = page.next_before.is_some();
        found.extend(page.value.entries);
    }
    Ok(found)
}

async fn log(options: Log) -> Result<u8, Failure> {
    let Log { id, verdict, host, limit, follow, server } = options;
    let client = server.client()?;
    let id = resolve::sandbox(&client, &id).await?;
    let fresh = ListEgress { verdict, host, ..ListEgress::default() };
    let mut found = latest(&client, id, &mut fresh.clone(), limit, server.json).await?;
    found.reverse();
    if !server.json {
        terminal::print(&found.iter().map(line).collect::<String>())?;
    }
    let last = found.last().map_or(0, |decision| decision.seq);
    if follow { stay(&client, id, &fresh, last, server.json).await } else { Ok(0) }
}

/// Prints decisions as they come, until it is interrupted.
async fn stay(
    client: &Client,
    id: Uuid,
    which: &ListEgress,
    mut last: u64,
    json: bool,
) -> Result<u8, Failure> {
    loop {
        tokio::time::sleep(PAUSE).await;
        let page = client.egress_log(id, &ListEgress { limit: Some(PAGE as u32), ..which.clone() }).await?;
        let mut new: Vec<_> = page.value.entries.iter().filter(|d| d.seq > last).cloned().collect();
        new.reverse();
        if json && !new.is_empty() {
            terminal::print_json(&page.json)?;
        } else {
            terminal::print(&new.iter().map(line).collect::<String>())?;
        }
        last = new.last().map_or(last, |decision| decision.seq);
    }
}

/// A decision for people.
pub(crate) fn line(decision: &EgressDecision) -> String {
    let EgressDecision { at, via, host, port, method, path, verdict, rule, error, count, .. } = decision;
    let request = [method.as_deref(), path.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let moved = format!("{}/{}", decision.bytes_sent, decision.bytes_received);
    let mut words = vec![at.clone(), verdict.clone(), via.clone(), place(host, *port)];
    words.extend((!request.is_empty()).then_some(request));
    words.push(format!("({rule})"));
    words.extend((decision.bytes_sent + decision.bytes_received > 0).then(|| format!("{moved} bytes")));
    words.extend((*count > 1).then(|| format!("{count} times")));
    words.extend(error.as_ref().map(|error| format!("error: {error}")));
    format!("{}\n", terminal::plain(&words.join("  ")))
}

async fn presets(options: Presets) -> Result<u8, Failure> {
    let Presets { image, server } = options;
    let found = server.client()?.egress_presets(image.as_deref()).await?;
    if server.json {
        terminal::print_json(&found.json)?;
    } else {
        terminal::print(&listed(&found))?;
    }
    Ok(0)
}

fn listed(presets: &[EgressPreset]) -> String {
    let mut rows = Vec::new();
    for EgressPreset { name, entries, notes } in presets {
        rows.extend(entries.iter().map(|e| [name.clone(), entry(&e.entry), e.origin.clone()]));
        rows.extend(notes.iter().map(|note| [name.clone(), String::new(), note.clone()]));
    }
    table::render(["PRESET", "HOST", "FROM"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_for_people() {
        let info: EgressInfo = serde_json::from_value(json!({
            "policy": { "mode": "allowlist", "presets": ["python"], "deny": ["bad.example"], "limits": { "bytes": 5 } },
            "allow": [{ "entry": "index.example", "by": "preset python" },
                { "entry": { "to": "a.example", "methods": ["GET"], "paths": ["/v1"] }, "by": "allow" }],
            "served": true, "transparent": true, "connections_open": 1, "allowed": 2, "refused": 3,
            "bytes_sent": 4, "bytes_received": 5,
            "refusals": [{ "host": "x\u{1b}[2J.example", "port": 443, "rule": "not listed", "count": 3, "last_at": "then" }],
        }))
        .unwrap();
        insta::assert_snapshot!(shown(&info), @r"
        Mode         allowlist
        Presets      python
        Deny         bad.example
        Limits       bytes=5
        Served       yes
        Transparent  yes
        Open         1
        Allowed      2
        Refused      3
        Sent         4 bytes
        Received     5 bytes

        ALLOWED            BY
        index.example      preset python
        a.example GET /v1  allow

        REFUSED                 COUNT  LAST  RULE
        x\u{1b}[2J.example:443  3      then  not listed
        ");
    }

    #[test]
    fn a_decision_for_people() {
        let decision: EgressDecision = serde_json::from_value(json!({
            "seq": 7, "at": "then", "via": "http", "host": "a.example", "port": 80, "method": "GET", "path": "/x\n",
            "verdict": "allowed", "rule": "allow: a.example", "bytes_sent": 1, "bytes_received": 2, "count": 2,
            "error": "it broke",
        }))
        .unwrap();
        let wanted = "then  allowed  http  a.example:80  GET /x\\n  (allow: a.example)  1/2 bytes  2 times  error: it broke\n";
        assert_eq!(line(&decision), wanted);
    }
}
