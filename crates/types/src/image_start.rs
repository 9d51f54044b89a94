//! What a sandbox of an image starts by itself, and when it is ready. Both are labels of the image, so they stay with it in builds on
//! it, exports and imports, and a Dockerfile can say them.

use crate::{Error, Result};
use std::{collections::BTreeMap, ops::RangeInclusive};

/// The label with the line for the shell that a sandbox starts.
const START_COMMAND_LABEL: &str = "atoll.start_command";
/// The label with the line for the shell that succeeds once the sandbox is ready.
const READY_CHECK_LABEL: &str = "atoll.ready_check";
/// The label with the time that this may take, in seconds.
const READY_TIMEOUT_LABEL: &str = "atoll.ready_timeout_seconds";
/// The label with the time between two tries, in milliseconds.
const READY_INTERVAL_LABEL: &str = "atoll.ready_interval_ms";

/// The longest of these lines.
const LONGEST_START_LINE: usize = 64 << 10;
/// How long a sandbox may take to be ready, in seconds.
pub const READY_TIMEOUT_SECONDS: RangeInclusive<u32> = 1..=600;
/// How long the ready check waits before the next try, in milliseconds.
pub const READY_INTERVAL_MS: RangeInclusive<u32> = 50..=60_000;
const USUAL_TIMEOUT_SECONDS: u32 = 60;
const USUAL_INTERVAL_MS: u32 = 500;

/// When a sandbox is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyCheck {
    /// A line for the shell.
    pub line: String,
    /// How long it may take until that succeeds.
    pub timeout_seconds: u32,
    /// How long to wait before the next try.
    pub interval_ms: u32,
}

/// What a sandbox starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageStart {
    /// A line for the shell.
    pub command: String,
    /// When the sandbox is ready; at once where there is no check.
    pub ready: Option<ReadyCheck>,
}

fn line(field: &str, text: &str) -> Result<()> {
    let wrong = |why: String| Err(Error::invalid(field, why));
    match text {
        _ if text.trim().is_empty() => wrong(format!("{field} must not be empty")),
        _ if text.contains('\0') => wrong(format!("{field} cannot hold a NUL character")),
        _ if text.len() > LONGEST_START_LINE => {
            wrong(format!("{field} may have {LONGEST_START_LINE} bytes, and has {}", text.len()))
        }
        _ => Ok(()),
    }
}

fn within(field: &str, number: Option<u32>, range: &RangeInclusive<u32>, usual: u32) -> Result<u32> {
    let number = number.unwrap_or(usual);
    if range.contains(&number) {
        return Ok(number);
    }
    let why = format!("{field} must be between {} and {}", range.start(), range.end());
    Err(Error::invalid(field, why))
}

impl ImageStart {
    /// What these settings mean together; an error where one of them is wrong.
    pub fn new(
        command: String,
        check: Option<String>,
        timeout_seconds: Option<u32>,
        interval_ms: Option<u32>,
    ) -> Result<Self> {
        line("start_command", &command)?;
        let ready = match check {
            Some(text) => {
                line("ready_check", &text)?;
                let timeout_seconds = within(
                    "ready_timeout_seconds",
                    timeout_seconds,
                    &READY_TIMEOUT_SECONDS,
                    USUAL_TIMEOUT_SECONDS,
                )?;
                let interval_ms =
                    within("ready_interval_ms", interval_ms, &READY_INTERVAL_MS, USUAL_INTERVAL_MS)?;
                Some(ReadyCheck { line: text, timeout_seconds, interval_ms })
            }
            None => None,
        };
        Ok(Self { command, ready })
    }

    /// What the labels of an image say; none where it starts nothing, which an empty command says too.
    pub fn read(labels: &BTreeMap<String, String>) -> Result<Option<Self>> {
        let text = |name: &str| labels.get(name).filter(|text| !text.is_empty()).cloned();
        let number = |field, name: &str| match text(name) {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(Error::invalid(field, format!("{field} is a whole number"))),
            },
        };
        let Some(command) = text(START_COMMAND_LABEL) else { return Ok(None) };
        let timeout_seconds = number("ready_timeout_seconds", READY_TIMEOUT_LABEL)?;
        let interval_ms = number("ready_interval_ms", READY_INTERVAL_LABEL)?;
        Self::new(command, text(READY_CHECK_LABEL), timeout_seconds, interval_ms).map(Some)
    }

    /// The labels that say this, whatever those of a base say.
    #[must_use]
    pub fn labels(&self) -> Vec<(String, String)> {
        let Self { command, ready } = self;
        let mut labels = vec![(START_COMMAND_LABEL.to_owned(), command.clone())];
        let check = ready.as_ref().map(|ready| ready.line.clone()).unwrap_or_default();
        labels.push((READY_CHECK_LABEL.to_owned(), check));
        if let Some(ReadyCheck { line: _, timeout_seconds, interval_ms }) = ready {
            labels.push((READY_TIMEOUT_LABEL.to_owned(), timeout_seconds.to_string()));
            labels.push((READY_INTERVAL_LABEL.to_owned(), interval_ms.to_string()));
        }
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_say_what_is_started() {
        let check = Some("test -e /tmp/up".to_owned());
        let start = ImageStart::new("serve".into(), check, Some(5), Some(100)).unwrap();
        assert_eq!(ImageStart::read(&start.labels().into_iter().collect()), Ok(Some(start.clone())));
        // One without a check has none of its base either.
        let bare = ImageStart::new("serve".into(), None, None, None).unwrap();
        let on = start.labels().into_iter().chain(bare.labels()).collect();
        assert_eq!(ImageStart::read(&on), Ok(Some(bare)));
        let usual = ImageStart::read(&labels(&[(START_COMMAND_LABEL, "a"), (READY_CHECK_LABEL, "b")]));
        let ready = usual.unwrap().unwrap().ready.unwrap();
        assert_eq!((ready.timeout_seconds, ready.interval_ms), (60, 500));
        for nothing in [&[][..], &[(READY_CHECK_LABEL, "b")], &[(START_COMMAND_LABEL, "")]] {
            assert_eq!(ImageStart::read(&labels(nothing)), Ok(None));
        }
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let of = |name, value| {
            let mut all = labels(&[(START_COMMAND_LABEL, "a"), (READY_CHECK_LABEL, "b")]);
            all.insert(name, value);
            ImageStart::read(&all).unwrap_err().field.unwrap()
        };
        for (name, value, field) in [
            (START_COMMAND_LABEL, " ".to_owned(), "start_command"),
            (START_COMMAND_LABEL, "a\0".to_owned(), "start_command"),
            (READY_CHECK_LABEL, "x".repeat(LONGEST_START_LINE + 1), "ready_check"),
            (READY_TIMEOUT_LABEL, "soon".to_owned(), "ready_timeout_seconds"),
            (READY_TIMEOUT_LABEL, "601".to_owned(), "ready_timeout_seconds"),
            (READY_INTERVAL_LABEL, "1".to_owned(), "ready_interval_ms"),
        ] {
            assert_eq!(of(name.to_owned(), value), field);
        }
    }
}
