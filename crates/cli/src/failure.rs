//! Errors as they are printed: the reason, a remedy, and the exit code.

use crate::terminal::{plain, plain_json};
use atoll_client::{ApiError, Error as ClientError};
use atoll_types::{Error, ErrorCode};
use serde_json::json;
use std::io::{self, Write};

/// The server refused.
const REFUSED: u8 = 1;
/// The command line is invalid.
const USAGE: u8 = 2;
/// No server answers.
const NO_SERVER: u8 = 125;

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    /// The sandbox, as it was typed.
    subject: Option<String>,
}

#[derive(Debug)]
enum Kind {
    Client(ClientError),
    Local(Error),
    Output(io::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self { kind: Kind::Client(error), subject: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { kind: Kind::Local(error), subject: None }
    }
}

impl Failure {
    /// Standard output cannot be written.
    pub(crate) fn output(error: io::Error) -> Self {
        Self { kind: Kind::Output(error), subject: None }
    }

    /// The command line is invalid.
    pub(crate) fn usage(field: &str, message: impl Into<String>) -> Self {
        Error::invalid(field, message).into()
    }

    /// The error of a file of this machine.
    pub(crate) fn file(path: &std::path::Path, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "no such file on this machine".to_owned(),
            _ => error.to_string(),
        };
        Error::new(ErrorCode::Unavailable, format!("{}: {why}", path.display())).into()
    }

    /// The same, about a sandbox.
    pub(crate) fn about(self, sandbox: &str) -> Self {
        Self { subject: Some(sandbox.to_owned()), ..self }
    }

    /// The same in words of the command line, where a parameter that the server names is what would help.
    pub(crate) fn with_remedy(mut self, field: &str, message: &str) -> Self {
        if let Kind::Client(ClientError::Api(error)) = &mut self.kind
            && error.code == ErrorCode::PermissionDenied.as_str()
            && error.field.as_deref() == Some(field)
        {
            message.clone_into(&mut error.message);
            error.field = None;
        }
        self
    }

