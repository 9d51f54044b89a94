//! What a person sees of a run: the model's text as it comes, reasoning dimmed, calls of tools as panels with their output.
//! Everything that a model or a sandbox wrote is escaped before it reaches the terminal; styles are added after that.

use super::{highlight::Highlighter, markdown::Markdown, pictures::Pictures};
use crate::{Failure, terminal};
use serde_json::{Map, Value};
use std::{
    collections::{HashMap, HashSet},
    io::{self, Write},
};

const DIM: &str = "\u{1b}[2m";
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";
/// Lines of a tool's result that are shown where its output was not seen already.
const FOLDED: usize = 8;
/// Characters of such a line.
const LONGEST_LINE: usize = 160;

/// Where the last character went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Text,
    Reasoning,
    Output,
}

/// What a terminal shows of a conversation.
pub(crate) struct Screen {
    out: Box<dyn Write + Send>,
    colours: bool,
    part: Part,
    markdown: Markdown,
    /// The call whose output ended within a line: the next piece goes on there.
    open: Option<String>,
    /// Calls whose output was shown while they ran.
    printed: HashSet<String>,
    /// What sessions run, by their ids: so code has its language.
    runtimes: HashMap<String, String>,
    pictures: Pictures,
}

/// Text of several lines, each without control characters.
fn lines(text: &str) -> impl Iterator<Item = String> {
    text.split('\n').map(|line| terminal::plain(&line.trim_end_matches('\r').replace('\t', "    ")))
}

/// The lines of a tool's result: each field of its JSON by its name, and text as it is.
fn result_lines(content: &str) -> Vec<String> {
    let Ok(fields) = serde_json::from_str::<Map<String, Value>>(content) else {
        return lines(content).collect();
    };
    let mut all = Vec::new();
    for (name, value) in &fields {
        let text = match value {
            Value::Null => continue,
            Value::String(text) => text.trim_end().to_owned(),
            other => other.to_string(),
        };
        let name = terminal::plain(name);
        match text.contains('\n') {
            true => {
                all.push(format!("{name}:"));
                all.extend(lines(&text).map(|line| format!("  {line}")));
            }
            false => {
                all.extend(
                    lines(&text).filter(|line| !line.is_empty()).map(|line| format!("{name}: {line}")),
                );
            }
        }
    }
    all
}

/// A line as far as it is shown.
fn folded(line: &str) -> String {
    match line.char_indices().nth(LONGEST_LINE) {
        Some((at, _)) => format!("{}… {} bytes more", &line[..at], line.len() - at),
        None => line.to_owned(),
    }
}

impl Screen {
    pub(crate) fn new(colours: bool, pictures: Pictures) -> Self {
        Self::at(Box::new(io::stdout()), colours, pictures)
    }

    fn at(out: Box<dyn Write + Send>, colours: bool, pictures: Pictures) -> Self {
        Self {
            out,
            colours,
            part: Part::Nothing,
            markdown: Markdown::new(),
            open: None,
            printed: HashSet::new(),
            runtimes: HashMap::new(),
            pictures,
        }
    }

