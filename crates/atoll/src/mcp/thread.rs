//! The thread of a client that starts this program again and again: one id, stored in the user's state
//! folder, so that exports keep their URLs.

use crate::cli;
use atoll_tool_sessions::ThreadId;
use atoll_types::{Error, Result};
use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path};

const NAME: &str = "mcp-thread.json";

#[derive(Serialize, Deserialize)]
struct Remembered {
    thread_id: String,
}

/// The given thread, or the stored one.
pub(super) fn remembered(options: &cli::Mcp) -> Result<ThreadId> {
    if let Some(named) = options.thread.as_deref().filter(|name| !name.is_empty()) {
        return named.parse();
    }
    let Some(folder) = atoll_cli::state_dir() else { return Ok(ThreadId::random()) };
    recall(&folder).or_else(|error| {
        // A home that cannot be written is no reason not to serve.
        eprintln!("atoll: the thread cannot be remembered: {}", error.message);
        Ok(ThreadId::random())
    })
}

fn read(path: &Path) -> Option<ThreadId> {
    let Remembered { thread_id } = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    thread_id.parse().ok()
}

fn recall(folder: &Path) -> Result<ThreadId> {
    let fault = |e: io::Error| Error::internal(format!("{}: {e}", folder.display()));
    let path = folder.join(NAME);
    if let Some(known) = read(&path) {
        return Ok(known);
    }
    let thread = ThreadId::random();
    fs::create_dir_all(folder).map_err(fault)?;
    let text = serde_json::to_string(&Remembered { thread_id: thread.to_string() }).unwrap_or_default();
    let fresh = folder.join(format!("{NAME}.{}", std::process::id()));
    fs::write(&fresh, text).map_err(fault)?;
    // Two concurrent starts must agree on one; a file that cannot be parsed is replaced.
    let linked = match fs::hard_link(&fresh, &path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && read(&path).is_some() => Ok(()),
        Err(_) => fs::rename(&fresh, &path),
        Ok(()) => Ok(()),
    };
    let _ = fs::remove_file(&fresh);
    linked.map_err(fault)?;
    read(&path).ok_or_else(|| fault(io::ErrorKind::InvalidData.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_remembered_and_what_is_spoiled_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("state/atoll");
        let first = recall(&below).unwrap();
        assert_eq!(recall(&below).unwrap(), first);
        for spoiled in ["", "{}", "{\"thread_id\":\"../x\"}"] {
            fs::write(below.join(NAME), spoiled).unwrap();
            let next = recall(&below).unwrap();
            assert_ne!(next, first);
            assert_eq!(recall(&below).unwrap(), next);
        }
        assert_eq!(fs::read_dir(&below).unwrap().count(), 1, "nothing is left beside it");
    }
}
