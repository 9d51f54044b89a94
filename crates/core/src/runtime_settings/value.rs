//! Values of settings: read strictly, checked against their range, and said again.

use atoll_types::text::TextRule;
use atoll_types::{Error, Result};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{fmt::Display, ops::RangeInclusive};

/// What a setting may be: as a check, and as a JSON Schema.
pub(super) struct ValueRule<F> {
    pub(super) check: F,
    pub(super) schema: Value,
}

/// A text by its rule, as a JSON Schema.
pub(super) fn text_schema(rule: &TextRule) -> Value {
    json!({"type": "string", "minLength": rule.least, "maxLength": rule.most, "pattern": rule.pattern()})
}

/// A number of a range, as a JSON Schema.
pub(super) fn range_schema<T: Serialize>(range: &RangeInclusive<T>) -> Value {
    let (least, most) = (json!(range.start()), json!(range.end()));
    let kind = if least.is_f64() { "number" } else { "integer" };
    json!({"type": kind, "minimum": least, "maximum": most})
}

/// Any value of a type.
pub(super) fn any<T>(schema: Value) -> ValueRule<impl FnOnce(&T) -> Result<(), String>> {
    ValueRule { check: |_: &T| Ok(()), schema }
}

/// A value from a flag or a variable: JSON, or else the text itself.
pub(super) fn of_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Reads a value and checks it.
pub(super) fn read<T: DeserializeOwned>(
    name: &str,
    value: &Value,
    rule: ValueRule<impl FnOnce(&T) -> Result<(), String>>,
) -> Result<T> {
    let read: T = T::deserialize(value).map_err(|e| Error::invalid(name, format!("{name}: {e}")))?;
    (rule.check)(&read).map_err(|why| Error::invalid(name, format!("{name} {why}")))?;
    Ok(read)
}

/// What lies in a range. Not a number lies in none.
pub(super) fn within<T: PartialOrd + Display + Copy + Serialize>(
    range: RangeInclusive<T>,
) -> ValueRule<impl FnOnce(&T) -> Result<(), String>> {
    let schema = range_schema(&range);
    let check = move |value: &T| match range.contains(value) {
        true => Ok(()),
        false => Err(format!("must be between {} and {}", range.start(), range.end())),
    };
    ValueRule { check, schema }
}
