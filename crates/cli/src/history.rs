//! `atoll history`: the changes of a file, as `git log -- PATH` lists them.

use crate::{Failure, args::History, resolve, table, terminal, when};
use atoll_client::FileHistoryEntry;

/// The largest page of the server.
const PAGE: usize = 500;

pub(crate) async fn run(options: History) -> Result<u8, Failure> {
    let History { id, path, limit, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let (mut entries, mut before, mut more, mut truncated) = (Vec::new(), None, true, false);
    while more && entries.len() < limit {
        let count = u32::try_from((limit - entries.len()).min(PAGE)).ok();
        let page = client.file_history(sandbox, &path, before, count).await;
        let page = page.map_err(|e| Failure::from(e).about(&id))?;
        if server.json {
            terminal::print_json(&page.json)?;
        }
        (before, more) = (page.next_before, page.next_before.is_some());
        truncated |= page.truncated;
        entries.extend(page.value.entries);
    }
    if server.json {
        return Ok(0);
    }
    terminal::print(&rendered(&entries))?;
    if truncated {
        terminal::note(
            "unknown: more files were changed than the audit trail names; this may be one of them",
        );
    }
    if more {
        terminal::note(&format!("{} are shown; -n shows more", entries.len()));
    }
    Ok(0)
}

fn rendered(entries: &[FileHistoryEntry]) -> String {
    let row = |entry: &FileHistoryEntry| {
        let run = entry.exec_id.as_ref().or(entry.cell_id.as_ref());
        [
            when::since(&entry.at),
            entry.action.clone(),
            entry.size.map(|bytes| bytes.to_string()).unwrap_or_default(),
            entry.kind.clone().unwrap_or_default(),
            run.map(|id| id.chars().take(8).collect()).unwrap_or_default(),
            entry.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            entry.detail.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = entries.iter().map(row).collect();
    table::render(["TIME", "ACTION", "SIZE", "KIND", "EXEC", "EXIT", "DETAIL"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_for_people() {
        let entries: Vec<FileHistoryEntry> = serde_json::from_value(json!([
            { "at": "now", "action": "unknown", "kind": "exec", "exec_id": "0123456789abcdef", "exit_code": 0,
                "detail": "npm\ninstall" },
            { "at": "then", "action": "created", "size": 12 },
        ]))
        .unwrap();
        insta::assert_snapshot!(rendered(&entries), @r"
        TIME  ACTION   SIZE  KIND  EXEC      EXIT  DETAIL
        now   unknown  -     exec  01234567  0     npm\ninstall
        then  created  12    -     -         -     -
        ");
    }
}
