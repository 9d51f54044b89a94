//! What can be typed beside what is said to the agent.

use super::{remember, talk::Talk};
use crate::{Failure, editor::Completes, terminal};
use std::path::Path;

/// The commands, and what each does.
pub(crate) const COMMANDS: [(&str, &str); 9] = [
    ("/new", "begin a new conversation"),
    ("/threads", "list your conversations, or go on with one: /threads ID"),
    ("/model", "show or set the model: /model gpt-4o"),
    ("/files", "list what the agent exported"),
    ("/attach", "give the agent a file: /attach data.csv"),
    ("/approve", "which tools need your word: /approve none|all|write|network"),
    ("/export", "write the conversation as Markdown: /export talk.md"),
    ("/help", "this list"),
    ("/quit", "leave"),
];

/// How many conversations are listed.
const LISTED: u32 = 20;

/// Completes the names of commands.
pub(crate) struct ByName;

impl Completes for ByName {
    fn complete(&self, _: &str, typed: &str) -> (usize, Vec<String>) {
        let matches = COMMANDS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| name.starts_with(typed) && !typed.is_empty());
        (0, matches.map(|name| format!("{name} ")).collect())
    }
}

/// Carries out a command; false where the person wants to leave.
pub(crate) async fn carry_out(talk: &mut Talk, line: &str) -> Result<bool, Failure> {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = Some(rest.trim()).filter(|rest| !rest.is_empty());
    match (name, rest) {
        ("/quit" | "/exit", _) => return Ok(false),
        ("/new", _) => {
            talk.thread = talk.client.create_conversation().await?.thread_id.clone();
            remember(talk);
        }
        ("/threads", Some(thread)) => {
            talk.thread = talk.client.conversation(thread).await?.thread_id.clone();
            remember(talk);
        }
        ("/threads", None) => list(talk).await?,
        ("/model", Some(model)) => talk.model = Some(model.to_owned()),
        ("/model", None) => terminal::note(talk.model.as_deref().unwrap_or("as the settings say")),
        ("/approve", Some(rule)) if ["none", "all", "write", "network"].contains(&rule) => {
            talk.approve = Some(rule.to_owned());
        }
        ("/approve", _) => terminal::note("expected none, all, write or network"),
        ("/files", _) => {
            for file in talk.client.conversation_files(&talk.thread).await?.iter() {
                let path = terminal::plain(file["path"].as_str().unwrap_or_default());
                terminal::print(&format!("{path}\t{}\n", file["size"]))?;
            }
        }
        ("/attach", Some(path)) => attach(talk, Path::new(path)).await?,
        ("/export", Some(path)) => {
            let text = talk.export().await?;
            std::fs::write(path, text).map_err(|e| Failure::file(Path::new(path), &e))?;
        }
        ("/attach" | "/export", None) => terminal::note("name a file"),
        ("/help", _) => {
            for (name, what) in COMMANDS {
                terminal::print(&format!("{name:10}{what}\n"))?;
            }
        }
        _ => terminal::note("there is no such command; /help lists them"),
    }
    Ok(true)
}

async fn list(talk: &Talk) -> Result<(), Failure> {
    for one in talk.client.conversations(LISTED).await?.iter() {
        let first = one.values["messages"].as_array().and_then(|all| all.first());
        let said = first.map(|message| super::screen::text_of(&message["content"])).unwrap_or_default();
        let said: String = terminal::plain(&said).chars().take(60).collect();
        let mark = if one.thread_id == talk.thread { "*" } else { " " };
        terminal::print(&format!("{mark} {}  {:11} {said}\n", terminal::plain(&one.thread_id), one.status))?;
    }
    Ok(())
}

async fn attach(talk: &mut Talk, path: &Path) -> Result<(), Failure> {
    let content = std::fs::read(path).map_err(|e| Failure::file(path, &e))?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let kept = talk.client.attach_file(&talk.thread, &name, &content).await?;
    terminal::note(&format!("{} goes with your next message", kept.name));
    talk.attached.push(kept.path);
    Ok(())
}
