//! The program that a request names: the argument list, the files that it may name, and how a person would type
//! it.
//!
//! Work on a whole folder is a command too: PID 1 never walks a tree. It executes its own program again as the
//! user, by descriptor and with an empty environment, so a tool has the user's rights and limits. Only the tools
//! that start the user's programs, those of kernels and of the process API, get the sandbox's variables.

use atoll_guest_proto::v1::{Arguments, Tool, exec_request};
use atoll_guest_tools::run;
use atoll_types::{Error, ErrorCode, Result};
use rustix::fs::Access;
use std::ffi::CString;

/// What the kernel takes of one argument, without its end.
const LONGEST_ARGUMENT: usize = 128 * 1024 - 1;
/// Characters of a command that a listing shows.
const LONGEST_DISPLAY: usize = 1000;

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) argv: Vec<CString>,
    pub(crate) display: String,
    /// It is this program itself, for one of its tools.
    pub(crate) own: bool,
    /// Whether it gets the sandbox's variables.
    pub(crate) environment: bool,
    /// The request named no program: it is for the image's shell.
    pub(crate) line: bool,
}

/// What a message says of a program.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) line: bool,
    /// The files that were tried.
    pub(crate) files: Vec<CString>,
}

impl Named {
    /// What is missing, where the kernel found no file: the program, or what it names to run it.
    pub(crate) fn missing(&self) -> String {
        let there = |file: &CString| {
            file.as_bytes().starts_with(b"/") && rustix::fs::access(file, Access::EXISTS).is_ok()
        };
        let name = &self.name;
        match (self.files.iter().any(there), self.line) {
            (true, _) => format!("{name}: the interpreter or loader that it names is not in this image"),
            (false, true) => "there is no shell in this image: name a program and its arguments".into(),
            (false, false) => format!("{name}: no such program"),
        }
    }
}

impl Program {
    pub(crate) fn parse(program: Option<exec_request::Program>, on_terminal: bool) -> Result<Self> {
        match program {
            None => Err(Error::invalid("program", "neither arguments nor shell is given")),
            Some(exec_request::Program::Shell(text)) if text.is_empty() && on_terminal => {
                let argv = vec![shell(), c"-l".into()];
                let display = argv.iter().map(|a| a.to_string_lossy()).collect::<Vec<_>>().join(" ");
                Ok(Self { argv, display, own: false, environment: true, line: true })
            }
            Some(exec_request::Program::Shell(text)) => {
                let display = shorten(text.chars());
                Ok(Self { argv: shell_line(text)?, display, own: false, environment: true, line: true })
            }
            Some(exec_request::Program::Tool(tool)) => Self::tool(tool),
            Some(exec_request::Program::Arguments(Arguments { argv })) => {
                if argv.is_empty() {
                    return Err(Error::invalid("arguments", "the program's name is missing"));
                }
                let display = shorten(typed(&argv).chars());
                let argv = argv.into_iter().map(|a| c_string("arguments", a)).collect::<Result<_>>()?;
                Ok(Self { argv, display, own: false, environment: true, line: false })
            }
        }
    }

    fn tool(Tool { name, request, environment }: Tool) -> Result<Self> {
        if !run::NAMES.contains(&name.as_str()) && name != atoll_kernels::run::NAME {
            return Err(Error::new(ErrorCode::Unsupported, "there is no such tool").at("tool"));
        }
        if request.len() > run::LONGEST_REQUEST {
            return Err(Error::new(ErrorCode::TooLarge, "the tool's request is too long").at("tool"));
        }
        let display = format!("atoll-init tool {name}");
        let argv =
            vec![c"atoll-init".into(), c"tool".into(), c_string("tool", name)?, c_string("tool", request)?];
        Ok(Self { argv, display, own: true, environment, line: false })
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

/// The arguments with which the shell runs a line. The kernel takes no argument of 128 KiB or more, so a longer
/// line is given in pieces, which the shell puts together and forgets before it runs them.
fn shell_line(text: String) -> Result<Vec<CString>> {
    let mut argv = vec![shell(), c"-c".into()];
    if text.len() <= LONGEST_ARGUMENT {
        argv.push(c_string("shell", text)?);
        return Ok(argv);
    }
    let mut pieces = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let fits = (0..=rest.len().min(LONGEST_ARGUMENT)).rev().find(|at| rest.is_char_boundary(*at));
        let (piece, more) = rest.split_at(fits.unwrap_or(rest.len()));
        pieces.push(c_string("shell", piece)?);
        rest = more;
    }
    let all: String = (1..=pieces.len()).map(|n| format!("${{{n}}}")).collect();
    argv.push(c_string("shell", format!("eval \"set --\n{all}\""))?);
    argv.push(shell());
    argv.extend(pieces);
    Ok(argv)
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
    fn tools_have_names_and_requests_of_a_size() {
        let tool = |name: &str, request: Vec<u8>| {
            Program::parse(
                Some(exec_request::Program::Tool(Tool { name: name.into(), request, environment: false })),
                false,
            )
        };
        let find = tool("find", b"{}".to_vec()).unwrap();
        assert!(
            find.own && !find.environment && find.display == "atoll-init tool find" && find.argv.len() == 4
        );
        for (name, request) in
            [("sh", b"{}".to_vec()), ("find", vec![b' '; 70_000]), ("find", b"\0".to_vec())]
        {
            assert_eq!(tool(name, request).unwrap_err().field.as_deref(), Some("tool"));
        }
    }

    #[test]
    fn a_message_says_what_the_image_lacks() {
        let missing = |name: &str, line, file: &str| {
            Named { name: name.into(), line, files: vec![CString::new(file).unwrap()] }.missing()
        };
        assert_eq!(missing("gone", false, "/no/such/gone"), "gone: no such program");
        assert!(missing("/bin/sh", true, "/no/such/sh").starts_with("there is no shell in this image"));
        assert!(missing("hash-bang", false, "/proc/self/exe").contains("interpreter or loader"));
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
