//! `atoll audit`, as far as it calls a server.

pub(crate) mod args;

use crate::{Failure, resolve, table, terminal, when};
use args::{Ask, Audit, Cleanup, Export, Filters, Ls, One, Summary};
use atoll_client::{
    AuditCleaned, AuditEnd, AuditEntry, AuditFault, AuditKept, AuditSummary, AuditTally, AuditVerdict,
    Client, ListAudit, ServerReply, Uuid,
};
use atoll_types::{Error, ErrorCode};
use std::io::{self, Write};

/// The largest page of the server.
const PAGE: usize = 500;
/// A row was tampered with.
const FAULTY: u8 = 1;
/// Verification was not possible.
const UNSURE: u8 = 2;

/// Carries out a command and returns the exit code. Errors are already printed.
pub async fn run(command: Audit) -> u8 {
    let json = command.json();
    let done = match command {
        Audit::Ls(options) => list(options).await,
        Audit::Show(options) => show(options).await,
        Audit::Output(options) => output(options).await,
        Audit::Summary(options) => summary(options).await,
        Audit::Export(options) => export(options).await,
        Audit::Cleanup(options) => cleanup(options).await,
    };
    done.unwrap_or_else(|failure| failure.report(json))
}

/// Makes the server verify the trail: 0 when it is sound, 1 when it is not, 2 when verification was not
/// possible.
pub async fn verify(ask: &Ask, expect: Option<&str>) -> u8 {
    match verified(ask, expect).await {
        Ok(code) => code,
        Err(failure) => {
            failure.report(ask.server.json);
            UNSURE
        }
    }
}

async fn query(client: &Client, filters: Filters) -> Result<ListAudit, Failure> {
    let Filters { sandbox, owner, exit_code, kind, outcome, text, since, until, open } = filters;
    let sandbox_id = match sandbox {
        Some(typed) => Some(resolve::sandbox(client, &typed).await?),
        None => None,
    };
    Ok(ListAudit {
        sandbox_id,
        owner,
        kind,
        exit_code,
        outcome,
        text,
        since,
        until,
        open,
        ..ListAudit::default()
    })
}

async fn list(options: Ls) -> Result<u8, Failure> {
    let Ls { filters, limit, server } = options;
    let client = server.client()?;
    let mut query = query(&client, filters).await?;
    let (mut entries, mut more) = (Vec::new(), true);
    while more && entries.len() < limit {
        let count = (limit - entries.len()).min(PAGE);
        query.limit = u32::try_from(count).ok();
        let page = client.audit(&query).await?;
        if server.json {
            terminal::print_json(&page.json)?;
        }
        query.before = page.next_before;
        more = page.next_before.is_some();
        entries.extend(page.value.entries);
    }
    if !server.json {
        terminal::print(&rendered(&entries))?;
        if more {
            terminal::note(&format!("{} are shown; -n shows more", entries.len()));
        }
    }
    Ok(0)
}

/// An owner's id is a UUID; its start distinguishes it from others.
fn owner(text: &str) -> String {
    Uuid::try_parse(text).map_or_else(|_| text.to_owned(), resolve::short)
}

fn ending(end: Option<&AuditEnd>) -> String {
    match end {
        None => "open".into(),
        Some(AuditEnd { exit_code: Some(code), .. }) => code.to_string(),
        Some(end) => end.outcome.clone(),
    }
}

fn millis(count: f64) -> String {
    if count < 1000.0 { format!("{count:.1}ms") } else { format!("{:.1}s", count / 1000.0) }
}

