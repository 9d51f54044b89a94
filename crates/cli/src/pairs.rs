//! `NAME=VALUE`.

use std::collections::BTreeMap;

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) value: String,
}

fn split(text: &str) -> Option<Pair> {
    let (name, value) = text.split_once('=')?;
    (!name.is_empty()).then(|| Pair { name: name.into(), value: value.into() })
}

/// A variable: `NAME=VALUE`, or `NAME` for one of ours.
pub(crate) fn environment(text: &str) -> Result<Pair, String> {
    match split(text) {
        Some(pair) => Ok(pair),
        None if text.is_empty() || text.contains('=') => Err("expected NAME=VALUE".into()),
        None => match std::env::var(text) {
            Ok(value) => Ok(Pair { name: text.into(), value }),
            Err(_) => Err(format!("{text} is not set here; give it as {text}=VALUE")),
        },
    }
}

/// A label. The API separates several by commas, so none may have one.
pub(crate) fn label(text: &str) -> Result<Pair, String> {
    if text.contains(',') {
        return Err("a label cannot hold a comma; give --label once for each".into());
    }
    split(text).ok_or_else(|| "expected NAME=VALUE".into())
}

/// By name; the last of two with one name counts.
pub(crate) fn map(pairs: Vec<Pair>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|Pair { name, value }| (name, value)).collect()
}

/// A package that a new sandbox is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) language: String,
    pub(crate) name: String,
    /// Empty for the latest.
    pub(crate) version: String,
}

/// LANGUAGE:NAME or LANGUAGE:NAME==VERSION.
pub(crate) fn package(text: &str) -> Result<Package, String> {
    let wrong =
        || "expected LANGUAGE:NAME or LANGUAGE:NAME==VERSION, such as python:pandas==2.2.3".to_owned();
    let (language, rest) = text.split_once(':').ok_or_else(wrong)?;
    let (name, version) = rest.split_once("==").unwrap_or((rest, ""));
    if language.is_empty() || name.is_empty() {
        return Err(wrong());
    }
    Ok(Package { language: language.to_lowercase(), name: name.to_owned(), version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_anything_and_names_must_be_there() {
        assert_eq!(environment("A=b=c, d"), Ok(Pair { name: "A".into(), value: "b=c, d".into() }));
        assert_eq!(environment("A=").unwrap().value, "");
        assert_eq!(environment("PATH").unwrap().value, std::env::var("PATH").unwrap());
        assert!(environment("=x").is_err() && environment("").is_err());
        assert!(environment("ATOLL_NOT_SET_ANYWHERE").is_err());
        assert!(label("a=b").is_ok() && label("a").is_err() && label("a=b,c").is_err());
    }
}
