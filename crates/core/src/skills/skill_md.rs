//! SKILL.md: fields in a YAML front matter, and instructions. The text is untrusted: the YAML is read event by event, and
//! anchors, deep nesting and large documents are refused, so that a small text never becomes a large value.

use atoll_types::{Error, ErrorCode, Result, SkillName, text::cut};
use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};
use std::fmt::Write;

/// The longest SKILL.md, in bytes.
pub const LONGEST_SKILL_MD: usize = 1 << 20;
/// The longest description, in characters.
pub const LONGEST_DESCRIPTION: usize = 1024;
/// The longest front matter, in bytes.
const LONGEST_FRONT_MATTER: usize = 64 << 10;
const DEEPEST: usize = 16;
/// The longest error of a parser that is passed on.
const LONGEST_ERROR: usize = 300;

/// A SKILL.md that has what it must have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SkillMd {
    pub(super) name: SkillName,
    pub(super) description: String,
    /// The other fields of the front matter.
    pub(super) metadata: Map<String, Value>,
    /// All of it, with the front matter.
    pub(super) text: String,
}

/// What a request says of a skill; it wins over the front matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SkillFields {
    pub name: Option<String>,
    pub description: Option<String>,
    pub metadata: Option<Map<String, Value>>,
}

fn malformed(reason: &str) -> Error {
    let reason = cut(reason, LONGEST_ERROR);
    let message = format!("the front matter of SKILL.md cannot be read: {reason}");
    Error::new(ErrorCode::SkillMalformedFrontmatter, message).fact("parse_error", reason)
}

/// The front matter and what follows it; none where there is no front matter.
fn split(text: &str) -> Result<Option<(&str, &str)>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    let Some(first) = lines.next().filter(|line| is_fence(line)) else { return Ok(None) };
    let mut end = first.len();
    for line in lines {
        if is_fence(line) {
            return Ok(Some((&text[first.len()..end], &text[end + line.len()..])));
        }
        end += line.len();
    }
    Err(malformed("it has no end: a line with --- is missing"))
}

/// A list or a mapping that is not complete.
enum Open {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::from(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => {
            let integer = text.parse::<i64>().ok().filter(|_| !text.starts_with('+')).map(Value::from);
            let begins = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.'));
            let float = || text.parse::<f64>().ok().filter(|f| begins && f.is_finite()).map(Value::from);
            integer.or_else(float).unwrap_or_else(|| Value::from(text))
        }
    }
}

/// A scalar as text.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Puts a value where it belongs; it is returned where nothing is open.
fn place(open: &mut [Open], value: Value) -> Result<Option<Value>, String> {
    match open.last_mut() {
        None => return Ok(Some(value)),
        Some(Open::List(all)) => all.push(value),
        Some(Open::Map(map, key)) => match key.take() {
            None => *key = Some(text_of(&value).ok_or("a key is no text")?),
            Some(key) if map.contains_key(&key) => return Err(format!("{key:?} is there twice")),
            Some(key) => drop(map.insert(key, value)),
        },
    }
    Ok(None)
}

fn yaml(text: &str) -> Result<Map<String, Value>, String> {
    let (mut open, mut whole) = (Vec::new(), None);
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|e| e.to_string())?;
        let value = match event {
            Event::Alias(_) => return Err("aliases are not supported".into()),
            Event::DocumentStart(_) if whole.is_some() => return Err("it has several documents".into()),
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= DEEPEST => {
                return Err(format!("it is nested deeper than {DEEPEST}"));
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(Vec::new()));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(Map::new(), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(all)) => Value::Array(all),
                Some(Open::Map(map, _)) => Value::Object(map),
                None => return Err("it ends before it begins".into()),
            },
            _ => continue,
        };
        whole = place(&mut open, value)?.or(whole);
    }
    match whole {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(_) => Err("it is no mapping of fields".into()),
    }
}

fn missing(fields: &[&str]) -> Error {
    let message = format!("the front matter of SKILL.md lacks {}", fields.join(" and "));
    Error::new(ErrorCode::SkillFrontmatterMissingField, message).fact("missing_fields", fields.to_vec())
}

