//! Signals by name or number.

use atoll_types::{Error, Result};
use serde::Deserialize;
use std::ops::RangeInclusive;
use utoipa::ToSchema;

/// A signal to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    signal: SignalName,
}

/// TERM, SIGTERM or 15.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected the name or the number of a signal")]
enum SignalName {
    Name(String),
    Number(i64),
}

/// By their numbers, from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The numbers of signals.
pub(crate) const NUMBERS: RangeInclusive<i32> = 1..=64;

/// The name of a signal as a regular expression; lower case is read too.
pub(crate) fn pattern() -> String {
    format!("^(?:SIG)?(?:{})$", NAMES.join("|"))
}

/// The number of a signal by its name, without SIG.
pub(crate) fn named(name: &str) -> Option<i32> {
    let place = NAMES.iter().position(|known| *known == name)?;
    i32::try_from(place + 1).ok()
}

impl SignalBody {
    pub(crate) fn number(&self) -> Result<i32> {
        let wrong = || Error::invalid("signal", "expected a name such as TERM, or a number from 1 to 64");
        match &self.signal {
            SignalName::Number(number) => {
                i32::try_from(*number).ok().filter(|n| NUMBERS.contains(n)).ok_or_else(wrong)
            }
            SignalName::Name(name) => {
                let upper = name.to_ascii_uppercase();
                let plain = upper.strip_prefix("SIG").unwrap_or(&upper);
                named(plain).ok_or_else(wrong)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let read = |json: &str| serde_json::from_str::<SignalBody>(json).map(|body| body.number());
        for (text, number) in
            [("\"TERM\"", 15), ("\"SIGTERM\"", 15), ("\"sigusr1\"", 10), ("9", 9), ("64", 64)]
        {
            assert_eq!(read(&format!("{{\"signal\":{text}}}")).unwrap(), Ok(number));
        }
        for text in ["0", "-1", "65", "\"\"", "\"SIG\"", "\"15\"", "\"NOSUCH\"", "9999999999"] {
            let error = read(&format!("{{\"signal\":{text}}}")).unwrap().unwrap_err();
            assert_eq!(error.field.as_deref(), Some("signal"), "{text}");
        }
        assert!(read(r#"{"signal":null}"#).is_err() && read(r#"{"signal":1,"x":1}"#).is_err());
    }
}
