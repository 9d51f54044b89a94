//! Dockerfiles, as far as an image can be built of one here: one stage, local files, the two forms of commands. What is not
//! supported is refused with its line and never ignored, so that an image is what its text says.
//!
//! The text is untrusted: it is bounded, each value that variables expand to is too, and no text makes the parser panic.

mod cache;
mod lines;
mod words;

pub use cache::{StepKey, start_key, step_keys};

use atoll_types::{Error, Result};
use lines::{Line, lines};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use words::{Variables, expand, pairs, words};

/// The longest Dockerfile, in bytes.
pub const LONGEST_DOCKERFILE: usize = 256 << 10;
/// The most steps of one.
pub const MOST_STEPS: usize = 200;
/// The most sources of a COPY or an ADD: each walks all files of the build.
const MOST_SOURCES: usize = 100;

/// A command in one of its two forms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandForm {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments.
    Exec(Vec<String>),
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A command runs, with the build's arguments as variables.
    Run {
        /// The command.
        command: CommandForm,
        /// The arguments that are known there, by name.
        arguments: Vec<(String, String)>,
    },
    /// Files are copied.
    Copy {
        /// Relative to the folder that is built in.
        sources: Vec<String>,
        /// Where to.
        target: String,
        /// Whether archives among them are unpacked.
        unpack: bool,
        /// The owner that they get.
        owner: Option<String>,
        /// The permissions that they get, in octal.
        mode: Option<String>,
    },
    /// A file is written, as root.
    File {
        /// Where.
        path: String,
        /// What is in it.
        content: String,
        /// The permissions that it gets, in octal.
        mode: Option<String>,
    },
    /// Variables of all later steps and of sandboxes.
    Env(Vec<(String, String)>),
    /// The directory of later steps and of sandboxes.
    Workdir(String),
    /// The user of later steps and of sandboxes.
    User(String),
    /// What a sandbox starts.
    Entrypoint(CommandForm),
    /// Its arguments, or what a sandbox starts.
    Cmd(CommandForm),
    /// Labels of the image.
    Label(Vec<(String, String)>),
}

/// A step, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The line, from 1; 0 of what no Dockerfile says.
    pub line: u32,
    /// What it does.
    pub kind: StepKind,
}

/// The PATH of steps on an image that says none, and what `$PATH` means there.
pub(crate) const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A Dockerfile that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    /// The image that it begins with.
    pub base: String,
    /// What is done there, in order.
    pub steps: Vec<Step>,
}

fn wrong(line: u32, message: impl std::fmt::Display) -> Error {
    Error::invalid("dockerfile", format!("line {line}: {message}"))
}

/// Whether a text is permissions in octal.
pub(super) fn is_mode(text: &str) -> bool {
    matches!(text.len(), 3 | 4) && text.bytes().all(|b| b"01234567".contains(&b))
}

/// A command that is a list of JSON, or else a line.
fn command(line: &Line) -> Result<CommandForm> {
    if line.rest.is_empty() {
        return Err(wrong(line.number, format_args!("{} needs a command", line.keyword)));
    }
    match serde_json::from_str::<Vec<String>>(&line.rest) {
        Ok(list) if list.is_empty() || list[0].is_empty() => {
            Err(wrong(line.number, format_args!("{} names no program", line.keyword)))
        }
        Ok(list) => Ok(CommandForm::Exec(list)),
        Err(_) => Ok(CommandForm::Shell(line.rest.clone())),
    }
}

/// The flags in front of an instruction's arguments, and the rest.
fn flags<'a>(line: &'a Line, known: &[&str]) -> Result<(BTreeMap<&'a str, &'a str>, &'a str)> {
    let (mut found, mut rest) = (BTreeMap::new(), line.rest.as_str());
    while let Some(flag) = rest.strip_prefix("--") {
        let end = flag.find(char::is_whitespace).unwrap_or(flag.len());
        let (name, value) = flag[..end].split_once('=').unwrap_or((&flag[..end], ""));
        if !known.contains(&name) || value.is_empty() {
            let message = format!("{} --{:.50} is not supported", line.keyword, name.escape_debug());
            return Err(wrong(line.number, message));
        }
        found.insert(name, value);
        rest = flag[end..].trim_start();
    }
    Ok((found, rest))
}