/// Checks the fields of a front matter.
fn validated(mut fields: Map<String, Value>, text: String) -> Result<SkillMd> {
    let mut take = |field: &str| {
        let text = fields.get(field).and_then(text_of)?;
        let text = text.trim().to_owned();
        fields.remove(field);
        (!text.is_empty()).then_some(text)
    };
    let (name, description) = (take("name"), take("description"));
    let (Some(name), Some(description)) = (&name, &description) else {
        let lacking = [("name", &name), ("description", &description)].into_iter();
        let lacking: Vec<&str> = lacking.filter(|(_, text)| text.is_none()).map(|(field, _)| field).collect();
        return Err(missing(&lacking));
    };
    let name =
        name.parse().map_err(|e: atoll_types::SkillNameError| Error::invalid("name", e.to_string()))?;
    if description.chars().count() > LONGEST_DESCRIPTION || description.contains('\0') {
        let message = format!("a description has at most {LONGEST_DESCRIPTION} characters, none of them NUL");
        return Err(Error::invalid("description", message));
    }
    Ok(SkillMd { name, description: description.clone(), metadata: fields, text })
}

fn bounded(text: &str) -> Result<()> {
    match text.len() <= LONGEST_SKILL_MD && !text.contains('\0') {
        true => Ok(()),
        false => {
            let message = format!("SKILL.md has at most {LONGEST_SKILL_MD} bytes, none of them NUL");
            Err(Error::new(ErrorCode::TooLarge, message).at("skill_md_content"))
        }
    }
}

fn fields_of(front: &str) -> Result<Map<String, Value>> {
    match front.len() <= LONGEST_FRONT_MATTER {
        true => yaml(front).map_err(|reason| malformed(&reason)),
        false => Err(malformed(&format!("it is longer than {LONGEST_FRONT_MATTER} bytes"))),
    }
}

/// A front matter with these fields, each value in the JSON that YAML understands, and what follows it.
fn written(fields: &Map<String, Value>, body: &str) -> String {
    let plain = |key: &str| key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let mut text = String::from("---\n");
    for (key, value) in fields {
        let quoted = Value::from(key.as_str()).to_string();
        let key = if plain(key) && !key.is_empty() { key } else { &quoted };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key}: {value}");
    }
    text.push_str("---\n");
    text.push_str(body);
    text
}

impl SkillMd {
    /// As a package has it.
    pub(super) fn parse(text: String) -> Result<Self> {
        bounded(&text)?;
        let (front, _) = split(&text)?.ok_or_else(|| malformed("SKILL.md does not begin with a line ---"))?;
        let fields = fields_of(front)?;
        validated(fields, text)
    }

