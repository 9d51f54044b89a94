//! `atoll chat`: a conversation with the agent at a terminal, or one message for scripts. The conversation is remembered by
//! the server's URL in the user's state folder, so that the next `atoll chat` goes on with it.

pub(crate) mod args;
mod commands;
mod highlight;
mod markdown;
mod pictures;
mod screen;
mod talk;

use crate::{
    Failure,
    audit::whole,
    editor::{LineEditor, Read},
    state_dir, terminal,
};
use args::Chat;
use atoll_client::{Client, Uuid};
use atoll_types::Error;
use pictures::Pictures;
use screen::Screen;
use serde_json::{Map, Value, json};
use std::{
    collections::HashMap,
    fs,
    io::{self, IsTerminal, Read as _},
    path::PathBuf,
};
use talk::{Talk, TurnEnd};

/// The most that is read from standard input.
const LONGEST_INPUT: u64 = 4 << 20;

fn memory() -> Option<PathBuf> {
    state_dir().map(|folder| folder.join("chat-threads.json"))
}

fn remembered() -> Map<String, Value> {
    let text = memory().and_then(|path| fs::read_to_string(path).ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Remembers the conversation for the next time. Without a state folder there is no memory, which is no fault.
pub(crate) fn remember(talk: &Talk) {
    let Some(path) = memory() else { return };
    let mut all = remembered();
    all.insert(talk.client.url().to_owned(), talk.thread.as_str().into());
    let _ = path.parent().map(fs::create_dir_all);
    let _ = fs::write(path, Value::Object(all).to_string());
}

/// The conversation that is named, the last one, or a new one.
async fn thread(client: &Client, options: &Chat) -> Result<String, Failure> {
    if let Some(thread) = &options.thread {
        return Ok(client.conversation(thread).await?.thread_id.clone());
    }
    let last = remembered().get(client.url()).and_then(Value::as_str).map(str::to_owned);
    if let Some(last) = last.filter(|_| !options.new) {
        // One that was deleted meanwhile is forgotten.
        if let Ok(found) = client.conversation(&last).await {
            return Ok(found.thread_id.clone());
        }
    }
    Ok(client.create_conversation().await?.thread_id.clone())
}

fn given() -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().lock().take(LONGEST_INPUT).read_to_string(&mut text);
    read.map_err(|e| Error::invalid("message", format!("standard input cannot be read: {e}")))?;
    Ok(text)
}

/// What the commands and cells of a conversation really printed, by the ids of their calls, as far as the audit trail keeps it:
/// what the model was told of it is cut.
async fn printed(client: &Client, messages: &[Value]) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for message in messages {
        let facts = &message["additional_kwargs"]["atoll"];
        let runs = facts["exec_id"].is_string() || facts["cell_id"].is_string();
        let Some(call) = message["tool_call_id"].as_str().filter(|_| runs) else { continue };
        let mut text = String::new();
        for id in facts["operation_ids"].as_array().into_iter().flatten() {
            let Some(id) = id.as_str().and_then(|id| Uuid::parse_str(id).ok()) else { continue };
            let Ok(outputs) = client.audit_output(id).await else { continue };
            for kept in [&outputs.stdout, &outputs.stderr].into_iter().flatten() {
                text += &whole(kept)
                    .map_or_else(|_| String::new(), |all| String::from_utf8_lossy(&all).into_owned());
            }
        }
        if !text.is_empty() {
            found.insert(call.to_owned(), text);
        }
    }
    found
}

/// `chat`.
pub(crate) async fn run(options: Chat) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let is_terminal = io::stdout().is_terminal();
    let colours = is_terminal && std::env::var_os("NO_COLOR").is_none();
    if let Some(thread) = &options.replay {
        let found = client.conversation(thread).await?;
        if options.server.json {
            terminal::print_json(&found.json)?;
            return Ok(0);
        }
        let messages = found.values["messages"].as_array().cloned().unwrap_or_default();
        let printed = printed(&client, &messages).await;
        Screen::new(colours, Pictures::new(is_terminal, thread)).replay(&messages, &printed)?;
        return Ok(0);
    }
    let piped = options.message.is_none() && !io::stdin().is_terminal();
    let message = match options.message.as_deref() {
        Some("-") => Some(given()?),
        None if piped => Some(given()?),
        Some(text) => Some(text.to_owned()),
        None => None,
    };
    let thread = thread(&client, &options).await?;
    let mut screen = Screen::new(colours, Pictures::new(is_terminal, &thread));
    let mut talk = Talk {
        client,
        thread,
        model: options.model,
        approve: options.approve,
        attached: Vec::new(),
        json: options.server.json,
    };
    remember(&talk);
    match message {
        Some(message) => once(&mut talk, &message, &mut screen).await,
        None => converse(&mut talk, &mut screen).await,
    }
}