fn rendered(entries: &[AuditEntry]) -> String {
    let row = |entry: &AuditEntry| {
        [
            when::since(&entry.at),
            entry.seq.to_string(),
            owner(&entry.owner),
            entry.kind.clone(),
            entry.sandbox_id.map(resolve::short).unwrap_or_default(),
            ending(entry.ended.as_ref()),
            entry.ended.as_ref().map(|end| millis(end.duration_ms)).unwrap_or_default(),
            entry.detail.clone(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    table::render(["TIME", "ROW", "OWNER", "KIND", "SANDBOX", "EXIT", "TOOK", "DETAIL"], &rows)
}

/// The operation that begins in a row, or has an id.
async fn operation(client: &Client, typed: &str) -> Result<ServerReply<AuditEntry>, Failure> {
    if let Ok(id) = Uuid::try_parse(typed) {
        return Ok(client.audit_entry(id).await?);
    }
    let row: u64 = typed.parse().map_err(|_| Failure::usage("operation", "expected a row or an id"))?;
    let query = ListAudit { before: row.checked_add(1), limit: Some(1), ..ListAudit::default() };
    match client.audit(&query).await?.value.entries.first() {
        Some(entry) if entry.seq == row => Ok(client.audit_entry(entry.operation_id).await?),
        _ => {
            let message = format!("no operation begins in row {row}; `atoll audit ls` lists them");
            Err(Error::new(ErrorCode::NotFound, message).into())
        }
    }
}

async fn show(options: One) -> Result<u8, Failure> {
    let One { operation: typed, server } = options;
    let found = operation(&server.client()?, &typed).await?;
    if server.json {
        terminal::print_json(&found.json)?;
    } else {
        terminal::print(&shown(&found))?;
    }
    Ok(0)
}

fn shown(entry: &AuditEntry) -> String {
    let AuditEntry { ended, .. } = entry;
    let end = ended.as_ref();
    let cut = entry.detail_length > entry.detail.len() as u64;
    let detail = if cut {
        format!("{}… ({} bytes)", entry.detail, entry.detail_length)
    } else {
        entry.detail.clone()
    };
    let joined = |list: Vec<String>| (!list.is_empty()).then(|| list.join(", "));
    let extra = entry.extra.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let rows = [
        ("Operation", Some(entry.operation_id.to_string())),
        ("Row", Some(entry.seq.to_string())),
        ("Began", Some(entry.at.clone())),
        ("Kind", Some(entry.kind.clone())),
        ("Detail", Some(detail)),
        ("Directory", entry.working_directory.clone()),
        ("Variables", joined(entry.variables.clone())),
        ("Sandbox", entry.sandbox_id.map(|id| id.to_string())),
        ("Owner", Some(entry.owner.clone())),
        ("Key", entry.key_id.map(|id| id.to_string())),
        ("Front", Some(entry.front.clone())),
        ("Address", entry.address.clone()),
        ("Extra", joined(extra)),
        ("Ended", Some(end.map_or("not yet".into(), |end| end.at.clone()))),
        ("Outcome", end.map(|end| end.outcome.clone())),
        (
            "Error",
            end.and_then(|end| {
                Some(format!("{} ({})", end.error.as_ref()?.message, end.error.as_ref()?.code))
            }),
        ),
        ("Exit code", end.and_then(|end| end.exit_code).map(|code| code.to_string())),
        ("Signal", end.and_then(|end| end.signal).map(|signal| signal.to_string())),
        ("Took", end.map(|end| millis(end.duration_ms))),
        ("Cpu", end.and_then(|end| end.cpu_ms).map(millis)),
        ("Memory", end.and_then(|end| end.peak_memory_bytes).map(|bytes| format!("{bytes} bytes"))),
        ("Files", end.filter(|end| end.files_count > 0).map(|end| format!("{} changed", end.files_count))),
        ("Moved", end.and_then(|end| end.bytes).map(|bytes| format!("{bytes} bytes"))),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let mut text = table::fields(&rows);
    if !entry.egress.is_empty() {
        text += "\nWhat it asked of the network, the latest first\n";
        text.extend(entry.egress.iter().map(crate::egress::line));
    }
    text
}

async fn output(options: One) -> Result<u8, Failure> {
    let One { operation: typed, server } = options;
    let client = server.client()?;
    let id = operation(&client, &typed).await?.operation_id;
    let outputs = client.audit_output(id).await?;
    if server.json {
        terminal::print_json(&outputs.json)?;
        return Ok(0);
    }
    if let Some(stdout) = &outputs.stdout {
        terminal::print_bytes(&whole(stdout)?)?;
    }
    if let Some(stderr) = &outputs.stderr {
        let _ = io::stderr().write_all(&whole(stderr)?);
    }
    Ok(0)
}

/// The stored output, with a line where something is missing.
pub(crate) fn whole(kept: &AuditKept) -> Result<Vec<u8>, Failure> {
    let wrong = || atoll_client::Error::Unexpected("it sent what is no output".into());
    let (mut head, tail) = kept.bytes().ok_or_else(wrong)?;
    if kept.truncated {
        let missing = kept.length.saturating_sub((head.len() + tail.len()) as u64);
        head.extend(format!("\n… {missing} bytes were not kept …\n").bytes());
    }
    head.extend(tail);
    Ok(head)
}

async fn summary(options: Summary) -> Result<u8, Failure> {
    let Summary { filters, server } = options;
    let client = server.client()?;
    let query = query(&client, filters).await?;
    let summary = client.audit_summary(&query).await?;
    if server.json {
        terminal::print_json(&summary.json)?;
    } else {
        terminal::print(&added_up(&summary))?;
    }
    Ok(0)
}

fn added_up(summary: &AuditSummary) -> String {
    let AuditSummary { total, by_day, by_sandbox, by_outcome } = summary;
    let row = |name: String, tally: &AuditTally| {
        let AuditTally { count, ok, failed, duration_ms, mean_ms, .. } = tally;
        let [count, ok, failed] = [count, ok, failed].map(ToString::to_string);
        [name, count, ok, failed, millis(*duration_ms), millis(*mean_ms)]
    };
    let part = |title: &str, tallies: &[AuditTally], name: fn(&AuditTally) -> String| {
        let rows: Vec<_> = tallies.iter().map(|tally| row(name(tally), tally)).collect();
        table::render([title, "COUNT", "OK", "FAILED", "TOOK", "MEAN"], &rows)
    };
    let parts = [
        part("ALL", std::slice::from_ref(total), |_| "all".into()),
        part("DAY", by_day, |tally| tally.day.clone().unwrap_or_default()),
        part("SANDBOX", by_sandbox, |tally| tally.sandbox_id.map(resolve::short).unwrap_or_default()),
        part("OUTCOME", by_outcome, |tally| tally.outcome.clone().unwrap_or("open".into())),
    ];
    parts.join("\n")
}

async fn export(options: Export) -> Result<u8, Failure> {
    let Export { from, output, server } = options;
    let mut rows = server.client()?.audit_export(from, output).await?;
    let mut waiting = Vec::new();
    while let Some(bytes) = rows.next().await? {
        waiting.extend(bytes);
        // Whole lines only: a chunk may end within a character.
        if let Some(end) = waiting.iter().rposition(|byte| *byte == b'\n') {
            let rest = waiting.split_off(end + 1);
            terminal::print_json(&String::from_utf8_lossy(&waiting))?;
            waiting = rest;
        }
    }
    Ok(0)
}

async fn cleanup(options: Cleanup) -> Result<u8, Failure> {
    let Cleanup { before, server } = options;
    let cleaned = server.client()?.audit_cleanup(&before).await?;
    if server.json {
        terminal::print_json(&cleaned.json)?;
        return Ok(0);
    }
    let AuditCleaned { removed, removed_to, held_by } = cleaned.value;
    terminal::print(&format!("{removed} rows were removed; the trail begins with row {}\n", removed_to + 1))?;
    if let Some(operation) = held_by {
        terminal::note(&format!("operation {operation} has not ended; it and what follows it stay"));
    }
    Ok(0)
}

async fn verified(ask: &Ask, expect: Option<&str>) -> Result<u8, Failure> {
    let verdict = ask.server.client()?.audit_verify(expect).await?;
    if ask.server.json {
        terminal::print_json(&verdict.json)?;
    } else {
        terminal::print(&verdict_text(&verdict))?;
    }
    Ok(match &*verdict {
        AuditVerdict { sound: true, .. } => 0,
        AuditVerdict { unsure: Some(_), .. } => UNSURE,
        AuditVerdict { .. } => FAULTY,
    })
}

fn verdict_text(verdict: &AuditVerdict) -> String {
    let fault = |fault: &AuditFault| {
        let AuditFault { seq, kind, message } = fault;
        terminal::plain(&format!("{kind} at row {seq}: {message}"))
    };
    let number = |number: Option<u64>| number.unwrap_or(0);
    let mut lines = Vec::new();
    match verdict {
        AuditVerdict { sound: true, last, .. } if number(*last) == 0 => {
            lines.push("sound: nothing was recorded yet".into());
        }
        AuditVerdict { sound: true, first, last, mac, operations, open, remarks, .. } => {
            let [first, last, operations, open] = [first, last, operations, open].map(|n| number(*n));
            lines.push(format!(
                "sound: rows {first} to {last}, {operations} operations, {open} of them not ended"
            ));
            lines.extend(remarks.iter().map(|remark| format!("remark: {}", terminal::plain(remark))));
            let mac = terminal::plain(mac.as_deref().unwrap_or_default());
            lines.push(format!("to compare later: --expect {last}:{mac}"));
        }
        AuditVerdict { unsure: Some(why), .. } => {
            lines.push(format!("it cannot be verified: {}", terminal::plain(why)));
        }
        AuditVerdict { first_fault, noted, .. } => {
            let first = first_fault.as_ref().map(fault).unwrap_or_default();
            lines.push(format!("NOT SOUND: {first}"));
            lines.extend(noted.iter().map(|noted| format!("also: {}", fault(noted))));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry() -> AuditEntry {
        serde_json::from_value(json!({
            "operation_id": "3f2a11bc-0000-7000-8000-000000000001", "seq": 12, "at": "then", "front": "rest",
            "owner": "8b2f60aa-0000-5000-8000-000000000001", "kind": "exec", "detail": "rm\n-rf \u{1b}[2J",
            "detail_length": 9000, "variables": ["A", "B"], "unknown": 1,
            "ended": { "at": "now", "outcome": "failed", "exit_code": 3, "duration_ms": 1234.5,
                "error": { "code": "timeout", "message": "too long" }, "files_count": 2 },
        }))
        .unwrap()
    }

    #[test]
    fn operations_for_people() {
        let open = AuditEntry { ended: None, seq: 13, owner: "ann".into(), ..entry() };
        insta::assert_snapshot!(rendered(&[open, entry()]), @r"
        TIME  ROW  OWNER     KIND  SANDBOX  EXIT  TOOK  DETAIL
        then  13   ann       exec  -        open  -     rm\n-rf \u{1b}[2J
        then  12   8b2f60aa  exec  -        3     1.2s  rm\n-rf \u{1b}[2J
        ");
        insta::assert_snapshot!(shown(&entry()), @r"
        Operation  3f2a11bc-0000-7000-8000-000000000001
        Row        12
        Began      then
        Kind       exec
        Detail     rm\n-rf \u{1b}[2J… (9000 bytes)
        Variables  A, B
        Owner      8b2f60aa-0000-5000-8000-000000000001
        Front      rest
        Ended      now
        Outcome    failed
        Error      too long (timeout)
        Exit code  3
        Took       1.2s
        Files      2 changed
        ");
    }

    #[test]
    fn what_is_missing_shows() {
        let kept = |value| whole(&serde_json::from_value(value).unwrap()).ok();
        let cut =
            json!({ "encoding": "base64", "head": "/w==", "tail": "AA==", "length": 9, "truncated": true });
        let expected = [b"\xff".as_slice(), "\n… 7 bytes were not kept …\n".as_bytes(), b"\0"].concat();
        assert_eq!(kept(cut), Some(expected));
        let text = json!({ "encoding": "utf8", "head": "é", "tail": "", "length": 2, "truncated": false });
        assert_eq!(kept(text), Some("é".into()));
        assert_eq!(kept(json!({ "encoding": "rot13", "head": "x" })), None);
    }
}
