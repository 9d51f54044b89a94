//! What a provider's error means, and what to do about it: a closed set. A provider's own text is shown only where it says
//! what is wrong with the request, short and without the key.

use super::ModelTarget;
use atoll_types::{
    Millis,
    conversation::{ModelFault, RunFailure, RunFailureCode},
    text::cut,
    time::{now_ms, parse_rfc3339},
};
use serde_json::Value;
use std::time::Duration;

/// The longest part of a provider's text that is shown.
const LONGEST_TEXT: usize = 300;
/// The longest that a run waits before it asks again; where a provider wants more, the run fails and says when.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ModelFailure {
    /// No model, or no place of it, is set.
    NotSet(String),
    /// The key is missing or wrong.
    Key,
    /// The provider has no such model.
    UnknownModel(String),
    /// The conversation is longer than the model's window.
    TooLong,
    /// The account has no credit.
    NoCredit,
    /// Too many requests.
    Busy(Option<Duration>),
    /// The provider failed.
    Down(Option<Duration>),
    /// The provider sent nothing for that long.
    Silent(Duration),
    /// Nothing answers at the base URL.
    Unreachable,
    /// The base URL leads to an address that owners may not use.
    Forbidden(String),
    /// The answer stopped before its end.
    Cut,
    /// The answer was larger than one may be.
    TooLarge,
    /// The provider refused the request.
    Refused(String),
    /// The provider's answer cannot be read.
    Unreadable,
}

