//! `atoll repl`: lines from a terminal, a cell for each complete piece of code. The kernel keeps its
//! variables after the repl ends.

use super::{args::Repl, editor::Editor, follow, show::Shown};
use crate::{Failure, editor::Read, resolve, terminal};
use atoll_client::{RunCode, StartKernel};
use std::io::{self, BufRead, IsTerminal};
use tokio::sync::mpsc;

/// The longest that a cell of it may run.
const SECONDS: f64 = 24.0 * 3600.0;

/// Whether more lines belong to the code. Only code that is certainly incomplete does: an open bracket or
/// triple quote, a line that ends with an operator that needs another, or an open block.
fn is_open(language: &str, code: &str) -> bool {
    let last = code.rsplit('\n').next().unwrap_or_default();
    if last.trim_end().ends_with('\\') {
        return true;
    }
    match language {
        "python" => {
            let triple = code.matches("\"\"\"").count() % 2 == 1 || code.matches("'''").count() % 2 == 1;
            let block = code.lines().any(|line| {
                let line = line.trim_end();
                line.ends_with(':') || line.starts_with('@')
            });
            triple || brackets(code) > 0 || (block && !last.trim().is_empty())
        }
        "bash" => unfinished_shell(code),
        "r" => scan(code, "#", &['"', '\'', '`'], false).goes_on("+-*/^=~&|<>%!,?:$@"),
        _ => scan(code, "//", &['`'], true).goes_on("+-*%=<>&|^?:,.!"),
    }
}

/// What of a piece of code is not finished.
#[derive(Default)]
struct Scan {
    /// How many brackets are open, outside of texts and comments.
    open: i32,
    /// The quote of a text that goes on.
    quote: Option<char>,
    /// Whether a comment between `/*` and `*/` goes on.
    in_comment: bool,
    /// The last line without its texts and comments.
    end: String,
}

/// Reads code whose comments begin with this, to the end of the line or, in some languages, up to `*/`. Texts in some
/// quotes span lines; any other ends with its line.
fn scan(code: &str, comment: &str, spans: &[char], blocks: bool) -> Scan {
    let mut seen = Scan::default();
    for line in code.lines() {
        seen.end.clear();
        let mut chars = line.char_indices();
        while let Some((at, c)) = chars.next() {
            let rest = &line[at..];
            if seen.in_comment {
                if rest.starts_with("*/") {
                    seen.in_comment = false;
                    chars.next();
                }
            } else if c == '\\' {
                seen.end.push(c);
                chars.next();
            } else if let Some(quote) = seen.quote {
                seen.quote = Some(quote).filter(|quote| *quote != c);
            } else if rest.starts_with(comment) {
                break;
            } else if blocks && rest.starts_with("/*") {
                seen.in_comment = true;
                chars.next();
            } else {
                match c {
                    '"' | '\'' | '`' => seen.quote = Some(c),
                    '(' | '[' | '{' => seen.open += 1,
                    ')' | ']' | '}' => seen.open -= 1,
                    _ => {}
                }
                seen.end.push(c);
            }
        }
        seen.quote = seen.quote.filter(|quote| spans.contains(quote));
    }
    seen
}

/// How many brackets are open, outside of texts and of comments that begin with #.
fn brackets(code: &str) -> i32 {
    scan(code, "#", &['`'], false).open
}

impl Scan {
    /// Whether more must follow, also after any of these operators at its end.
    fn goes_on(&self, operators: &str) -> bool {
        let end = self.end.trim_end();
        let steps = end.ends_with("++") || end.ends_with("--");
        self.open > 0
            || self.quote.is_some()
            || self.in_comment
            || (!steps && end.ends_with(|c: char| operators.contains(c)))
    }
}

/// Whether a shell would prompt for more: a loop, a condition or a quote that has not ended.
fn unfinished_shell(code: &str) -> bool {
    let words: Vec<&str> = code.split(|c: char| c.is_whitespace() || c == ';').collect();
    let count = |all: &[&str]| words.iter().filter(|word| all.contains(word)).count();
    let quotes = |c: char| code.matches(c).count() % 2 == 1;
    count(&["do"]) > count(&["done"])
        || count(&["if"]) > count(&["fi"])
        || count(&["case"]) > count(&["esac"])
        || brackets(code) > 0
        || quotes('"')
        || quotes('\'')
}

/// The source of lines.
enum Lines {
    /// A person at a terminal.
    Typed(Box<Editor>),
    /// A file or a pipe. Reading blocks, so it has a thread of its own.
    Given(mpsc::Receiver<String>),
}

