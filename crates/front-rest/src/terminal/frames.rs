//! What both ends of a terminal's socket say in text; bytes go in binary messages, as they are.

use crate::exec::signals;
use atoll_types::{Error, ErrorCode};
use serde::{Deserialize, Serialize};

/// From the client.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ClientFrame {
    Resize {
        rows: u16,
        cols: u16,
    },
    Input {
        data: String,
    },
    /// Types the end of input, whatever character that is there.
    Eof {},
    Signal {
        signal: String,
    },
    Kill {},
}

/// From the server.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ServerFrame<'a> {
    /// The first message.
    Ready {
        exec_id: String,
        offset: u64,
    },
    /// Output that is not kept any more.
    Dropped {
        bytes: u64,
    },
    Exit {
        exit_code: i32,
        signal: Option<i32>,
    },
    Error {
        code: ErrorCode,
        message: &'a str,
    },
}

/// Why a socket is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseCode {
    Normal = 1000,
    GoingAway = 1001,
    NotText = 1007,
    Policy = 1008,
    TooLarge = 1009,
    Internal = 1011,
}

/// Reads a text message, or says why it cannot be.
pub(super) fn read(text: &str) -> Result<ClientFrame, (CloseCode, Error)> {
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|e| (CloseCode::NotText, Error::invalid("message", format!("not JSON: {e}"))))?;
    serde_json::from_value(value)
        .map_err(|e| (CloseCode::Policy, Error::invalid("message", format!("no such message: {e}"))))
}

/// The number of a signal: `INT`, `SIGINT` or `2`.
pub(super) fn signal(name: &str) -> Result<i32, Error> {
    let named = signals::named(name.strip_prefix("SIG").unwrap_or(name));
    let number = named.or_else(|| name.parse().ok().filter(|n| (1..=64).contains(n)));
    number.ok_or_else(|| Error::invalid("signal", "signal must be a name such as INT, or 1 to 64"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_strictly() {
        assert_eq!(
            read(r#"{"type":"resize","rows":1,"cols":2}"#).unwrap(),
            ClientFrame::Resize { rows: 1, cols: 2 }
        );
        assert_eq!(read(r#"{"type":"kill"}"#).unwrap(), ClientFrame::Kill {});
        assert_eq!(read(r#"{"data":"x","type":"input"}"#).unwrap(), ClientFrame::Input { data: "x".into() });
        for (text, code) in [
            ("", CloseCode::NotText),
            ("{", CloseCode::NotText),
            ("[]", CloseCode::Policy),
            ("{}", CloseCode::Policy),
            (r#"{"type":"nosuch"}"#, CloseCode::Policy),
            (r#"{"type":"kill","more":1}"#, CloseCode::Policy),
            (r#"{"type":"resize","rows":1}"#, CloseCode::Policy),
            (r#"{"type":"resize","rows":70000,"cols":1}"#, CloseCode::Policy),
            (r#"{"type":"input","data":1}"#, CloseCode::Policy),
        ] {
            assert_eq!(read(text).unwrap_err().0, code, "{text}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        assert_eq!((signal("INT").unwrap(), signal("SIGTERM").unwrap(), signal("64").unwrap()), (2, 15, 64));
        for wrong in ["", "NOSUCH", "0", "65", "-1", "int"] {
            assert_eq!(signal(wrong).unwrap_err().field.as_deref(), Some("signal"), "{wrong}");
        }
    }
}