    fn print(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).map_err(Failure::output)
    }

    fn style(&self, style: &str, text: &str) -> String {
        if self.colours && !text.is_empty() { format!("{style}{text}{PLAIN}") } else { text.to_owned() }
    }

    /// Ends what was written before something else begins.
    fn turn(&mut self, part: Part) -> Result<(), Failure> {
        if self.part == part {
            return Ok(());
        }
        let mut rest = self.markdown.end();
        if self.open.take().is_some() || matches!(self.part, Part::Text | Part::Reasoning) {
            rest.push('\n');
        }
        self.part = part;
        self.print(&rest)
    }

    /// Text of the model: Markdown in styles at a terminal, and as it is elsewhere.
    fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.turn(Part::Text)?;
        let plain = lines(text).collect::<Vec<_>>().join("\n");
        let shown = if self.colours { self.markdown.push(&plain) } else { plain };
        self.print(&shown)
    }

    fn reasoning(&mut self, text: &str) -> Result<(), Failure> {
        self.turn(Part::Reasoning)?;
        let dimmed: Vec<_> = lines(text).map(|line| self.style(DIM, &line)).collect();
        self.print(&dimmed.join("\n"))
    }

    /// The language of a call's code.
    fn language(&self, name: &str, args: &Value) -> &str {
        let session = args["session_id"].as_str().unwrap_or_default();
        match name {
            "execute_terminal" => "bash",
            _ => self.runtimes.get(session).map_or("python", String::as_str),
        }
    }

    /// A call of a tool: its name, and its code or arguments.
    pub(crate) fn call(&mut self, name: &str, args: &Value) -> Result<(), Failure> {
        self.turn(Part::Nothing)?;
        let mut out = format!("╭ {}\n", self.style(BOLD, &terminal::plain(name)));
        let long = ["code", "command"].iter().find_map(|field| args.get(field)?.as_str());
        let json = args.to_string();
        let (code, language) = match long {
            Some(code) => (code, self.language(name, args)),
            None => (json.as_str(), "json"),
        };
        let mut highlighter = Highlighter::new(if self.colours { language } else { "" });
        for line in lines(code) {
            out.push_str(&format!("│ {}\n", highlighter.line(&line)));
        }
        self.print(&out)
    }

    /// A piece of what a tool prints. It goes on where the last piece ended, which may be within a line.
    fn output(&mut self, call: &str, text: &str) -> Result<(), Failure> {
        self.turn(Part::Output)?;
        self.printed.insert(call.to_owned());
        let (mut out, bar) = (String::new(), self.style(DIM, "│ "));
        if self.open.as_deref().is_some_and(|open| open != call) {
            self.open = None;
            out.push('\n');
        }
        for (number, line) in lines(text).enumerate() {
            if number > 0 {
                if self.open.take().is_none() {
                    out.push_str(bar.trim_end());
                }
                out.push('\n');
            }
            if !line.is_empty() {
                if self.open.is_none() {
                    self.open = Some(call.to_owned());
                    out.push_str(&bar);
                }
                out.push_str(&line);
            }
        }
        self.print(&out)
    }

    /// A tool's message: its result folded, unless its output was seen while it ran.
    pub(crate) fn result(&mut self, message: &Value) -> Result<(), Failure> {
        self.turn(Part::Nothing)?;
        let content = message["content"].as_str().unwrap_or_default();
        let call = message["tool_call_id"].as_str().unwrap_or_default();
        if message["name"] == "create_session" {
            let made: Value = serde_json::from_str(content).unwrap_or_default();
            let runs = made["session_id"].as_str().zip(made["runtime"].as_str());
            self.runtimes.extend(runs.map(|(session, runtime)| (session.to_owned(), runtime.to_owned())));
        }
        let failed = message["status"] == "error";
        let seen = self.printed.contains(call);
        let mut out = String::new();
        if failed || !seen {
            let all = result_lines(content);
            for line in all.iter().take(FOLDED) {
                out.push_str(&format!("{}{}\n", self.style(DIM, "│ "), folded(line)));
            }
            if all.len() > FOLDED {
                out.push_str(&self.style(DIM, &format!("│ … {} lines more\n", all.len() - FOLDED)));
            }
        }
        let facts = &message["additional_kwargs"]["atoll"];
        let id = ["exec_id", "cell_id"].iter().find_map(|name| facts[*name].as_str()).unwrap_or_default();
        let mark = if failed { "failed" } else { "done" };
        out.push_str(&self.style(DIM, format!("╰ {mark} {}", terminal::plain(id)).trim_end()));
        out.push('\n');
        for picture in message["artifact"]["display_outputs"].as_array().into_iter().flatten() {
            out.push_str(&self.pictures.shown(picture)?);
        }
        self.print(&out)
    }

    /// A piece of a message, or a whole one.
    pub(crate) fn message(&mut self, message: &Value) -> Result<(), Failure> {
        match &message["content"] {
            _ if message["type"] == "tool" => self.result(message),
            Value::String(text) if !text.is_empty() => self.text(text),
            Value::Array(blocks) => blocks.iter().try_for_each(|block| {
                match (block["text"].as_str(), block["reasoning"].as_str()) {
                    (Some(text), _) => self.text(text),
                    (_, Some(thought)) => self.reasoning(thought),
                    _ => Ok(()),
                }
            }),
            _ => Ok(()),
        }
    }

    /// What tools tell while they run.
    pub(crate) fn custom(&mut self, data: &Value) -> Result<(), Failure> {
        let call = data["tool_call_id"].as_str().unwrap_or_default();
        match data["type"].as_str() {
            Some("tool_started") => self.call(data["name"].as_str().unwrap_or_default(), &data["args"]),
            Some("tool_output") => self.output(call, data["text"].as_str().unwrap_or_default()),
            _ => Ok(()),
        }
    }

    /// A whole conversation, as it was, with what its tools printed where that is known.
    pub(crate) fn replay(
        &mut self,
        messages: &[Value],
        printed: &HashMap<String, String>,
    ) -> Result<(), Failure> {
        for message in messages {
            match message["type"].as_str() {
                Some("human") => {
                    self.turn(Part::Nothing)?;
                    let said = text_of(&message["content"]);
                    let said = lines(said.trim_end()).collect::<Vec<_>>().join("\n  ");
                    let said = self.style(BOLD, &format!("> {said}"));
                    self.print(&format!("{said}\n"))?;
                }
                Some("ai") => {
                    self.message(message)?;
                    for call in message["tool_calls"].as_array().into_iter().flatten() {
                        self.call(call["name"].as_str().unwrap_or_default(), &call["args"])?;
                    }
                }
                _ => {
                    let call = message["tool_call_id"].as_str().unwrap_or_default();
                    if let Some(text) = printed.get(call) {
                        self.output(call, text)?;
                    }
                    self.message(message)?;
                }
            }
        }
        self.end()
    }

    /// Ends the last line.
    pub(crate) fn end(&mut self) -> Result<(), Failure> {
        self.turn(Part::Nothing)
    }
}