fn given() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Lines {
    async fn next(&mut self, before: &str) -> Read {
        match self {
            Self::Typed(editor) => editor.line(before).await,
            Self::Given(lines) => tokio::select! {
                line = lines.recv() => line.map_or(Read::End, Read::Line),
                _ = tokio::signal::ctrl_c() => Read::Interrupted,
            },
        }
    }
}

/// `repl`.
pub(crate) async fn run(options: Repl) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let language = options.language.to_lowercase();
    let interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut lines = match interactive {
        true => {
            let wanted =
                StartKernel { language: Some(language.clone()), default: true, ..StartKernel::default() };
            let kernel =
                client.start_kernel(id, &wanted).await.map_err(|e| Failure::from(e).about(&options.id))?;
            terminal::note(&format!("{}; ctrl-d leaves, and the variables stay", kernel.interpreter));
            Lines::Typed(Box::new(Editor::start(client.clone(), id, kernel.kernel_id, &kernel.language)))
        }
        false => Lines::Given(given()),
    };
    let mut shown = Shown::new(options.display_dir.clone(), options.server.json);
    let (mut code, mut well) = (String::new(), true);
    let request = |code: String| RunCode {
        code,
        language: Some(options.language.clone()),
        timeout: Some(SECONDS),
        kernel: None,
    };
    loop {
        let line = match lines.next(&code).await {
            Read::Line(line) => line,
            Read::Interrupted => {
                code.clear();
                continue;
            }
            Read::End => break,
        };
        if !code.is_empty() {
            code.push('\n');
        }
        code.push_str(&line);
        if code.trim().is_empty() {
            code.clear();
            continue;
        }
        if is_open_at(&lines, &language, &code).await {
            continue;
        }
        well = cell(&client, id, &request(std::mem::take(&mut code)), &mut shown, &options.id).await?;
    }
    if !code.trim().is_empty() {
        well = cell(&client, id, &request(code), &mut shown, &options.id).await?;
    }
    // The last cell of a script sets the exit code; a person has seen it.
    Ok(u8::from(!well && !interactive))
}

/// Whether more lines belong to the code, by the interpreter where it can tell.
async fn is_open_at(lines: &Lines, language: &str, code: &str) -> bool {
    let status = match lines {
        Lines::Typed(editor) => editor.status(code).await,
        Lines::Given(_) => None,
    };
    match status.as_deref() {
        Some("incomplete") => true,
        Some("complete" | "invalid") => false,
        _ => is_open(language, code),
    }
}

/// One cell. An error of the server is printed, and the repl continues.
async fn cell(
    client: &atoll_client::Client,
    id: atoll_client::Uuid,
    request: &RunCode,
    shown: &mut Shown,
    typed: &str,
) -> Result<bool, Failure> {
    match follow(client, id, request, shown).await {
        Ok(success) => {
            if success.is_none() {
                terminal::note("interrupted");
            }
            Ok(success.unwrap_or(false))
        }
        Err(failure) if failure.is_fatal() || failure.is_missing() => Err(failure.about(typed)),
        Err(failure) => {
            failure.about(typed).report(false);
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_open;

    #[test]
    fn what_is_not_whole_waits_for_more() {
        for (language, code, open) in [
            ("python", "1 + 1", false),
            ("python", "f(1,", true),
            ("python", "f(1,\n2)", false),
            ("python", "def f():", true),
            ("python", "def f():\n    return 1", true),
            ("python", "def f():\n    return 1\n", false),
            ("python", "x = '''a", true),
            ("python", "print('(') # (", false),
            ("python", "a = 1 + \\", true),
            ("node", "function f() {", true),
            ("node", "function f() {\n}", false),
            ("node", "console.log('{')", false),
            ("r", "f <- function(x) {", true),
            ("r", "f <- function(x) {\nx }", false),
            ("r", "x <- 1 +", true),
            ("r", "x <- 1 +\n2", false),
            ("r", "c(1, 2) |> # of both", true),
            ("r", "x <- 'a", true),
            ("r", "x <- 'a\nb'", false),
            ("r", "# x (", false),
            ("node", "1 +", true),
            ("node", "1 +\n2", false),
            ("node", "i++", false),
            ("node", "'http://x' +", true),
            ("node", "`a", true),
            ("node", "`a\nb (`", false),
            ("node", "/* a", true),
            ("node", "/* a\n( */ 1 // (", false),
            ("node", "/'/.test('x')", false),
            ("bash", "for i in 1 2; do", true),
            ("bash", "for i in 1 2; do\necho $i\ndone", false),
            ("bash", "echo 'a", true),
            ("bash", "echo done", false),
        ] {
            assert_eq!(is_open(language, code), open, "{language}: {code:?}");
        }
    }
}
