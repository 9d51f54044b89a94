//! The APIs of other sandbox servers, by the requests that their documentation prints and by hostile ones.

mod containers;
mod runs;

use super::{
    fixture::{KEY, Server},
    http::Answer,
};
use serde_json::Value;

/// A value in which what differs from run to run is replaced by what it is.
fn masked(mut value: Value) -> Value {
    fn mask(name: &str, value: &mut Value) {
        match value {
            Value::Array(all) => all.iter_mut().for_each(|one| mask(name, one)),
            Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| mask(name, value)),
            Value::String(text) if name == "traceback" => *text = "<as Python prints it>".into(),
            Value::String(text) if name.ends_with("_at") => {
                *text = format!("<time of {} characters>", text.len());
            }
            Value::Number(_) if name == "duration_ms" => *value = "<milliseconds>".into(),
            _ => {}
        }
    }
    mask("", &mut value);
    value
}

/// A text without the digits of ids, wherever they are in it.
fn without_ids(text: &str) -> String {
    let of_id = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c) || c == '-';
    let (mut out, mut rest) = (String::new(), text);
    while let Some(begin) = rest.find(of_id) {
        let run = &rest[begin..];
        let end = run.find(|c| !of_id(c)).unwrap_or(run.len());
        let digits = run[..end].chars().filter(char::is_ascii_hexdigit).count();
        out += &rest[..begin];
        out += if digits == 32 { "<id>" } else { &run[..end] };
        rest = &run[end..];
    }
    out + rest
}

/// A request and its answer, as a golden file has them.
fn told(method: &str, path: &str, answer: &Answer) -> String {
    let body = match answer.body.is_empty() {
        true => String::new(),
        false => {
            // Whether objects keep their order is up to other crates of the build.
            let mut value = answer.json();
            value.sort_all_objects();
            format!("\n{:#}", masked(value))
        }
    };
    without_ids(&format!("{method} {path}\n{}{body}\n", answer.status))
}

impl Server {
    /// A request of an API at `/api/sandbox`, which must have this status.
    fn compat(&self, key: &str, method: &str, path: &str, body: &str, status: u16) -> Value {
        let answer = self.ask_as(key, method, &format!("/api/sandbox{path}"), body);
        assert_eq!(answer.status, status, "{method} {path}: {}", String::from_utf8_lossy(&answer.body));
        if answer.body.is_empty() { Value::Null } else { answer.json() }
    }
}
