//! Words of a line: quotes, escapes, and variables. A value that variables expand to is bounded: each line could else
//! double what the one before has made.

use std::collections::BTreeMap;

/// Variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// The longest text that variables expand to, in bytes.
const LONGEST: usize = 32 << 10;
/// Defaults within defaults.
const DEEPEST: usize = 8;

/// Whether a text is the name of a variable.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !text.is_empty() && !text.as_bytes()[0].is_ascii_digit() && text.bytes().all(plain)
}

/// Reads one line.
struct Scanner<'a> {
    text: &'a str,
    variables: &'a Variables,
}

type Result<T> = std::result::Result<T, String>;

fn bounded(out: &str) -> Result<()> {
    if out.len() <= LONGEST { Ok(()) } else { Err(format!("a value has more than {LONGEST} bytes")) }
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<char> {
        let letter = self.text.chars().next()?;
        self.text = &self.text[letter.len_utf8()..];
        Some(letter)
    }

    /// A variable, behind its `$`.
    fn variable(&mut self, out: &mut String, depth: usize) -> Result<()> {
        let Some(inner) = self.text.strip_prefix('{') else {
            let end =
                self.text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.text.len());
            let (name, rest) = self.text.split_at(end);
            if !is_name(name) {
                // A dollar that names nothing is one.
                out.push('$');
                return Ok(());
            }
            self.text = rest;
            out.push_str(self.variables.get(name).map_or("", String::as_str));
            return bounded(out);
        };
        let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
        let (name, rest) = inner.split_at(end);
        if !is_name(name) {
            return Err("${ is followed by no name of a variable".into());
        }
        let value = self.variables.get(name).filter(|value| !value.is_empty());
        if let Some(rest) = rest.strip_prefix('}') {
            self.text = rest;
            out.push_str(value.map_or("", String::as_str));
            return bounded(out);
        }
        let (alternative, rest) = match (rest.strip_prefix(":-"), rest.strip_prefix(":+")) {
            (Some(rest), _) => (value.is_none(), rest),
            (_, Some(rest)) => (value.is_some(), rest),
            _ => {
                return Err(format!(
                    "${{{name:.50}…}} is not supported: there are ${{X}}, ${{X:-y}} and ${{X:+y}}"
                ));
            }
        };
        if depth >= DEEPEST {
            return Err(format!("variables are nested deeper than {DEEPEST}"));
        }
        self.text = rest;
        let mut other = String::new();
        loop {
            match self.next() {
                None => return Err(format!("${{{name:.50} has no end")),
                Some('}') => break,
                Some('\\') => other.extend(self.next()),
                Some('$') => self.variable(&mut other, depth + 1)?,
                Some(letter) => other.push(letter),
            }
        }
        match (alternative, value) {
            (true, _) => out.push_str(&other),
            // `${X:-y}` with a value.
            (false, Some(value)) => out.push_str(value),
            (false, None) => {}
        }
        bounded(out)
    }

    /// The text up to white space, or all of it.
    fn word(&mut self, all: bool) -> Result<String> {
        let mut out = String::new();
        let mut quote = None;
        loop {
            match (self.text.chars().next(), quote) {
                (None, None) => return Ok(out),
                (None, Some(_)) => return Err("a quote has no end".into()),
                (Some(letter), None) if letter.is_whitespace() && !all => return Ok(out),
                _ => {}
            }
            match (self.next(), quote) {
                (Some(letter @ ('\'' | '"')), None) => quote = Some(letter),
                (Some(letter), Some(open)) if letter == open => quote = None,
                (Some('\\'), None) => out.extend(self.next()),
                // Within double quotes only these are escaped.
                (Some('\\'), Some('"')) => match self.text.chars().next() {
                    Some(letter @ ('"' | '$' | '\\')) => {
                        self.next();
                        out.push(letter);
                    }
                    _ => out.push('\\'),
                },
                (Some('$'), None | Some('"')) => self.variable(&mut out, 0)?,
                (Some(letter), _) => out.push(letter),
                (None, _) => {}
            }
            bounded(&out)?;
        }
    }
}

/// A text with its variables in place and without its quotes.
pub(super) fn expand(text: &str, variables: &Variables) -> Result<String> {
    Scanner { text, variables }.word(true)
}

/// The words of a line.
pub(super) fn words(text: &str, variables: &Variables) -> Result<Vec<String>> {
    let mut scanner = Scanner { text: text.trim(), variables };
    let mut found = Vec::new();
    while !scanner.text.is_empty() {
        found.push(scanner.word(false)?);
        scanner.text = scanner.text.trim_start();
    }
    Ok(found)
}

/// `a=b c="d e"`, or `a the rest of the line`.
pub(super) fn pairs(text: &str, variables: &Variables) -> Result<Vec<(String, String)>> {
    let text = text.trim();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let named = |name: String, value: String| match name.is_empty() || name.contains(['\0', '=']) {
        true => Err("a name is missing".to_owned()),
        false => Ok((name, value)),
    };
    if !text[..end].contains('=') {
        let value = text[end..].trim();
        if value.is_empty() {
            return Err("expected NAME=VALUE".into());
        }
        let name = expand(&text[..end], variables)?;
        return Ok(vec![named(name, expand(value, variables)?)?]);
    }
    let pair = |word: String| match word.split_once('=') {
        Some((name, value)) => named(name.to_owned(), value.to_owned()),
        None => Err(format!("{:.50} is no NAME=VALUE", word.escape_debug())),
    };
    words(text, variables)?.into_iter().map(pair).collect()
}