    /// A text with what a request says of it. One that has no front matter gets one, in which the description is the
    /// name where none is given.
    pub(super) fn compose(text: &str, asked: SkillFields) -> Result<Self> {
        bounded(text)?;
        let SkillFields { name, description, metadata } = asked;
        let (front, body) = match split(text)? {
            Some((front, body)) => (Some(fields_of(front)?), body),
            None => (None, text),
        };
        let unchanged = front.is_some() && metadata.is_none();
        let same = |field: &str, asked: &Option<String>| {
            asked.is_none() || front.as_ref().and_then(|all| text_of(all.get(field)?)) == *asked
        };
        if unchanged && same("name", &name) && same("description", &description) {
            return Self::parse(text.to_owned());
        }
        let named = |all: &Map<String, Value>, field: &str| all.get(field).and_then(text_of);
        let bare = front.is_none();
        let mut fields = front.unwrap_or_default();
        let name = name.or_else(|| named(&fields, "name"));
        let description = description.or_else(|| named(&fields, "description"));
        let description = description.or_else(|| name.clone().filter(|_| bare));
        if let Some(metadata) = metadata {
            fields = metadata;
        }
        for (field, value) in [("name", name), ("description", description)] {
            match value {
                Some(value) => drop(fields.insert(field.into(), value.into())),
                None => drop(fields.remove(field)),
            }
        }
        let text = written(&fields, body);
        let parsed = Self::parse(text)?;
        let read: Map<String, Value> =
            fields.into_iter().filter(|(key, _)| key != "name" && key != "description").collect();
        match parsed.metadata == read {
            true => Ok(parsed),
            false => Err(Error::invalid("skill_metadata", "its fields cannot be written as YAML")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn parsed(text: &str) -> Result<SkillMd> {
        SkillMd::parse(text.to_owned())
    }

    #[test]
    fn fields_are_read_as_yaml() {
        let text = "\u{feff}---\r\nname: data-analyzer\r\ndescription: >\r\n  Reads tables,\r\n  and more: \"all\"\r\nlicense: 'MIT'\r\n\
                    metadata:\r\n  version: 1.5\r\n  tags: [a, \"b\", 3, true, null]\r\n---\r\n# Title\r\n---\r\n";
        let skill = parsed(text).unwrap();
        assert_eq!(skill.name.as_str(), "data-analyzer");
        assert_eq!(skill.description, "Reads tables, and more: \"all\"");
        let metadata =
            json!({"license": "MIT", "metadata": {"version": 1.5, "tags": ["a", "b", 3, true, null]}});
        assert_eq!(Value::Object(skill.metadata), metadata);
        assert_eq!(skill.text, text);
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let code = |text: &str| {
            let error = parsed(text).unwrap_err();
            (error.code, error.refusal.map(|refusal| Value::Object(refusal.facts)))
        };
        let lacks = |fields: Value| {
            (ErrorCode::SkillFrontmatterMissingField, Some(json!({"missing_fields": fields})))
        };
        assert_eq!(code("---\n---\n"), lacks(json!(["name", "description"])));
        assert_eq!(code("---\nname: a\ndescription: ' '\n---\n"), lacks(json!(["description"])));
        assert_eq!(code("---\nname: [a]\ndescription: b\n---\n"), lacks(json!(["name"])));
        for wrong in [
            "",
            "# no front matter",
            "---\nname: a\n",
            "---\nname: a\nname: b\n---\n",
            "---\n- a\n---\n",
            "---\nname: {\n---\n",
            "---\nname: &x a\ndescription: *x\n---\n",
            &format!("---\nx: {}{}\n---\n", "[".repeat(40), "]".repeat(40)),
            &format!("---\nx: {}\n---\n", "y".repeat(LONGEST_FRONT_MATTER)),
        ] {
            let (code, facts) = code(wrong);
            assert_eq!(code, ErrorCode::SkillMalformedFrontmatter, "{wrong:.60}");
            assert!(facts.unwrap()["parse_error"].is_string());
        }
        let field = |text: &str| parsed(text).unwrap_err().field.unwrap();
        assert_eq!(field("---\nname: A B\ndescription: b\n---\n"), "name");
        assert_eq!(field("---\nname: ../x\ndescription: b\n---\n"), "name");
        assert_eq!(field(&format!("---\nname: a\ndescription: {}\n---\n", "b".repeat(1025))), "description");
        assert!(parsed(&format!("---\nname: a\ndescription: {}\n---\n", "ü".repeat(1024))).is_ok());
    }

    #[test]
    fn a_request_wins_over_the_front_matter() {
        let asked = |name: &str, description: Option<&str>| SkillFields {
            name: Some(name.into()),
            description: description.map(Into::into),
            metadata: None,
        };
        let made = SkillMd::compose("# Do it", asked("do-it", None)).unwrap();
        assert_eq!((made.name.as_str(), made.description.as_str()), ("do-it", "do-it"));
        assert_eq!(made.text, "---\nname: \"do-it\"\ndescription: \"do-it\"\n---\n# Do it");
        let text = "---\nname: do-it # kept\ndescription: one\nlicense: MIT\n---\nbody";
        assert_eq!(SkillMd::compose(text, asked("do-it", Some("one"))).unwrap().text, text);
        let renamed = SkillMd::compose(text, asked("other", Some("\"two\": #3"))).unwrap();
        assert_eq!((renamed.name.as_str(), renamed.description.as_str()), ("other", "\"two\": #3"));
        assert_eq!(Value::Object(renamed.metadata), json!({"license": "MIT"}));
        assert!(renamed.text.ends_with("---\nbody"));
        let metadata = json!({"a b": [1, {"c": null}], "": "\u{1}\n"}).as_object().cloned();
        let with = SkillFields { metadata: metadata.clone(), ..SkillFields::default() };
        assert_eq!(Some(SkillMd::compose(text, with).unwrap().metadata), metadata);
        let lacking = SkillMd::compose("---\nname: a\n---\n", SkillFields::default()).unwrap_err();
        assert_eq!(lacking.code, ErrorCode::SkillFrontmatterMissingField);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[-a:\\[\\]{}&*!|>'\"%@`,?#~ \\t\\r\\né0]{0,60}") {
            let _ = parsed(&format!("---\n{text}\n---\n"));
            let _ = parsed(&text);
            if let Ok(made) = SkillMd::compose(&text, SkillFields { name: Some("a".into()), ..SkillFields::default() }) {
                prop_assert_eq!(SkillMd::parse(made.text.clone()), Ok(made));
            }
        }
    }
}