/// The texts of a content.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is shown by these steps.
    fn shown(colours: bool, steps: impl FnOnce(&mut Screen) -> Result<(), Failure>) -> String {
        let paper = Paper::default();
        let mut screen = Screen::at(Box::new(paper.clone()), colours, Pictures::new(false, "t"));
        steps(&mut screen).unwrap();
        screen.end().unwrap();
        let bytes = paper.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn printed(call: &str, text: &str) -> Value {
        json!({ "type": "tool_output", "tool_call_id": call, "stream": "stdout", "text": text })
    }

    #[test]
    fn pieces_of_a_line_are_one_line() {
        let pieces = |pieces: &[(&str, &str)]| {
            shown(false, |screen| {
                pieces.iter().try_for_each(|(call, text)| screen.custom(&printed(call, text)))
            })
        };
        assert_eq!(
            pieces(&[("a", "on"), ("a", "e\ntw"), ("a", "o"), ("a", "\n"), ("a", "three\n")]),
            "│ one\n│ two\n│ three\n"
        );
        assert_eq!(pieces(&[("a", "x\n\ny")]), "│ x\n│\n│ y\n", "an empty line stays");
        assert_eq!(
            pieces(&[("a", "50"), ("b", "other\n"), ("a", " %\n")]),
            "│ 50\n│ other\n│  %\n",
            "two at once"
        );
    }

    #[test]
    fn nothing_that_a_tool_or_a_model_writes_steers_the_terminal() {
        let hostile = "\u{1b}]0;title\u{7}\u{1b}[2J";
        let shown = shown(false, |screen| {
            screen.message(&json!({ "type": "AIMessageChunk", "content": hostile }))?;
            screen.call(hostile, &json!({ "code": hostile }))?;
            screen.custom(&printed("c", hostile))?;
            screen.result(
                &json!({ "type": "tool", "content": hostile, "status": "error", "tool_call_id": "c" }),
            )
        });
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    }

    #[test]
    fn a_result_is_folded() {
        let result = |content: &str| {
            shown(false, |screen| {
                screen.result(&json!({ "type": "tool", "content": content, "status": "success" }))
            })
        };
        let files = json!({ "error": null, "files": [{ "n": 1 }], "stderr": "", "stdout": "one\ntwo\n", "success": true });
        let wanted = "│ files: [{\"n\":1}]\n│ stdout:\n│   one\n│   two\n│ success: true\n╰ done\n";
        assert_eq!(result(&files.to_string()), wanted);
        let long = json!({ "stdout": "line\n".repeat(20), "x": "y".repeat(1000) }).to_string();
        let shown = result(&long);
        assert!(shown.contains("│ … 14 lines more\n") && shown.matches("line\n").count() == 7, "{shown}");
        assert_eq!(result(&"é".repeat(170)), format!("│ {}… 20 bytes more\n╰ done\n", "é".repeat(160)));
    }

    #[test]
    fn code_has_the_language_of_its_session() {
        let shown = shown(true, |screen| {
            let made = r#"{"session_id":"12345678","runtime":"node"}"#;
            screen.result(&json!({ "type": "tool", "name": "create_session", "content": made }))?;
            screen.call("execute_code", &json!({ "session_id": "12345678", "code": "const a = 1" }))?;
            screen.call("execute_code", &json!({ "session_id": "other", "code": "const = def" }))?;
            screen.call("execute_terminal", &json!({ "session_id": "12345678", "command": "if true" }))
        });
        let keyword = |word: &str| format!("\u{1b}[35m{word}\u{1b}[0m");
        assert!(shown.contains(&format!("│ {} a", keyword("const"))), "{shown}");
        assert!(shown.contains(&format!("│ const = {}", keyword("def"))), "{shown}");
        assert!(shown.contains(&format!("│ {} true", keyword("if"))), "{shown}");
    }

    #[test]
    fn markdown_is_styled_at_a_terminal_alone() {
        let say = |screen: &mut Screen| screen.message(&json!({ "type": "ai", "content": "**bold** \n" }));
        assert_eq!(shown(false, say), "**bold** \n\n");
        assert_eq!(shown(true, say), "\u{1b}[0m\u{1b}[1mbold\u{1b}[0m \n\n");
    }
}
