//! What a request asks to run: the argument list, the files that may be meant by it, and how a
//! person would type it.

use atoll_guest_proto::v1::{Arguments, exec_request};
use atoll_types::{Error, Result};
use rustix::fs::Access;
use std::ffi::CString;

/// Characters of a command that a listing shows.
const LONGEST_DISPLAY: usize = 1000;

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<CString>,
    pub(crate) display: String,
}

impl Program {
    pub(crate) fn parse(program: Option<exec_request::Program>, on_terminal: bool) -> Result<Self> {
        match program {
            None => Err(Error::invalid("program", "neither arguments nor shell is given")),
            Some(exec_request::Program::Shell(text)) if text.is_empty() && on_terminal => {
                let argv = vec![shell(), c"-l".into()];
                let display = argv.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ");
                Ok(Self { argv, display })
            }
            Some(exec_request::Program::Shell(text)) => {
                let display = shorten(text.chars());
                let command = c_string("shell", text)?;
                Ok(Self { argv: vec![shell(), c"-c".into(), command], display })
            }
            Some(exec_request::Program::Tool(_)) => {
                Err(Error::new(atoll_types::ErrorCode::Unsupported, "there are no tools yet").at("tool"))
            }
            Some(exec_request::Program::Arguments(Arguments { argv })) => {
                if argv.is_empty() {
                    return Err(Error::invalid("arguments", "the program's name is missing"));
                }
                let display = shorten(typed(&argv).chars());
                let argv = argv.into_iter().map(|a| c_string("arguments", a)).collect::<Result<_>>()?;
                Ok(Self { argv, display })
            }
        }
    }

    /// The files to try, in order: the name itself if it has a slash, else one in each directory.
    pub(crate) fn candidates(&self, path: &str) -> Vec<CString> {
        let Some(name) = self.argv.first() else { return Vec::new() };
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.contains(&b'/') {
            return vec![name.clone()];
        }
        let directories = path.split(':').map(|d| if d.is_empty() { "." } else { d });
        directories.filter_map(|d| CString::new([d.as_bytes(), b"/", bytes].concat()).ok()).collect()
    }
}

/// A string for the kernel; the field is to blame for a NUL.
pub(crate) fn c_string(field: &str, text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid(field, format!("{field} must not contain a NUL byte")))
}

/// The image's shell.
pub(crate) fn shell() -> CString {
    let bash = c"/bin/bash";
    if rustix::fs::access(bash, Access::EXISTS).is_ok() { bash.into() } else { c"/bin/sh".into() }
}

fn typed(argv: &[Vec<u8>]) -> String {
    let words: Vec<String> = argv.iter().map(|a| quote(&String::from_utf8_lossy(a))).collect();
    words.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn shorten(text: impl Iterator<Item = char>) -> String {
    text.take(LONGEST_DISPLAY).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Result<Program> {
        let argv = words.iter().map(|w| w.as_bytes().to_vec()).collect();
        Program::parse(Some(exec_request::Program::Arguments(Arguments { argv })), false)
    }

    #[test]
    fn commands_read_as_typed() {
        assert_eq!(arguments(&["ls", "-l", "a b", "it's", ""]).unwrap().display, r"ls -l 'a b' 'it'\''s' ''");
        assert_eq!(arguments(&[]).unwrap_err().field.as_deref(), Some("arguments"));
        assert_eq!(arguments(&["a\0b"]).unwrap_err().field.as_deref(), Some("arguments"));
        assert_eq!(Program::parse(None, false).unwrap_err().field.as_deref(), Some("program"));
    }

    #[test]
    fn the_path_is_searched_only_for_bare_names() {
        let found = |word: &str, path| -> Vec<String> {
            let candidates = arguments(&[word]).unwrap().candidates(path);
            candidates.into_iter().map(|c| c.into_string().unwrap()).collect()
        };
        assert_eq!(found("ls", "/bin::/usr/bin"), ["/bin/ls", "./ls", "/usr/bin/ls"]);
        assert_eq!(found("./ls", "/bin"), ["./ls"]);
        assert_eq!(found("", "/bin"), [""]);
    }
}
