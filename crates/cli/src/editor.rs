//! The line editor of `atoll repl` and `atoll chat`: editing, history and completion. It blocks on keys, so it has a thread
//! of its own.

use crate::{state_dir, terminal};
use rustyline::{
    CompletionType, Config, Context, Helper, completion::Completer, error::ReadlineError,
    highlight::Highlighter, hint::Hinter, history::FileHistory, validate::Validator,
};
use std::path::PathBuf;
use tokio::sync::mpsc;

const REMEMBERED: usize = 10_000;

/// The result of reading a line.
pub(crate) enum Read {
    Line(String),
    Interrupted,
    End,
}

/// What completes a line.
pub(crate) trait Completes: Send + 'static {
    /// Where in the line the matches begin, and what they are. `before` is what was typed in the lines before.
    fn complete(&self, before: &str, typed: &str) -> (usize, Vec<String>);
}

/// A line editor at the user's terminal.
pub(crate) struct LineEditor {
    /// Sends what was typed before the requested line.
    wanted: std::sync::mpsc::Sender<String>,
    lines: mpsc::Receiver<Read>,
}

impl LineEditor {
    /// Of these prompts (of the first line, and of those that follow), with the history of this name.
    pub(crate) fn start(
        prompts: (&'static str, &'static str),
        history: &str,
        completes: impl Completes,
    ) -> Self {
        let ((wanted, asked), (sender, lines)) = (std::sync::mpsc::channel(), mpsc::channel(1));
        let history = state_dir().map(|folder| folder.join(format!("history-{history}")));
        let helper = Typing { completes: Box::new(completes), before: String::new() };
        std::thread::spawn(move || edit(helper, prompts, history, &asked, &sender));
        Self { wanted, lines }
    }

    /// The next line, after what was typed before it.
    pub(crate) async fn line(&mut self, before: &str) -> Read {
        match self.wanted.send(before.to_owned()) {
            Ok(()) => self.lines.recv().await.unwrap_or(Read::End),
            Err(_) => Read::End,
        }
    }
}

type Rustyline = rustyline::Editor<Typing, FileHistory>;

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

fn editor(helper: Typing, history: Option<&PathBuf>) -> Option<Rustyline> {
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(REMEMBERED).ok()?;
    let mut editor = Rustyline::with_config(config.auto_add_history(false).build()).ok()?;
    editor.set_helper(Some(helper));
    if let Some(history) = history {
        let _ = history.parent().map(std::fs::create_dir_all);
        let _ = editor.load_history(history);
    }
    Some(editor)
}

/// What was typed so far, and what completes it.
struct Typing {
    completes: Box<dyn Completes>,
    before: String,
}

impl Completer for Typing {
    type Candidate = String;

    /// A match that a terminal cannot show as it is is none.
    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let (start, matches) = self.completes.complete(&self.before, &line[..pos]);
        Ok((start, matches.into_iter().filter(|text| terminal::plain(text) == *text).collect()))
    }
}

impl Hinter for Typing {
    type Hint = String;
}
impl Highlighter for Typing {}
impl Validator for Typing {}
impl Helper for Typing {}
