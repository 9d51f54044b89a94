//! Resolves what people type to an id: a whole id, the start of one, or a name. An ambiguous text is an
//! error, so that `rm` never guesses.

use crate::{Failure, snapshots, when};
use atoll_client::{
    Checkpoint, Client, Exec, Kernel, Key, ListSandboxes, ListSkills, Sandbox, Skill, Snapshot, Uuid,
    ValidPreviewToken,
};
use atoll_types::{Error, ErrorCode};
use std::collections::BTreeMap;

const SHORTEST: usize = 4;
const PAGE: u32 = 200;
/// Candidates that an error lists.
const SHOWN: usize = 10;

/// The id as people see it.
pub(crate) fn short(id: Uuid) -> String {
    id.simple().to_string()[..8].to_owned()
}

struct Candidate {
    id: Uuid,
    names: Vec<String>,
    /// Its description in the list.
    about: String,
}

/// The digits of an id's start, if the text can be one.
fn digits(text: &str) -> Option<String> {
    let digits = text.replace('-', "").to_ascii_lowercase();
    let fits = (SHORTEST..=32).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    fits.then_some(digits)
}

fn pick(what: &str, lister: &str, text: &str, candidates: Vec<Candidate>) -> Result<Uuid, Failure> {
    let start = digits(text);
    let matches = |c: &Candidate| {
        let by_id = start.as_ref().is_some_and(|d| c.id.simple().to_string().starts_with(d));
        by_id || c.names.iter().any(|name| name == text)
    };
    let found: BTreeMap<Uuid, Candidate> =
        candidates.into_iter().filter(matches).map(|c| (c.id, c)).collect();
    let mut ids = found.keys();
    match (ids.next(), found.len()) {
        (Some(id), 1) => Ok(*id),
        (None, _) => Err(missing(what, lister, text)),
        (Some(_), many) => {
            let shown = found.values().take(SHOWN);
            let lines: Vec<String> = shown.map(|c| format!("{} ({})", c.id, c.about)).collect();
            let more = if many > SHOWN { format!(" and {} more", many - SHOWN) } else { String::new() };
            let message = format!(
                "{text:?} could mean {many} of them: {}{more}; type more of the id",
                lines.join(", ")
            );
            Err(Error::new(ErrorCode::Conflict, message).into())
        }
    }
}

fn missing(what: &str, lister: &str, text: &str) -> Failure {
    let message = format!("there is no {what} {text:?}; `{lister}` lists them");
    let hexadecimal = text.bytes().all(|b| b.is_ascii_hexdigit());
    let message = match text.len() {
        1..SHORTEST if hexadecimal => {
            format!("{message}, and the start of an id has at least {SHORTEST} digits")
        }
        _ => message,
    };
    Error::new(ErrorCode::NotFound, message).into()
}

fn candidate(sandbox: Sandbox) -> Candidate {
    let Sandbox { id, status, image, created_at, session_key, .. } = sandbox;
    let about = format!("{status}, {image}, created {}", when::since(&created_at));
    Candidate { id, names: session_key.into_iter().collect(), about }
}

async fn gather(client: &Client, which: ListSandboxes) -> Result<Vec<Candidate>, Failure> {
    let mut found = Vec::new();
    for page in 1.. {
        let query = ListSandboxes { page: Some(page), page_size: Some(PAGE), ..which.clone() };
        let reply = client.list(&query).await?.value;
        let empty = reply.items.is_empty();
        found.extend(reply.items.into_iter().map(candidate));
        if empty || found.len() as u64 >= reply.total {
            break;
        }
    }
    Ok(found)
}

/// The sandbox that the text means.
pub(crate) async fn sandbox(client: &Client, text: &str) -> Result<Uuid, Failure> {
    // A whole id needs no lookup; the request itself finds out whether it exists.
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let mut candidates = Vec::new();
    if !text.is_empty() {
        let named = ListSandboxes { session_key: Some(text.to_owned()), ..ListSandboxes::default() };
        candidates.extend(gather(client, named).await?);
    }
    if let Some(digits) = digits(text) {
        let started = ListSandboxes { search: Some(digits), ..ListSandboxes::default() };
        candidates.extend(gather(client, started).await?);
    }
    pick("sandbox", "atoll ls", text, candidates)
}

/// The skill that the text means.
pub(crate) async fn skill(client: &Client, text: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let mut candidates = Vec::new();
    loop {
        let offset = Some(candidates.len() as u64);
        let query = ListSkills { offset, limit: Some(PAGE), ..ListSkills::default() };
        let page = client.list_skills(&query).await?.value;
        let empty = page.items.is_empty();
        candidates.extend(page.items.into_iter().map(|skill| {
            let Skill { id, name, user_name, .. } = skill;
            Candidate { id, names: vec![name], about: format!("of {user_name}") }
        }));
        if empty || candidates.len() as u64 >= page.total {
            return pick("skill", "atoll skill ls", text, candidates);
        }
    }
}

