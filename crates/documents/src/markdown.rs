//! The parts of Markdown that the checks look at. Fenced blocks are left out: they hold what is typed, not paths
//! of this repository.

/// The lines outside of fenced blocks, with their numbers counted from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        let hidden = fenced || fence;
        fenced ^= fence;
        (!hidden).then_some((index + 1, line))
    })
}

/// What stands between backticks in a line.
pub(crate) fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of the links in a line.
pub(crate) fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchors of a document's headings, as GitHub makes them.
pub(crate) fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text)
        .filter_map(|(_, line)| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()));
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{anchors, code_spans, links, prose};

    #[test]
    fn blocks_are_not_prose() {
        let text = "one\n```console\n$ `two`\n```\nthree `four` [five](six.md)\n";
        assert_eq!(prose(text).map(|(number, _)| number).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(prose(text).flat_map(|(_, line)| code_spans(line)).collect::<Vec<_>>(), ["four"]);
        assert_eq!(prose(text).flat_map(|(_, line)| links(line)).collect::<Vec<_>>(), ["six.md"]);
    }

    #[test]
    fn headings_are_anchors() {
        assert_eq!(anchors("# `atoll run`: one command\n## Two\n"), ["atoll-run-one-command", "two"]);
    }
}
