//! Showing untrusted text. A sandbox chooses file names, labels and messages, and a terminal obeys control
//! characters, so none of them reaches it unescaped.

use crate::Failure;
use std::{
    fmt::Write as _,
    io::{self, Write},
};

/// Whether a character moves the cursor, hides text or turns its direction.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// Text in one line, with control characters escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if steers(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// JSON with the same meaning that a terminal can show. JSON itself escapes only the oldest control
/// characters, and others can only stand inside its strings.
pub(crate) fn plain_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) && !matches!(c, '\n' | '\r' | '\t') {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Prints the name of something that was changed or removed; nothing in JSON, since the server's response is empty.
pub(crate) fn print_done(name: &str, json: bool) -> Result<(), Failure> {
    if json { Ok(()) } else { print(&format!("{}\n", plain(name))) }
}

/// Prints to standard output as it is.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Failure::output)
}

/// Prints the server's JSON, one value a line.
pub(crate) fn print_json(json: &str) -> Result<(), Failure> {
    print(&format!("{}\n", plain_json(json.trim_end())))
}

/// Prints a remark to standard error. That standard error is closed is no fault.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "atoll: {}", plain(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(plain("a\x1b[2J\x07\u{9b}31m\n\t\x7f"), "a\\u{1b}[2J\\u{7}\\u{9b}31m\\n\\t\\u{7f}");
        assert_eq!(plain("txt.\u{202e}exe\u{200b}"), "txt.\\u{202e}exe\\u{200b}");
        assert_eq!(plain("héllo 世界 🏝"), "héllo 世界 🏝");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "name": "\u{1b}\u{9b}\u{7f}\u{202e}\u{e0041}é🏝" });
        let shown = plain_json(&value.to_string());
        assert!(!shown.chars().any(steers), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