/// One message of a script. Its exit code says whether the agent answered; an action that needs a word is none.
async fn once(talk: &mut Talk, message: &str, screen: &mut Screen) -> Result<u8, Failure> {
    if message.trim().is_empty() {
        return Err(Error::invalid("message", "there is nothing to say").into());
    }
    match talk.say(message, screen).await? {
        TurnEnd::Done => Ok(0),
        TurnEnd::Asks(_) => {
            terminal::note("the agent waits for your approval; answer it with `atoll chat` at a terminal");
            Ok(1)
        }
        TurnEnd::Failed | TurnEnd::Leave => Ok(1),
    }
}

async fn converse(talk: &mut Talk, screen: &mut Screen) -> Result<u8, Failure> {
    let mut editor = LineEditor::start(("> ", "… "), "chat", commands::ByName);
    terminal::note(&format!("conversation {}; /help lists commands, ctrl-d leaves", talk.thread));
    // The conversation whose open questions were asked.
    let mut asked = String::new();
    loop {
        let went = if asked == talk.thread {
            let line = match editor.line("").await {
                Read::Line(line) => line,
                Read::Interrupted | Read::End => return Ok(0),
            };
            match line.trim() {
                "" => Ok(true),
                line if line.starts_with('/') => commands::carry_out(talk, line).await,
                line => turn(talk, line, &mut editor, screen).await,
            }
        } else {
            asked.clone_from(&talk.thread);
            take_up(talk, &mut editor, screen).await
        };
        match went {
            Ok(true) => {}
            Ok(false) => return Ok(0),
            Err(failure) if failure.ends_conversation() => return Err(failure),
            Err(failure) => _ = failure.report(false),
        }
    }
}

/// What a person typed about an action, as its decision.
fn decision(word: &str, action: &Value) -> Value {
    match word {
        "y" | "yes" => return json!({ "type": "approve" }),
        "n" | "no" | "" => return json!({ "type": "reject" }),
        _ => {}
    }
    let Some(text) = word.strip_prefix("e ").map(str::trim) else {
        return json!({ "type": "reject", "message": word });
    };
    let mut args = action["args"].clone();
    match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(whole) => args = whole.into(),
        // Not JSON: the command or the code, where the action has one.
        Err(_) => match ["command", "code"].iter().find(|field| args.get(**field).is_some()) {
            Some(field) => args[*field] = text.into(),
            None => return json!({ "type": "reject", "message": word }),
        },
    }
    json!({ "type": "edit", "edited_action": { "name": action["name"], "args": args } })
}

/// Asks again what a conversation waits for since an earlier time; false where the person wants to leave.
async fn take_up(talk: &mut Talk, editor: &mut LineEditor, screen: &mut Screen) -> Result<bool, Failure> {
    let waiting = talk.waiting().await?;
    if waiting.is_empty() {
        return Ok(true);
    }
    terminal::note("this conversation waits for your decision");
    settle(talk, TurnEnd::Asks(waiting), editor, screen).await
}

/// One turn with the questions that it asks; false where the person wants to leave.
async fn turn(
    talk: &mut Talk,
    line: &str,
    editor: &mut LineEditor,
    screen: &mut Screen,
) -> Result<bool, Failure> {
    let end = talk.say(line, screen).await?;
    settle(talk, end, editor, screen).await
}

/// Asks the questions of a turn, and those that come of the answers.
async fn settle(
    talk: &mut Talk,
    mut end: TurnEnd,
    editor: &mut LineEditor,
    screen: &mut Screen,
) -> Result<bool, Failure> {
    loop {
        let actions = match end {
            TurnEnd::Asks(actions) => actions,
            TurnEnd::Leave => return Ok(false),
            TurnEnd::Done | TurnEnd::Failed => return Ok(true),
        };
        let mut decisions = Vec::new();
        for action in &actions {
            let name = terminal::plain(action["name"].as_str().unwrap_or_default());
            terminal::print(&format!("{name} {}\n", terminal::plain(&action["args"].to_string())))?;
            terminal::note(
                "approve it? y: yes, n: no, e and another command, code or arguments: run that instead, anything else: no, and that is why",
            );
            decisions.push(match editor.line("").await {
                Read::Line(word) => decision(word.trim(), action),
                Read::Interrupted | Read::End => return Ok(false),
            });
        }
        end = talk.answer(decisions, screen).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_a_decision() {
        let action =
            json!({ "name": "execute_terminal", "args": { "session_id": "1", "command": "rm -r x" } });
        let kind = |word: &str| decision(word, &action)["type"].as_str().unwrap().to_owned();
        assert_eq!(["y", "no", "", "not that"].map(kind), ["approve", "reject", "reject", "reject"]);
        assert_eq!(decision("not that", &action)["message"], "not that");
        let edited = decision("e ls x", &action);
        let wanted = json!({ "name": "execute_terminal", "args": { "session_id": "1", "command": "ls x" } });
        assert_eq!((&edited["type"], &edited["edited_action"]), (&json!("edit"), &wanted));
        let whole = decision(r#"e {"command": "ls"}"#, &action);
        assert_eq!(whole["edited_action"]["args"], json!({ "command": "ls" }));
        assert_eq!(decision("e x", &json!({ "name": "t", "args": {} }))["type"], "reject");
    }
}