impl ModelFailure {
    pub(crate) fn of(error: &genai::Error, target: &ModelTarget) -> Self {
        match error {
            genai::Error::WebStream { error, .. } => match error.downcast_ref::<genai::Error>() {
                Some(inner) => Self::of(inner, target),
                None => Self::of_transport(error.as_ref()),
            },
            genai::Error::HttpError { status, body, headers, .. } => {
                Self::of_status(status.as_u16(), body, wait(headers), target)
            }
            genai::Error::WebModelCall { webc_error, .. }
            | genai::Error::WebAdapterCall { webc_error, .. } => match webc_error {
                genai::webc::Error::ResponseFailedStatus { status, body, headers } => {
                    Self::of_status(status.as_u16(), body, wait(headers), target)
                }
                genai::webc::Error::Reqwest(error) => Self::of_transport(error),
                _ => Self::Unreadable,
            },
            genai::Error::ChatResponse { body, .. } => {
                let text = body.to_string();
                let code = body.pointer("/error/code").or_else(|| body.get("code")).and_then(Value::as_u64);
                match code.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400) {
                    Some(status) => Self::of_status(status, &text, None, target),
                    None if text.contains("overloaded") => Self::Down(None),
                    None => Self::of_status(400, &text, None, target),
                }
            }
            genai::Error::RequiresApiKey { .. } | genai::Error::NoAuthData { .. } => Self::Key,
            _ => Self::Unreadable,
        }
    }

    pub(super) fn of_transport(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(forbidden) = error.downcast_ref::<super::network::Forbidden>() {
                return Self::Forbidden(forbidden.to_string());
            }
            if let Some(error) = error.downcast_ref::<reqwest::Error>()
                && (error.is_body() || error.is_decode())
            {
                return Self::Cut;
            }
            cause = error.source();
        }
        Self::Unreachable
    }

    fn of_status(status: u16, body: &str, after: Option<Duration>, target: &ModelTarget) -> Self {
        let lower = body.to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let long = [
            "context length",
            "context_length",
            "maximum context",
            "too long",
            "context window",
            "exceeds the maximum number of tokens",
            "exceeds the available context size",
        ];
        match status {
            401 | 403 => Self::Key,
            402 => Self::NoCredit,
            _ if says(&[
                "insufficient_quota",
                "credit balance",
                "billing",
                "exceeded your current quota",
            ]) =>
            {
                Self::NoCredit
            }
            400 | 413 | 422 if says(&long) => Self::TooLong,
            // llama.cpp's, where an answer fills the window.
            500 if says(&["context size has been exceeded"]) => Self::TooLong,
            400 if says(&["api key not valid", "api_key_invalid", "invalid api key"]) => Self::Key,
            404 => Self::UnknownModel(target.model.clone()),
            400 if says(&["model_not_found", "does not exist", "unknown model"]) => {
                Self::UnknownModel(target.model.clone())
            }
            413 => Self::Refused(
                "it is larger than the provider takes; send fewer or smaller pictures, or begin a new conversation"
                    .to_owned(),
            ),
            429 => Self::Busy(after),
            408 | 409 | 500..=599 => Self::Down(after),
            _ => Self::Refused(short(body, target)),
        }
    }

    /// How long to wait before the same request is sent again, by the number of earlier attempts; none where that does not help.
    pub(crate) fn retry(&self, attempt: u32) -> Option<Duration> {
        let usual = Duration::from_millis(500) * 2_u32.saturating_pow(attempt.min(6));
        match self {
            Self::Busy(after) | Self::Down(after) => {
                Some(after.unwrap_or(usual)).filter(|wait| *wait <= LONGEST_WAIT)
            }
            Self::Unreachable | Self::Silent(_) | Self::Cut => Some(usual),
            _ => None,
        }
    }

    /// Its name for programs and what to do, for people.
    pub(crate) fn told(&self, target: Option<&ModelTarget>) -> RunFailure {
        let provider = target.map_or("the provider", |target| target.provider.as_str());
        let (fault, message) = match self {
            Self::NotSet(why) => {
                let how = "set the model and its provider in your settings or in the run's config.configurable, or let the \
                           operator set CHAT_MODEL and CHAT_MODEL_PROVIDER";
                (ModelFault::NotSet, format!("{why}; {how}"))
            }
            Self::Key => (
                ModelFault::InvalidKey,
                format!("{provider} does not accept the API key; set the right key for this base URL in your settings"),
            ),
            Self::UnknownModel(model) => (
                ModelFault::UnknownModel,
                format!("{provider} has no model {model:?} for this key; choose another model in your settings"),
            ),
            Self::TooLong => (
                ModelFault::ContextTooLong,
                "the conversation is longer than the model's window although old tool output was shortened; start a new \
                 thread or choose a model with a larger window"
                    .to_owned(),
            ),
            Self::NoCredit => {
                (ModelFault::NoCredit, format!("the account at {provider} has no credit; add some, or use another key"))
            }
            Self::Busy(after) => {
                (ModelFault::RateLimited, format!("{provider} limits the rate of requests; try again {}", later(*after)))
            }
            Self::Down(after) => {
                (ModelFault::ProviderDown, format!("{provider} fails at the moment; try again {}", later(*after)))
            }
            Self::Silent(span) => (
                ModelFault::ProviderDown,
                format!("{provider} sent nothing for {} seconds; try again, or use another model", span.as_secs()),
            ),
            Self::Unreachable => (
                ModelFault::ProviderUnreachable,
                format!("nothing answers at the base URL of {provider}; check the base URL and that the server runs"),
            ),
            Self::Forbidden(why) => (ModelFault::BaseUrlRefused, why.clone()),
            Self::Cut => (ModelFault::AnswerCut, format!("the answer of {provider} stopped before its end; try again")),
            Self::TooLarge => {
                (ModelFault::AnswerTooLarge, "the model's answer is larger than one may be; ask for less at once".to_owned())
            }
            Self::Refused(why) => (ModelFault::RequestRefused, format!("{provider} refused the request: {why}")),
            Self::Unreadable => (
                ModelFault::AnswerUnreadable,
                format!("the answer of {provider} cannot be read; check that the provider fits the base URL"),
            ),
        };
        RunFailure { code: RunFailureCode::Model(fault), message }
    }
}

/// When to try again, for people.
fn later(after: Option<Duration>) -> String {
    match after.map(|after| after.as_secs()) {
        None => "in a few minutes".to_owned(),
        Some(seconds @ 0..=120) => format!("in {seconds} seconds, as it says"),
        Some(seconds) => format!("in {} minutes, as it says", seconds.div_ceil(60)),
    }
}

/// How long a provider wants a client to wait: a number, or until a time as HTTP writes it.
fn wait(headers: &reqwest::header::HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"));
    match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => {
            let until = http_date(text("retry-after")?)?;
            Some(Duration::from_millis(u64::try_from(until - now_ms()).unwrap_or(0)))
        }
    }
}