/// What is read so far.
#[derive(Default)]
struct Reader {
    base: Option<String>,
    steps: Vec<Step>,
    /// Arguments in front of the first stage, for it alone.
    outer: Variables,
    /// Arguments and variables of the stage; the base's own variables are among these.
    arguments: Variables,
    variables: Variables,
    /// What the request says of arguments.
    given: BTreeMap<String, String>,
    /// The names that ARG lines say.
    declared: BTreeSet<String>,
}

impl Reader {
    /// What variables mean in the stage: ENV wins over ARG.
    fn scope(&self) -> Variables {
        let mut scope = self.arguments.clone();
        scope.extend(self.variables.clone());
        scope
    }

    fn expanded(&self, line: &Line, text: &str) -> Result<String> {
        expand(text, &self.scope()).map_err(|e| wrong(line.number, e))
    }

    fn one_word(&self, line: &Line) -> Result<String> {
        let text = self.expanded(line, &line.rest)?;
        match text.is_empty() || text.contains('\0') {
            true => Err(wrong(line.number, format_args!("{} needs a value", line.keyword))),
            false => Ok(text),
        }
    }

    fn pairs(&self, line: &Line) -> Result<Vec<(String, String)>> {
        pairs(&line.rest, &self.scope())
            .map_err(|e| wrong(line.number, format_args!("{}: {e}", line.keyword)))
    }

    fn from(&mut self, line: &Line) -> Result<()> {
        if self.base.is_some() {
            return Err(wrong(line.number, "a second FROM is not supported: an image has one stage"));
        }
        let (_, rest) = flags(line, &[])?;
        let words = words(rest, &self.outer).map_err(|e| wrong(line.number, e))?;
        let base = match words.as_slice() {
            [base] if !base.is_empty() => base,
            // No other stage can name it.
            [base, by, _] if by.eq_ignore_ascii_case("AS") && !base.is_empty() => base,
            _ => return Err(wrong(line.number, "FROM needs an image: FROM IMAGE")),
        };
        if base == "scratch" {
            return Err(wrong(line.number, "FROM scratch is not supported: begin with an image"));
        }
        self.base = Some(base.clone());
        Ok(())
    }

