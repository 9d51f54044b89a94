//! Reading bodies and queries strictly: an unknown field, a wrong type or a number too large is the
//! caller's mistake and is answered with the field's name.

use crate::{Failure, LARGEST_BODY, request_body::RequestAccount};
use atoll_types::Error;
use axum::{
    extract::{FromRequest, FromRequestParts, Query, Request},
    http::request::Parts,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Below this a float tells whole numbers apart.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A body as it came, within the limit.
pub struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        Ok(Self(read_request(request, LARGEST_BODY).await?))
    }
}

/// The whole body of a request, which may have this many bytes and counts for the request's owner. A handler knows the
/// caller before it reads.
pub async fn read_request(request: Request, most: usize) -> Result<Bytes, Failure> {
    let account = request.extensions().get::<RequestAccount>().cloned().unwrap_or_default();
    account.read(request.into_body(), most).await
}

/// The field that serde's message speaks of, if it names one.
fn field_of(message: &str) -> Option<&str> {
    let (before, rest) = message.split_once('`')?;
    let named = before.ends_with("field ") || before.ends_with("variant ");
    named.then(|| rest.split('`').next()).flatten()
}

/// JSON of a body. An empty one counts as `{}`.
pub fn json<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    let body: &[u8] = if body.iter().all(u8::is_ascii_whitespace) { b"{}" } else { body };
    // Serde would read a list as the fields in their order.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::invalid("body", "expected a JSON object").into());
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = match serde_path_to_error::deserialize(&mut reader) {
        Err(e) if e.inner().to_string().starts_with("invalid type: floating point") => {
            // JSON has one kind of number: 8080.0 is a whole one, which serde does not take for a port.
            let whole = serde_json::from_slice(body).map(whole_numbers).and_then(T::deserialize);
            return whole.map_err(|_| wrong(e.path().to_string().as_str(), e.inner()));
        }
        read => read.map_err(|e| wrong(e.path().to_string().as_str(), e.inner()))?,
    };
    reader.end().map_err(|e| wrong(".", &e))?;
    Ok(value)
}

/// A value in which no whole number is written with a fraction.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) if float.fract() == 0.0 && float.abs() < EXACT => Value::from(float as i64),
            _ => Value::Number(number),
        },
        Value::Array(list) => list.into_iter().map(whole_numbers).collect(),
        Value::Object(map) => map.into_iter().map(|(name, value)| (name, whole_numbers(value))).collect(),
        other => other,
    }
}

/// The caller's mistake at a path of the body, in the words of JSON and not in those of serde.
fn wrong(path: &str, error: &serde_json::Error) -> Failure {
    if error.is_syntax() || error.is_eof() {
        let message = format!("the body is not JSON (line {} column {})", error.line(), error.column());
        return Error::invalid("body", message).into();
    }
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    // A key that is not understood has no place of its own in the path.
    let above = path.trim_end_matches('?').trim_end_matches('.');
    let key = if path.ends_with(['?', '.']) { field_of(message) } else { None };
    let parts = [above, key.unwrap_or_default()];
    let field = parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(".");
    let expected =
        message.rsplit_once(", expected ").filter(|_| message.starts_with("invalid ")).map(|(_, e)| e);
    let named = if field.is_empty() { "the body" } else { &field };
    let message = match expected.and_then(expectation) {
        Some(kind) => format!("{named} must be {kind}"),
        None => message.to_owned(),
    };
    Error::invalid(if field.is_empty() { "body" } else { &field }, message).into()
}

/// What serde expected, as a person who writes JSON says it.
fn expectation(serde: &str) -> Option<&'static str> {
    Some(match serde {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" => "a string",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" | "an object" => "an object",
        _ if serde.starts_with("struct ") => "an object",
        _ => return None,
    })
}

/// JSON of a body that must be there: to leave it out is a mistake, and not the same as `{}`.
pub fn required_json<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        let message = "the request has no body; send a JSON object";
        return Err(Error::invalid("body", message).into());
    }
    json(body)
}

/// A query, read strictly.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(value)) => Ok(Self(value)),
            Err(e) => {
                let message = e.body_text();
                let message = message.trim_start_matches("Failed to deserialize query string: ").to_owned();
                let name = |f: &&str| f.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                let before = message.split_once(':').map(|(field, _)| field).filter(name);
                let field = before.or_else(|| field_of(&message)).unwrap_or("query").to_owned();
                Err(Failure::in_query(Error::invalid(field, message)))
            }
        }
    }
}
