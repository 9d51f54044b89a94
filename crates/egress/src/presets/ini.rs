//! The settings of pip and npm: `[section]`, `key = value`, comments.

/// One setting.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// The section, in lower case; empty before the first.
    pub(super) section: String,
    /// The key as it is written.
    pub(super) key: String,
    /// The value; one that is continued over several lines has them all.
    pub(super) value: String,
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with(['#', ';'])
}

fn section(line: &str) -> Option<String> {
    Some(line.strip_prefix('[')?.strip_suffix(']')?.trim().to_ascii_lowercase())
}

/// Reads settings. `continued`: a line that begins with a blank belongs to the value before it, as in
/// Python; elsewhere it is a line like any other.
pub(super) fn settings(text: &str, continued: bool) -> Vec<Setting> {
    let mut found: Vec<Setting> = Vec::new();
    let mut current = String::new();
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if is_comment(trimmed) {
            continue;
        }
        if continued
            && line.starts_with([' ', '\t'])
            && let Some(last) = found.last_mut()
        {
            last.value.push('\n');
            last.value.push_str(trimmed);
            continue;
        }
        if let Some(name) = section(trimmed) {
            current = name;
            continue;
        }
        let cut = if continued { trimmed.find(['=', ':']) } else { trimmed.find('=') };
        if let Some(at) = cut {
            let (key, value) = (trimmed[..at].trim(), trimmed[at + 1..].trim());
            found.push(Setting { section: current.clone(), key: key.to_owned(), value: value.to_owned() });
        }
    }
    found
}

/// A value without quotes around it.
pub(super) fn unquoted(value: &str) -> &str {
    let inside = |quote| value.strip_prefix(quote).and_then(|v: &str| v.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_dialects_read() {
        let text = "; c\n[Global]\nindex-url: https://a.example/x\n# c\nextra = one\n  two\n\n[install]\nk=v=w\nnonsense\n";
        let setting = |section: &str, key: &str, value: &str| Setting {
            section: section.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let expected = [
            setting("global", "index-url", "https://a.example/x"),
            setting("global", "extra", "one\ntwo"),
            setting("install", "k", "v=w"),
        ];
        assert_eq!(settings(text, true), expected);
        let npm = settings("@s:registry=https://a.example/\n  registry = \"https://b.example/\"\n", false);
        assert_eq!(npm[0].key, "@s:registry");
        assert_eq!((npm[1].key.as_str(), unquoted(&npm[1].value)), ("registry", "https://b.example/"));
    }
}
