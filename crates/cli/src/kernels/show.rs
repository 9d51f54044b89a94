//! The output of a cell is passed through, as a command's is. Its displays are written into files, or named.

use crate::{Failure, terminal};
use atoll_client::{CellEvent, CellResult, Display};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// The output of cells.
pub(super) struct Shown {
    folder: Option<PathBuf>,
    json: bool,
    /// How many displays there were.
    count: u32,
    /// Displays of the present cell.
    displays: usize,
}

/// The end of a file's name for a type.
fn extension(mime: &str) -> &str {
    match mime {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/svg+xml" => "svg",
        "text/html" => "html",
        "text/markdown" => "md",
        "text/plain" => "txt",
        "application/json" => "json",
        "audio/wav" | "audio/x-wav" => "wav",
        mime if mime.ends_with("+json") => "json",
        _ => "bin",
    }
}

fn is_text(mime: &str) -> bool {
    mime.starts_with("text/") || mime == "image/svg+xml" || mime.ends_with("json")
}

/// The bytes of a display.
fn bytes(display: &Display) -> Vec<u8> {
    match is_text(&display.r#type) {
        true => display.data.clone().into_bytes(),
        false => {
            STANDARD.decode(display.data.trim_end()).unwrap_or_else(|_| display.data.clone().into_bytes())
        }
    }
}

fn size(length: usize) -> String {
    match length {
        0..1024 => format!("{length} bytes"),
        _ => format!("{} KiB", length.div_ceil(1024)),
    }
}

impl Shown {
    pub(super) fn new(folder: Option<PathBuf>, json: bool) -> Self {
        Self { folder, json, count: 0, displays: 0 }
    }

    /// Shows an event; at the end returns whether the cell succeeded.
    pub(super) fn add(&mut self, event: CellEvent, json: &str) -> Result<Option<bool>, Failure> {
        if self.json {
            terminal::print_json(json)?;
        }
        match event {
            CellEvent::Output { error: false, text } if !self.json => terminal::print(&text)?,
            CellEvent::Output { error: true, text } if !self.json => {
                let _ = io::stderr().write_all(text.as_bytes());
            }
            CellEvent::Display(display) => {
                self.displays += 1;
                self.display(&display)?;
            }
            CellEvent::Ended(result) => {
                self.displays = 0;
                let success = result.success;
                if !self.json {
                    ended(&result)?;
                }
                return Ok(Some(success));
            }
            _ => {}
        }
        Ok(None)
    }

    fn display(&mut self, display: &Display) -> Result<(), Failure> {
        self.count += 1;
        let bytes = bytes(display);
        let named = format!("[{}, {}]", terminal::plain(&display.r#type), size(bytes.len()));
        let line = match &self.folder {
            None => named,
            Some(folder) => {
                let path = folder.join(format!("display-{}.{}", self.count, extension(&display.r#type)));
                std::fs::create_dir_all(folder).map_err(|e| Failure::file(folder, &e))?;
                std::fs::write(&path, &bytes).map_err(|e| Failure::file(&path, &e))?;
                format!("{named} {}", path.display())
            }
        };
        if self.json { Ok(()) } else { terminal::print(&format!("{line}\n")) }
    }
}

/// Prints how a cell ended: its value, or its error.
fn ended(result: &CellResult) -> Result<(), Failure> {
    if let Some(text) = result.result.as_ref().and_then(|result| result.get("text/plain")) {
        terminal::print(&format!("{}\n", text.trim_end_matches('\n')))?;
    }
    if let Some(error) = &result.error {
        let text = match &error.traceback {
            Some(traceback) if !traceback.trim().is_empty() => traceback.trim_end().to_owned(),
            _ => format!("{}: {}", error.r#type, error.message),
        };
        let _ = writeln!(io::stderr(), "{text}");
    }
    if result.timed_out {
        terminal::note("the code's time was up; give it more with --timeout");
    }
    if result.state_lost {
        terminal::note("the interpreter was lost, and with it all variables");
    }
    if result.truncated {
        terminal::note("some of the output is missing, because there was too much of it");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_become_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut shown = Shown::new(Some(folder.path().join("new")), false);
        let display = |mime: &str, data: &str| Display { r#type: mime.into(), data: data.into() };
        shown.add(CellEvent::Display(display("image/png", "iVBORw==")), "").unwrap();
        shown.add(CellEvent::Display(display("text/html", "<b>é</b>")), "").unwrap();
        shown.add(CellEvent::Display(display("../../x", "??")), "").unwrap();
        let read = |name: &str| std::fs::read(folder.path().join("new").join(name)).unwrap();
        assert_eq!(read("display-1.png"), b"\x89PNG");
        assert_eq!(read("display-2.html"), "<b>é</b>".as_bytes());
        assert_eq!(read("display-3.bin"), b"??");
        assert_eq!((size(9), size(1025)), ("9 bytes".into(), "2 KiB".into()));
    }
}