    fn argument(&mut self, line: &Line) -> Result<()> {
        let outside = self.base.is_none();
        let scope = if outside { self.outer.clone() } else { self.scope() };
        let all = words(&line.rest, &scope).map_err(|e| wrong(line.number, e))?;
        if all.is_empty() {
            return Err(wrong(line.number, "ARG needs a name"));
        }
        for word in all {
            let (name, usual) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if !words::is_name(name) {
                return Err(wrong(
                    line.number,
                    format_args!("{:.50} is no name of an argument", name.escape_debug()),
                ));
            }
            self.declared.insert(name.to_owned());
            // One without a value has that of before the first stage.
            let usual = usual.or_else(|| self.outer.get(name).cloned());
            let value = self.given.get(name).cloned().or(usual);
            let known = if outside { &mut self.outer } else { &mut self.arguments };
            if let Some(value) = value {
                known.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn copy(&self, line: &Line, unpack: bool) -> Result<StepKind> {
        let (found, rest) = flags(line, &["chown", "chmod"])?;
        let of = |flag: &str| found.get(flag).map(|text| self.expanded(line, text)).transpose();
        let (owner, mode) = (of("chown")?, of("chmod")?);
        if mode.as_ref().is_some_and(|mode| !is_mode(mode)) {
            return Err(wrong(line.number, "--chmod is three or four octal digits"));
        }
        let mut all = match serde_json::from_str::<Vec<String>>(rest) {
            Ok(list) => list.iter().map(|text| self.expanded(line, text)).collect::<Result<Vec<_>>>()?,
            Err(_) => words(rest, &self.scope()).map_err(|e| wrong(line.number, e))?,
        };
        if all.len() > MOST_SOURCES + 1 {
            return Err(wrong(line.number, format_args!("a step copies at most {MOST_SOURCES} sources")));
        }
        let target = all.pop().filter(|target| !target.is_empty() && !all.is_empty());
        let target = target.ok_or_else(|| {
            wrong(line.number, format_args!("{} needs a source and a target", line.keyword))
        })?;
        for source in &all {
            let remote =
                ["http://", "https://", "git://", "ssh://", "git@"].iter().any(|of| source.starts_with(of));
            if remote {
                let message = format!(
                    "{} of an address ({:.100}) is not supported: copy a local file",
                    line.keyword,
                    source.escape_debug()
                );
                return Err(wrong(line.number, message));
            }
            if source.is_empty() || source.split('/').any(|part| part == "..") {
                let message =
                    format!("{:.100} leads out of the folder that is built in", source.escape_debug());
                return Err(wrong(line.number, message));
            }
        }
        Ok(StepKind::Copy { sources: all, target, unpack, owner, mode })
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let heredoc =
            matches!(line.keyword.as_str(), "RUN" | "COPY" | "ADD") && lines::has_heredoc(&line.rest);
        if heredoc {
            return Err(wrong(line.number, format_args!("a heredoc in {} is not supported", line.keyword)));
        }
        match line.keyword.as_str() {
            "FROM" => return self.from(line),
            "ARG" => return self.argument(line),
            _ => {}
        }
        let kind = match line.keyword.as_str() {
            "RUN" | "CMD" | "ENTRYPOINT" | "COPY" | "ADD" | "ENV" | "WORKDIR" | "USER" | "LABEL"
                if self.base.is_none() =>
            {
                return Err(wrong(line.number, format_args!("{} comes before FROM", line.keyword)));
            }
            "RUN" => {
                flags(line, &[])?;
                StepKind::Run {
                    command: command(line)?,
                    arguments: self.arguments.clone().into_iter().collect(),
                }
            }
            "CMD" => StepKind::Cmd(command(line)?),
            "ENTRYPOINT" => StepKind::Entrypoint(command(line)?),
            "COPY" => self.copy(line, false)?,
            "ADD" => self.copy(line, true)?,
            "ENV" => {
                let set = self.pairs(line)?;
                self.variables.extend(set.iter().cloned());
                StepKind::Env(set)
            }
            "LABEL" => StepKind::Label(self.pairs(line)?),
            "WORKDIR" => StepKind::Workdir(self.one_word(line)?),
            "USER" => StepKind::User(self.one_word(line)?),
            other => {
                let message = format!("{:.50} is not supported", other.escape_debug());
                return Err(wrong(line.number, message));
            }
        };
        if self.steps.len() >= MOST_STEPS {
            return Err(wrong(line.number, format_args!("there are more than {MOST_STEPS} steps")));
        }
        self.steps.push(Step { line: line.number, kind });
        Ok(())
    }
}

fn check_length(text: &str) -> Result<()> {
    if text.len() <= LONGEST_DOCKERFILE {
        return Ok(());
    }
    Err(Error::invalid("dockerfile", format!("a Dockerfile has at most {LONGEST_DOCKERFILE} bytes")))
}

fn no_base() -> Error {
    Error::invalid("dockerfile", "there is no FROM")
}

impl Dockerfile {
    /// The image that a Dockerfile begins with. Its variables have to be known before the lines behind FROM are read.
    pub fn base(text: &str, arguments: &BTreeMap<String, String>) -> Result<String> {
        check_length(text)?;
        let mut reader = Reader { given: arguments.clone(), ..Reader::default() };
        for line in lines(text)? {
            reader.line(&line)?;
            if let Some(base) = reader.base {
                return Ok(base);
            }
        }
        Err(no_base())
    }

    /// Reads a Dockerfile, with values for its arguments. Instructions see the variables of its base and a PATH.
    pub fn parse(
        text: &str,
        arguments: BTreeMap<String, String>,
        environment: BTreeMap<String, String>,
    ) -> Result<Self> {
        check_length(text)?;
        let mut variables = environment;
        variables.entry("PATH".into()).or_insert_with(|| USUAL_PATH.into());
        let mut reader = Reader { given: arguments, variables, ..Reader::default() };
        for line in lines(text)? {
            reader.line(&line)?;
        }
        if let Some(unknown) = reader.given.keys().find(|name| !reader.declared.contains(*name)) {
            let message = format!(
                "the Dockerfile has no ARG {:.100}, so its value would be lost",
                unknown.escape_debug()
            );
            return Err(Error::invalid("args", message));
        }
        let base = reader.base.ok_or_else(no_base)?;
        Ok(Self { base, steps: reader.steps })
    }
}

#[cfg(test)]
mod tests;
