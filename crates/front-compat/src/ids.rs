//! Ids as these protocols spell them: a prefix that says what the id is of, and the 32 digits of the core's id. Nothing
//! is stored for them.

use atoll_http::Failure;
use atoll_types::{CellId, Error, ErrorCode, SandboxId};
use std::{fmt::Display, str::FromStr};

const SANDBOX: &str = "sbx_";
const CONTAINER: &str = "container_";
const RUN: &str = "run_";

fn read<T: FromStr>(prefix: &str, text: &str, what: &str) -> Result<T, Failure> {
    let missing =
        || Error::new(ErrorCode::NotFound, format!("there is no {what} {:.64}", text.escape_debug()));
    let id = text.strip_prefix(prefix).and_then(|digits| digits.parse().ok());
    id.ok_or_else(|| missing().into())
}

fn write(prefix: &str, id: impl Display) -> String {
    format!("{prefix}{id}")
}

pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId, Failure> {
    read(SANDBOX, text, "sandbox")
}

pub(crate) fn sandbox_text(id: SandboxId) -> String {
    write(SANDBOX, id)
}

pub(crate) fn container_id(text: &str) -> Result<SandboxId, Failure> {
    read(CONTAINER, text, "container")
}

pub(crate) fn container_text(id: SandboxId) -> String {
    write(CONTAINER, id)
}

/// A sandbox by the id that either API has for it.
pub(crate) fn any_sandbox(text: &str) -> Result<SandboxId, Failure> {
    container_id(text).or_else(|_| sandbox_id(text))
}

pub(crate) fn run_id(text: &str) -> Result<CellId, Failure> {
    read(RUN, text, "run")
}

pub(crate) fn run_text(id: CellId) -> String {
    write(RUN, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_id_is_read_as_it_is_written_and_no_other_text_is_one(text in r"(sbx_|run_)?[0-9a-fA-F-]{0,40}") {
            if let Ok(id) = sandbox_id(&text) {
                prop_assert_eq!(sandbox_text(id), text);
            }
        }
    }

    #[test]
    fn the_prefix_says_what_an_id_is_of() {
        let (sandbox, run) = (SandboxId::random(), CellId::random());
        assert_eq!(sandbox_id(&sandbox_text(sandbox)).ok(), Some(sandbox));
        assert_eq!(run_id(&run_text(run)).ok(), Some(run));
        assert_eq!(any_sandbox(&container_text(sandbox)).ok(), Some(sandbox));
        assert_eq!(any_sandbox(&sandbox_text(sandbox)).ok(), Some(sandbox));
        assert!(sandbox_id(&run_text(run)).is_err() && sandbox_id(&sandbox.to_string()).is_err());
    }
}
