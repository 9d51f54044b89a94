//! The line editor of a kernel: the interpreter completes what is typed. The editor has a thread of its own; the runtime of
//! the thread that waits for its lines sends its requests to the kernel.

use crate::editor::{Completes, LineEditor, Read};
use atoll_client::{Client, Completion, Uuid};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long the kernel may take to complete before the editor gives up.
const PATIENCE: Duration = Duration::from_secs(3);
/// What the Tab key inserts at the beginning of a line.
const INDENT: &str = "    ";

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
    lines: LineEditor,
}

impl Editor {
    pub(super) fn start(client: Client, sandbox: Uuid, kernel: Uuid, language: &str) -> Self {
        let kernel = Kernel { client, sandbox, kernel };
        let completes = ByKernel { kernel: kernel.clone(), runtime: Handle::current() };
        Self { kernel, lines: LineEditor::start(prompts(language), language, completes) }
    }

    /// The next line, after the code before it.
    pub(super) async fn line(&mut self, before: &str) -> Read {
        self.lines.line(before).await
    }

    /// Whether the interpreter considers the code complete; none where it does not say.
    pub(super) async fn status(&self, code: &str) -> Option<String> {
        self.kernel.ask(code).await.map(|found| found.status)
    }
}

/// The kernel that completes code.
struct ByKernel {
    kernel: Kernel,
    runtime: Handle,
}

impl Completes for ByKernel {
    fn complete(&self, before: &str, typed: &str) -> (usize, Vec<String>) {
        if typed.trim().is_empty() {
            return (typed.len(), vec![INDENT.to_owned()]);
        }
        let code = match before.is_empty() {
            true => typed.to_owned(),
            false => format!("{before}\n{typed}"),
        };
        let found = self.runtime.block_on(self.kernel.ask(&code)).unwrap_or_default();
        within(typed, found)
    }
}

/// Where in the line the matches begin.
fn within(typed: &str, found: Completion) -> (usize, Vec<String>) {
    let Completion { matches, cursor_start, cursor_end, .. } = found;
    let replaced = cursor_end.saturating_sub(cursor_start);
    let kept = typed.chars().count().saturating_sub(replaced);
    let start = typed.char_indices().nth(kept).map_or(typed.len(), |(at, _)| at);
    (start, matches)
}

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
        assert_eq!(within("x", found(0, 9, &["x1"])), (0, vec!["x1".into()]));
        assert_eq!(within("x ", found(0, 0, &[])), (2, vec![]));
    }
}
