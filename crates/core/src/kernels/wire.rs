//! Answers of a kernel manager. Any process in the sandbox could have written them, so the server keeps only
//! what can be shown.

use atoll_kernels::{
    Answer, CheckpointInfo, Completion, KernelInfo, MOST_CHECKPOINTS, MOST_KERNELS, MOST_MATCHES,
};
use atoll_types::{Error, ErrorCode, Result};

const LONGEST_MESSAGE: usize = 2000;
const LONGEST_NAME: usize = 200;
const LONGEST_MATCH: usize = 500;

/// Fields that a kernel manager may blame.
const FIELDS: &[&str] =
    &["language", "working_directory", "env_vars", "code", "kernel_id", "checkpoint", "name", "cell"];

/// A text that may be shown.
pub(super) fn shown(text: &str, longest: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(longest).collect()
}

/// What a kernel manager complains of, as far as it can be shown.
pub(super) fn complaint(error: Error) -> Error {
    let Error { code, message, field, death: _, refusal: _ } = error;
    let code = match code {
        // A process in the sandbox cannot claim a fault of the server or the death of its container.
        ErrorCode::Internal
        | ErrorCode::ContainerDied
        | ErrorCode::NotRunning
        | ErrorCode::VersionMismatch
        | ErrorCode::BadGateway => ErrorCode::Unavailable,
        code => code,
    };
    let error = Error::new(code, shown(&message, LONGEST_MESSAGE));
    match field {
        Some(field) if FIELDS.contains(&field.as_str()) => error.at(field),
        _ => error,
    }
}

fn hostile() -> Error {
    Error::new(ErrorCode::Unavailable, "the sandbox sent an answer that cannot be right")
}

fn checkpoint(mut checkpoint: CheckpointInfo) -> CheckpointInfo {
    checkpoint.name = shown(&checkpoint.name, LONGEST_NAME);
    checkpoint
}

fn kernel(mut info: KernelInfo) -> Result<KernelInfo> {
    if info.checkpoints.len() > MOST_CHECKPOINTS {
        return Err(hostile());
    }
    info.interpreter = shown(&info.interpreter, LONGEST_NAME);
    info.checkpoints = info.checkpoints.into_iter().map(checkpoint).collect();
    Ok(info)
}

/// An answer within its bounds.
pub(super) fn believed(result: std::result::Result<Answer, Error>) -> Result<Answer> {
    match result.map_err(complaint)? {
        Answer::Kernel(info) => kernel(info).map(Answer::Kernel),
        Answer::Kernels(all) if all.len() > MOST_KERNELS => Err(hostile()),
        Answer::Kernels(all) => all.into_iter().map(kernel).collect::<Result<Vec<_>>>().map(Answer::Kernels),
        Answer::Checkpoint(info) => Ok(Answer::Checkpoint(checkpoint(info))),
        Answer::Completion(Completion { prefix, matches, status }) => {
            let matches = matches.iter().take(MOST_MATCHES).map(|text| shown(text, LONGEST_MATCH)).collect();
            Ok(Answer::Completion(Completion { prefix: shown(&prefix, LONGEST_MESSAGE), matches, status }))
        }
        answer @ (Answer::Queued { .. } | Answer::Done) => Ok(answer),
    }
}

/// An answer to another question.
pub(super) fn other_answer<T>() -> Result<T> {
    Err(hostile())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_shown_as_far_as_it_can_be() {
        let told = complaint(Error::new(ErrorCode::Internal, "\u{1b}[2Jx").at("api_key"));
        assert_eq!((told.code, told.message.as_str(), told.field), (ErrorCode::Unavailable, "[2Jx", None));
        let told = complaint(Error::new(ErrorCode::Unsupported, "no node").at("language"));
        assert_eq!((told.code, told.field.as_deref()), (ErrorCode::Unsupported, Some("language")));
    }
}
