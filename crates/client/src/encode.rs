//! Percent-encoding. Dots stay as they are: the server decides what a path means.

use std::fmt::Write;

fn push(out: &mut String, text: &str, keep: &[u8]) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep.contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// A file's path as a part of a URL; slashes stay.
pub(crate) fn path(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text, b"/");
    out
}

/// One part of a URL's path; slashes are encoded.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push(&mut out, text, b"");
    out
}

/// `?name=value&…` of the pairs that have a value; empty when none has.
pub(crate) fn query(pairs: &[(&str, Option<String>)]) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            out.push(if out.is_empty() { '?' } else { '&' });
            push(&mut out, name, b"");
            out.push('=');
            push(&mut out, value, b"");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_arrive_as_they_were_typed() {
        assert_eq!(path("/etc/../a b?#%é\n"), "/etc/../a%20b%3F%23%25%C3%A9%0A");
    }

    #[test]
    fn queries_name_what_is_there() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(query(&[("a", None), ("b", some("x=y&z")), ("c", some("+"))]), "?b=x%3Dy%26z&c=%2B");
        assert_eq!(query(&[("a", None)]), "");
    }
}
