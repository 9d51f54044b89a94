//! The line editor: editing, history and completion. It blocks on keys, so it has a thread of its own; the
//! runtime of the thread that waits for its lines sends its requests to the kernel.

use crate::{state_dir, terminal};
use atoll_client::{Client, Completion, Uuid};
use rustyline::{
    CompletionType, Config, Context, Helper, completion::Completer, error::ReadlineError,
    highlight::Highlighter, hint::Hinter, history::FileHistory, validate::Validator,
};
use std::{path::PathBuf, time::Duration};
use tokio::{runtime::Handle, sync::mpsc};

/// How long the kernel may take to complete before the editor gives up.
const PATIENCE: Duration = Duration::from_secs(3);
const REMEMBERED: usize = 10_000;
/// What the Tab key inserts at the beginning of a line.
const INDENT: &str = "    ";

/// The result of reading a line.
pub(super) enum Read {
    Line(String),
    Interrupted,
    End,
}

#[derive(Clone)]
struct Kernel {
    client: Client,
    sandbox: Uuid,
    kernel: Uuid,
}

impl Kernel {
    async fn ask(&self, code: &str) -> Option<Completion> {
        let asked = self.client.complete_code(self.sandbox, self.kernel, code);
        Some(tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()?.value)
    }
}

/// The prompts of each interpreter: of the first line, and of those that follow.
fn prompts(language: &str) -> (&'static str, &'static str) {
    match language {
        "node" => ("> ", "... "),
        "r" => ("> ", "+ "),
        "bash" => ("$ ", "> "),
        _ => (">>> ", "... "),
    }
}

/// A line editor at the user's terminal.
pub(super) struct Editor {
    kernel: Kernel,
    /// Sends the code before the requested line.
    wanted: std::sync::mpsc::Sender<String>,
    lines: mpsc::Receiver<Read>,
}

impl Editor {
    pub(super) fn start(client: Client, sandbox: Uuid, kernel: Uuid, language: &str) -> Self {
        let kernel = Kernel { client, sandbox, kernel };
        let ((wanted, asked), (sender, lines)) = (std::sync::mpsc::channel(), mpsc::channel(1));
        let history = state_dir().map(|folder| folder.join(format!("history-{language}")));
        let helper = Typing { kernel: kernel.clone(), runtime: Handle::current(), before: String::new() };
        let prompts = prompts(language);
        std::thread::spawn(move || edit(helper, prompts, history, &asked, &sender));
        Self { kernel, wanted, lines }
    }

    /// The next line, after the code before it.
    pub(super) async fn line(&mut self, before: &str) -> Read {
        match self.wanted.send(before.to_owned()) {
            Ok(()) => self.lines.recv().await.unwrap_or(Read::End),
            Err(_) => Read::End,
        }
    }

    /// Whether the interpreter considers the code complete; none where it does not say.
    pub(super) async fn status(&self, code: &str) -> Option<String> {
        self.kernel.ask(code).await.map(|found| found.status)
    }
}

type LineEditor = rustyline::Editor<Typing, FileHistory>;

fn edit(
    helper: Typing,
    (first, next): (&str, &str),
    history: Option<PathBuf>,
    asked: &std::sync::mpsc::Receiver<String>,
    lines: &mpsc::Sender<Read>,
) {
    let Some(mut editor) = editor(helper, history.as_ref()) else { return };
    while let Ok(before) = asked.recv() {
        let prompt = if before.is_empty() { first } else { next };
        if let Some(helper) = editor.helper_mut() {
            helper.before = before;
        }
        let read = match editor.readline(prompt) {
            Ok(line) => {
                let _ = editor.add_history_entry(line.as_str());
                Read::Line(line)
            }
            Err(ReadlineError::Interrupted) => Read::Interrupted,
            Err(_) => Read::End,
        };
        // Saved after each line, so that a killed program loses nothing.
        if let Some(history) = &history {
            let _ = editor.append_history(history);
        }
        if lines.blocking_send(read).is_err() {
            return;
        }
    }
}

fn editor(helper: Typing, history: Option<&PathBuf>) -> Option<LineEditor> {
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(REMEMBERED).ok()?;
    let mut editor = LineEditor::with_config(config.auto_add_history(false).build()).ok()?;
    editor.set_helper(Some(helper));
    if let Some(history) = history {
        let _ = history.parent().map(std::fs::create_dir_all);
        let _ = editor.load_history(history);
    }
    Some(editor)
}

/// The code so far, and the kernel that completes it.
struct Typing {
    kernel: Kernel,
    runtime: Handle,
    before: String,
}

impl Completer for Typing {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..pos];
        if typed.trim().is_empty() {
            return Ok((pos, vec![INDENT.to_owned()]));
        }
        let code = match self.before.is_empty() {
            true => typed.to_owned(),
            false => format!("{}\n{typed}", self.before),
        };
        let found = self.runtime.block_on(self.kernel.ask(&code)).unwrap_or_default();
        Ok(within(typed, found))
    }
}

/// Where in the line the matches begin, and those that a terminal can show as they are.
fn within(typed: &str, found: Completion) -> (usize, Vec<String>) {
    let Completion { matches, cursor_start, cursor_end, .. } = found;
    let replaced = cursor_end.saturating_sub(cursor_start);
    let kept = typed.chars().count().saturating_sub(replaced);
    let start = typed.char_indices().nth(kept).map_or(typed.len(), |(at, _)| at);
    (start, matches.into_iter().filter(|text| terminal::plain(text) == *text).collect())
}

impl Hinter for Typing {
    type Hint = String;
}
impl Highlighter for Typing {}
impl Validator for Typing {}
impl Helper for Typing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_stand_where_the_word_begins() {
        let found = |start, end, matches: &[&str]| Completion {
            matches: matches.iter().map(ToString::to_string).collect(),
            cursor_start: start,
            cursor_end: end,
            status: String::new(),
        };
        assert_eq!(within("é = pri", found(14, 17, &["print"])), (5, vec!["print".into()]));
        assert_eq!(within("x", found(0, 9, &["x1", "x\u{202e}"])), (0, vec!["x1".into()]));
        assert_eq!(within("x ", found(0, 0, &[])), (2, vec![]));
    }
}
