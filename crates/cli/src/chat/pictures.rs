//! Pictures that tools showed: in the terminal where it speaks kitty's graphics protocol, and as a file otherwise.

use crate::{Failure, state_dir, terminal};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::path::PathBuf;

/// Bytes of base64 in one escape sequence, as the protocol has it.
const CHUNK: usize = 4096;

/// How pictures are shown.
pub(crate) struct Pictures {
    kitty: bool,
    folder: Option<PathBuf>,
    count: usize,
}

impl Pictures {
    /// For this terminal, and a conversation whose files have its name.
    pub(crate) fn new(is_terminal: bool, thread: &str) -> Self {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let speaks = !variable("KITTY_WINDOW_ID").is_empty()
            || variable("TERM").contains("kitty")
            || ["ghostty", "WezTerm"].contains(&variable("TERM_PROGRAM").as_str());
        let safe: String = thread.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let folder = state_dir().map(|state| state.join("pictures").join(safe));
        Self { kitty: is_terminal && speaks, folder, count: 0 }
    }

    /// What shows one: `type` is its MIME type and `data` base64.
    pub(crate) fn shown(&mut self, picture: &Value) -> Result<String, Failure> {
        let (kind, data) =
            (picture["type"].as_str().unwrap_or_default(), picture["data"].as_str().unwrap_or_default());
        let Ok(bytes) = STANDARD.decode(data) else { return Ok(String::new()) };
        self.count += 1;
        if self.kitty && kind == "image/png" {
            return Ok(kitty(&STANDARD.encode(&bytes)));
        }
        let end = match kind {
            "image/png" => "png",
            "image/jpeg" => "jpg",
            "image/gif" => "gif",
            "image/webp" => "webp",
            "image/svg+xml" => "svg",
            _ => "bin",
        };
        let Some(folder) = &self.folder else { return Ok(String::new()) };
        let path = folder.join(format!("picture-{}.{end}", self.count));
        std::fs::create_dir_all(folder).map_err(|e| Failure::file(folder, &e))?;
        std::fs::write(&path, &bytes).map_err(|e| Failure::file(&path, &e))?;
        Ok(format!("[{} {}]\n", terminal::plain(kind), terminal::plain(&path.display().to_string())))
    }
}

/// A PNG as escape sequences of the protocol. Base64 that was decoded and encoded again has nothing else in it.
fn kitty(data: &str) -> String {
    let mut out = String::new();
    let mut rest = data;
    let mut first = true;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(CHUNK));
        let begin = if std::mem::take(&mut first) { "a=T,f=100," } else { "" };
        let more = u8::from(!later.is_empty());
        out.push_str(&format!("\u{1b}_G{begin}m={more};{piece}\u{1b}\\"));
        rest = later;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_cut_into_sequences_of_the_protocol() {
        let shown = kitty(&"A".repeat(CHUNK + 1));
        assert!(shown.starts_with("\u{1b}_Ga=T,f=100,m=1;AAAA"), "{shown:?}");
        assert!(shown.ends_with("\u{1b}_Gm=0;A\u{1b}\\\n"));
    }
}
