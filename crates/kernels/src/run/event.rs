//! The events of drivers. User code in an interpreter can forge any of them, so all are checked, and none is
//! trusted beyond its own interpreter.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Most MIME types of one value.
const MOST_FORMS: usize = 16;
const LONGEST_TYPE: usize = 128;

/// One event of a driver.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    Ready {
        interpreter: String,
        /// Of one that was forked.
        pid: Option<i32>,
    },
    Display {
        #[serde(rename = "type")]
        mime: String,
        data: Option<String>,
        file: Option<String>,
    },
    Done {
        id: u64,
        result: Option<BTreeMap<String, String>>,
        error: Option<DriverError>,
        #[serde(default)]
        lengths: Lengths,
    },
    Completion {
        id: u64,
        #[serde(default)]
        prefix: String,
        #[serde(default)]
        matches: Vec<String>,
        #[serde(default)]
        status: crate::CodeStatus,
    },
    Checkpoint {
        id: u64,
        pid: Option<i32>,
        #[serde(default)]
        threads_lost: u32,
        error: Option<String>,
    },
    Restored {
        pid: i32,
        checkpoint: Option<i32>,
    },
    Forked {
        id: u64,
        pid: Option<i32>,
        error: Option<String>,
    },
}

/// How long texts are, in characters, that the driver itself has cut.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lengths {
    pub(super) result: u64,
    pub(super) message: u64,
    pub(super) traceback: u64,
}

/// The error of a cell, as the language reports it.
#[derive(Debug, Deserialize)]
pub(super) struct DriverError {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) message: String,
    pub(super) traceback: Option<String>,
}

impl Event {
    /// None for a line that is not one.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let event: Self = serde_json::from_slice(line).ok()?;
        match &event {
            Self::Display { mime, .. } if !is_type(mime) => None,
            Self::Done { result: Some(forms), .. }
                if forms.len() > MOST_FORMS || !forms.keys().all(|mime| is_type(mime)) =>
            {
                None
            }
            _ => Some(event),
        }
    }
}

/// Whether a text can be a MIME type: a name, a slash, a name.
fn is_type(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    text.len() <= LONGEST_TYPE && text.split_once('/').is_some_and(|(a, b)| plain(a) && plain(b))
}

/// Whether data of this type travels as text.
pub(super) fn is_text(mime: &str) -> bool {
    mime.starts_with("text/")
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || matches!(mime, "application/json" | "application/javascript")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_an_event_is_none() {
        let done = br#"{"event":"done","id":7,"result":{"text/plain":"2"},"error":null}"#;
        assert!(matches!(Event::parse(done), Some(Event::Done { id: 7, result: Some(_), error: None, .. })));
        let display = br#"{"event":"display","type":"image/png","data":"AA=="}"#;
        assert!(matches!(Event::parse(display), Some(Event::Display { data: Some(_), file: None, .. })));
        for bad in [
            &b""[..],
            b"[]",
            b"{}",
            b"\xff",
            br#"{"event":"dance"}"#,
            br#"{"event":"done","id":-1}"#,
            br#"{"event":"display","type":"image","data":""}"#,
            br#"{"event":"display","type":"a b/c","data":""}"#,
            br#"{"event":"done","id":1,"result":{"plain":"2"}}"#,
        ] {
            assert!(Event::parse(bad).is_none(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn pictures_are_no_text() {
        assert!(
            is_text("text/html") && is_text("image/svg+xml") && is_text("application/vnd.plotly.v1+json")
        );
        assert!(!is_text("image/png") && !is_text("audio/wav"));
    }
}