/// A time as HTTP writes it, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Millis> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, rest) = text.split_once(", ")?;
    let parts: Vec<&str> = rest.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    parse_rfc3339(&format!("{year}-{month:02}-{day}T{time}Z"))
}

/// A provider's own words about a request, for people: never its JSON.
fn short(body: &str, target: &ModelTarget) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    let text = ["/error/message", "/message", "/error", "/detail", "/body/error/message"]
        .iter()
        .find_map(|at| value.pointer(at).and_then(Value::as_str))
        .unwrap_or("its reason cannot be read");
    let plain: String = target.redacted(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(plain.trim(), LONGEST_TEXT).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelSettings;

    fn target() -> ModelTarget {
        let settings = ModelSettings {
            model: Some("gpt-4o".into()),
            api_key: Some("sk-very-secret".into()),
            ..ModelSettings::default()
        };
        ModelTarget::of(&settings, false).unwrap()
    }

    #[test]
    fn a_status_and_its_body_say_what_to_do() {
        for (status, body, code) in [
            (401, "{}", "invalid_api_key"),
            (400, r#"{"error":{"message":"API key not valid"}}"#, "invalid_api_key"),
            (404, "{}", "unknown_model"),
            (400, r#"{"error":{"code":"context_length_exceeded"}}"#, "context_too_long"),
            (400, r#"{"error":{"message":"prompt is too long: 9 tokens"}}"#, "context_too_long"),
            (
                400,
                r#"{"error":{"message":"the request exceeds the available context size, try increasing it"}}"#,
                "context_too_long",
            ),
            (500, r#"{"error":{"message":"Context size has been exceeded."}}"#, "context_too_long"),
            (500, r#"{"error":{"message":"it took too long"}}"#, "provider_down"),
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, "no_credit"),
            (400, r#"{"error":{"message":"Your credit balance is too low"}}"#, "no_credit"),
            (429, "{}", "rate_limited"),
            (529, "{}", "provider_down"),
            (400, "not json", "request_refused"),
            (413, "<html>", "request_refused"),
        ] {
            let failure = ModelFailure::of_status(status, body, None, &target());
            assert_eq!(failure.told(Some(&target())).code.as_str(), code, "{status} {body}");
        }
    }

    #[test]
    fn no_words_of_a_provider_carry_the_key() {
        let body = r#"{"error":{"message":"bad field near sk-very-secret\n"}}"#;
        let told = ModelFailure::of_status(400, body, None, &target()).told(Some(&target()));
        assert_eq!(told.message, "openai refused the request: bad field near [key]");
    }

    #[test]
    fn a_provider_says_how_long_to_wait_in_every_form() {
        let after = |name: &'static str, value: &str| {
            let mut headers = reqwest::header::HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            wait(&headers)
        };
        assert_eq!(after("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(after("retry-after-ms", "250"), Some(Duration::from_millis(250)));
        assert_eq!(http_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        assert_eq!(after("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO), "is over");
        let far = after("retry-after", "Sat, 06 Nov 2094 08:49:37 GMT").unwrap();
        assert!(far > LONGEST_WAIT);
        for odd in ["", "soon", "-1", "Sun, 06 Nov 1994", "Sun, 41 Foo 1994 08:49:37 GMT"] {
            assert_eq!(after("retry-after", odd), None, "{odd}");
        }
    }

    #[test]
    fn only_what_may_pass_is_asked_again() {
        let after = Some(Duration::from_secs(7));
        assert_eq!(ModelFailure::Busy(after).retry(0), after);
        let long = ModelFailure::Busy(Some(Duration::from_secs(7000)));
        assert_eq!((long.retry(0), long.told(None).message.contains("in 117 minutes")), (None, true));
        assert_eq!(ModelFailure::Down(None).retry(1), Some(Duration::from_secs(1)));
        for failure in [ModelFailure::Key, ModelFailure::NoCredit, ModelFailure::TooLong] {
            assert_eq!(failure.retry(0), None);
        }
    }
}
