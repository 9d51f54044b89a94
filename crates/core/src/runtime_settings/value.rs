//! Values of settings: read strictly, checked against their range, and said again.

use atoll_types::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::{fmt::Display, ops::RangeInclusive};

/// A value from a flag or a variable: JSON, or else the text itself.
pub(super) fn of_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Reads a value and checks it.
pub(super) fn read<T: DeserializeOwned>(
    name: &str,
    value: &Value,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T> {
    let read: T = T::deserialize(value).map_err(|e| Error::invalid(name, format!("{name}: {e}")))?;
    check(&read).map_err(|why| Error::invalid(name, format!("{name} {why}")))?;
    Ok(read)
}

/// What lies in a range. Not a number lies in none.
pub(super) fn within<T: PartialOrd + Display + Copy>(
    range: RangeInclusive<T>,
) -> impl FnOnce(&T) -> Result<(), String> {
    move |value| match range.contains(value) {
        true => Ok(()),
        false => Err(format!("must be between {} and {}", range.start(), range.end())),
    }
}
