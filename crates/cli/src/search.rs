//! `atoll find` and `atoll grep`: one line for each result, which other programs can read.

use crate::{
    Failure,
    args::{Find, Grep},
    resolve,
    terminal::{note, plain, print, print_json},
};
use atoll_client::{FindRequest, GrepRequest, Match};
use std::fmt::Write;

pub(crate) async fn find(options: Find) -> Result<u8, Failure> {
    let Find { id, pattern, path, kind, max_depth, limit, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let request = FindRequest { path, pattern, kind, max_depth, hidden: None, limit };
    let found = client.find(sandbox, &request).await.map_err(|e| Failure::from(e).about(&id))?;
    if server.json {
        print_json(&found.json)?;
        return Ok(0);
    }
    let mut text = String::new();
    for entry in &found.entries {
        let folder = if entry.kind == "directory" { "/" } else { "" };
        let _ = writeln!(text, "{}{folder}", plain(&entry.path));
    }
    print(&text)?;
    say_what_is_missing(found.truncated, found.skipped);
    Ok(0)
}

pub(crate) async fn grep(options: Grep) -> Result<u8, Failure> {
    let Grep { id, pattern, path, glob, literal, ignore_case, context, limit, server } = options;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let request = GrepRequest { path, pattern, literal, ignore_case, glob, context, max_matches: limit };
    let found = client.grep(sandbox, &request).await.map_err(|e| Failure::from(e).about(&id))?;
    if server.json {
        print_json(&found.json)?;
        return Ok(0);
    }
    let text: String = found.matches.iter().map(lines).collect();
    print(&text)?;
    say_what_is_missing(found.truncated, found.skipped);
    Ok(0)
}

/// A match as grep prints it: its own line with colons, those around it with dashes.
fn lines(found: &Match) -> String {
    let Match { path, line, column: _, text, before, after } = found;
    let path = plain(path);
    let mut out = String::new();
    let first = line.saturating_sub(before.len() as u64);
    for (number, text) in (first..).zip(before) {
        let _ = writeln!(out, "{path}-{number}-{}", plain(text));
    }
    let _ = writeln!(out, "{path}:{line}:{}", plain(text));
    for (number, text) in (line + 1..).zip(after) {
        let _ = writeln!(out, "{path}-{number}-{}", plain(text));
    }
    out
}

fn say_what_is_missing(truncated: bool, skipped: u64) {
    if truncated {
        note("there may be more; --limit asks for it");
    }
    if skipped > 0 {
        note(&format!("{skipped} files or folders could not be read"));
    }
}