    /// The server's error, where it refused.
    fn refusal(&self) -> Option<&ApiError> {
        match &self.kind {
            Kind::Client(ClientError::Api(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether no server has to do with it.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        matches!(self.kind, Kind::Local(_) | Kind::Output(_))
    }

    /// Whether the reader of our output has gone, as in `atoll ls | head`.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(&self.kind, Kind::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether the next request would fail in the same way.
    pub(crate) fn is_fatal(&self) -> bool {
        self.exit_code() == NO_SERVER || self.refusal().is_some_and(ApiError::is_unauthorized)
    }

    /// Whether a conversation cannot go on: the key is refused, or what is printed reaches no reader. A server that does not answer may
    /// be there again for the next line.
    pub(crate) fn ends_conversation(&self) -> bool {
        matches!(self.kind, Kind::Output(_)) || self.refusal().is_some_and(ApiError::is_unauthorized)
    }

    /// Whether the subject does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        self.refusal().and_then(ApiError::known_code) == Some(ErrorCode::NotFound)
    }

    /// Prints it, and returns the exit code.
    pub(crate) fn report(&self, json: bool) -> u8 {
        if self.is_broken_pipe() {
            return 0;
        }
        let line =
            if json { plain_json(&self.json()) } else { plain(&format!("atoll: {}", self.sentence())) };
        let _ = writeln!(io::stderr(), "{line}");
        self.exit_code()
    }

    fn exit_code(&self) -> u8 {
        match &self.kind {
            Kind::Client(ClientError::Api(_)) => REFUSED,
            Kind::Client(ClientError::Url(_)) => USAGE,
            Kind::Client(_) | Kind::Output(_) => NO_SERVER,
            Kind::Local(error) if error.code == ErrorCode::InvalidArgument => USAGE,
            Kind::Local(_) => REFUSED,
        }
    }

    pub(crate) fn sentence(&self) -> String {
        let message = match &self.kind {
            Kind::Client(error) => error.to_string(),
            Kind::Local(error) => error.to_string(),
            Kind::Output(error) => format!("the output cannot be written: {error}"),
        };
        let sentence = match self.hint() {
            Some(hint) if !message.contains(&hint) => format!("{message}; {hint}"),
            _ => message,
        };
        // With several sandboxes the message names the one.
        match &self.subject {
            Some(subject) if !sentence.contains(subject.as_str()) => format!("{subject}: {sentence}"),
            _ => sentence,
        }
    }

    fn hint(&self) -> Option<String> {
        match &self.kind {
            Kind::Client(ClientError::Unreachable { .. }) => {
                Some("start one with `atoll serve`, or name another with --url or ATOLL_URL".into())
            }
            Kind::Client(ClientError::Api(error)) => self.hint_for(error),
            _ => None,
        }
    }

    fn hint_for(&self, error: &ApiError) -> Option<String> {
        let subject = self.subject.as_deref().unwrap_or("ID");
        match error.known_code() {
            _ if error.is_unauthorized() => Some("put a key into ATOLL_API_KEY, or give --api-key".into()),
            Some(ErrorCode::NotRunning | ErrorCode::ContainerDied) => {
                Some(format!("start it with `atoll resume {subject}`"))
            }
            _ => error.details.get("hint").and_then(|h| h.as_str()).map(str::to_owned),
        }
    }

    /// The server's own JSON where there is some, and its shape in any case.
    fn json(&self) -> String {
        if let Kind::Client(ClientError::Api(error)) = &self.kind
            && let Some(json) = &error.json
        {
            return json.trim_end().to_owned();
        }
        let (code, message) = match &self.kind {
            Kind::Client(ClientError::Api(error)) => (error.code.as_str(), error.to_string()),
            Kind::Client(ClientError::Url(message)) => ("invalid_argument", message.clone()),
            Kind::Client(error) => ("unavailable", error.to_string()),
            Kind::Local(error) => (error.code.as_str(), error.to_string()),
            Kind::Output(error) => ("internal", error.to_string()),
        };
        let mut details = serde_json::Map::new();
        details.extend(self.hint().map(|hint| ("hint".to_owned(), hint.into())));
        if let Kind::Local(Error { field: Some(field), .. }) = &self.kind {
            details.extend([("field".to_owned(), field.as_str().into())]);
        }
        json!({ "error": { "code": code, "message": message, "details": details } }).to_string()
    }
}

/// Does something with each of several things that were typed. One that fails does not stop the others, unless the next would
/// fail in the same way. Returns the worst exit code.
pub(crate) async fn each(
    typed: &[String],
    json: bool,
    work: impl AsyncFn(&str) -> Result<(), Failure>,
) -> Result<u8, Failure> {
    let mut worst = 0;
    for one in typed {
        if let Err(failure) = work(one).await {
            worst = worst.max(failure.report(json));
            if failure.is_fatal() {
                break;
            }
        }
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str, status: u16, message: &str) -> Failure {
        let error = ApiError { status, code: code.into(), message: message.into(), ..ApiError::default() };
        ClientError::Api(Box::new(error)).into()
    }

    #[test]
    fn every_error_says_what_to_do() {
        let gone: Failure =
            ClientError::Unreachable { url: "http://h:1".into(), cause: "Connection refused".into() }.into();
        assert_eq!(gone.exit_code(), 125);
        insta::assert_snapshot!(gone.sentence(), @"no server answers at http://h:1 (Connection refused); start one with `atoll serve`, or name another with --url or ATOLL_URL");
        let stopped = refused("not_running", 409, "the sandbox is stopped").about("3f2a");
        assert_eq!(stopped.exit_code(), 1);
        insta::assert_snapshot!(stopped.sentence(), @"the sandbox is stopped; start it with `atoll resume 3f2a`");
        insta::assert_snapshot!(refused("unauthorized", 401, "send a key").sentence(), @"send a key; put a key into ATOLL_API_KEY, or give --api-key");
        assert_eq!(Failure::usage("cp", "no").exit_code(), 2);
        insta::assert_snapshot!(gone.json(), @r#"{"error":{"code":"unavailable","message":"no server answers at http://h:1 (Connection refused)","details":{"hint":"start one with `atoll serve`, or name another with --url or ATOLL_URL"}}}"#);
    }

    #[test]
    fn the_servers_json_is_passed_on() {
        let json = Some(r#"{"error":{"code":"x","new":1}}"#.to_owned());
        let error = ApiError { json: json.clone(), ..ApiError::default() };
        assert_eq!(Some(Failure::from(ClientError::Api(Box::new(error))).json()), json);
    }
}