/// The snapshot that the text means, of those that the sandbox has.
pub(crate) async fn snapshot(client: &Client, sandbox: Uuid, text: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let candidate = |snapshot: Snapshot| {
        let Snapshot { id, label, kind, created_at, .. } = snapshot;
        let about = format!("{kind}, created {}", when::since(&created_at));
        Candidate { id, names: label.into_iter().collect(), about }
    };
    let candidates = snapshots::all(client, sandbox).await?.into_iter().map(candidate).collect();
    pick("snapshot", "atoll snapshot ls", text, candidates)
}

/// The preview token that the text means, of those of the sandbox that are valid.
pub(crate) async fn preview_token(client: &Client, sandbox: Uuid, text: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let candidate = |token: ValidPreviewToken| {
        let port = token.port.map_or_else(|| "all ports".to_owned(), |port| format!("port {port}"));
        let about = format!("{port}, created {}", when::since(&token.created_at));
        Candidate { id: token.id, names: Vec::new(), about }
    };
    let candidates = client.preview_tokens(sandbox).await?.value.into_iter().map(candidate).collect();
    pick("preview token", "atoll preview … --list", text, candidates)
}

/// The command that the text means, of those that the sandbox remembers.
pub(crate) async fn exec(client: &Client, sandbox: Uuid, text: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let candidate = |exec: Exec| {
        let about = format!("{}, {}", exec.status, exec.command);
        Candidate { id: exec.exec_id, names: Vec::new(), about }
    };
    let candidates = client.execs(sandbox).await?.value.into_iter().map(candidate).collect();
    pick("command", "atoll ps", text, candidates)
}

/// The key that the text means, of all that the caller sees.
pub(crate) fn key(keys: Vec<Key>, text: &str) -> Result<Uuid, Failure> {
    let live = |key: &Key| key.revoked_at.is_none();
    let candidates = keys.into_iter().filter(live).map(|key| {
        let about = format!("{}, of {}, {}…", key.name, key.owner, key.prefix);
        Candidate { id: key.id, names: vec![key.name, key.prefix], about }
    });
    pick("key", "atoll keys ls", text, candidates.collect())
}

/// The kernel that the text means.
pub(crate) fn kernel(all: &[Kernel], text: &str) -> Result<Uuid, Failure> {
    let candidate = |kernel: &Kernel| Candidate {
        id: kernel.kernel_id,
        names: Vec::new(),
        about: format!("{}, {}", kernel.language, kernel.status),
    };
    pick("kernel", "atoll kernels", text, all.iter().map(candidate).collect())
}

/// The checkpoint that the text means.
pub(crate) fn checkpoint(all: &[Checkpoint], text: &str) -> Result<Uuid, Failure> {
    let candidate = |checkpoint: &Checkpoint| Candidate {
        id: checkpoint.checkpoint_id,
        names: vec![checkpoint.name.clone()],
        about: format!("made {}", when::since(&checkpoint.created_at)),
    };
    pick("checkpoint", "atoll kernels --json", text, all.iter().map(candidate).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Vec<Candidate> {
        let one = |id: &str, name: &str| Candidate {
            id: id.parse().unwrap(),
            names: vec![name.into()],
            about: format!("about {name}"),
        };
        vec![
            one("3f2a11bc-0000-4000-8000-000000000001", "alpha"),
            one("3f2a22bc-0000-4000-8000-000000000002", "beta"),
            one("beef22bc-0000-4000-8000-000000000003", "3f2a11"),
            // The server finds text anywhere; only the start counts.
            one("00003f2a-0000-4000-8000-000000000004", "beta"),
            one("3f2a11bc-0000-4000-8000-000000000001", "alpha"),
        ]
    }

    fn picked(text: &str) -> Result<String, String> {
        let result = pick("sandbox", "atoll ls", text, candidates());
        result.map(short).map_err(|e| format!("{e:?}"))
    }

    #[test]
    fn starts_and_names_are_found() {
        assert_eq!(picked("3f2a2"), Ok("3f2a22bc".into()));
        assert_eq!(picked("3F2A22BC-00"), Ok("3f2a22bc".into()));
        assert_eq!(picked("alpha"), Ok("3f2a11bc".into()));
        assert_eq!(picked("0000"), Ok("00003f2a".into()));
    }

    #[test]
    fn what_could_mean_two_things_means_neither() {
        let error = picked("3f2a").unwrap_err();
        assert!(error.contains("2 of them"), "{error}");
        assert!(error.contains("3f2a11bc-0000") && error.contains("3f2a22bc-0000"), "{error}");
        assert!(!error.contains("beef22bc") && !error.contains("00003f2a"), "{error}");
        // A session key that looks like an id's start, two with one name.
        assert!(picked("3f2a11").unwrap_err().contains("beef22bc"));
        assert!(picked("beta").unwrap_err().contains("00003f2a"));
    }

    #[test]
    fn what_is_not_there_is_said() {
        assert!(picked("3f2").unwrap_err().contains("at least 4 digits"));
        assert!(picked("gamma").unwrap_err().contains("`atoll ls` lists them"));
        assert!(picked("").is_err() && picked("alph").is_err() && picked("----").is_err());
    }
}
