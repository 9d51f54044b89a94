//! What a page of operations and a summary should be, worked out the slow and plain way.

use crate::{OperationQuery, OperationRow, Outcome, SandboxId, Summary, Tally};
use std::collections::BTreeMap;

fn passes(operation: &OperationRow, query: &OperationQuery) -> bool {
    let OperationRow { at, begin, end, .. } = operation;
    let end = end.as_ref().map(|end| &end.facts);
    let text = |text: &String| begin.detail.text.to_ascii_lowercase().contains(&text.to_ascii_lowercase());
    query.sandbox.is_none_or(|sandbox| begin.sandbox == Some(sandbox))
        && query.owner.as_ref().is_none_or(|owner| begin.owner == *owner)
        && query.key.is_none_or(|key| begin.key == Some(key))
        && query.kind.as_ref().is_none_or(|kind| begin.kind == *kind)
        && query.exit_code.is_none_or(|code| end.is_some_and(|end| end.exit_code == Some(code)))
        && query.outcome.is_none_or(|outcome| end.is_some_and(|end| end.outcome == outcome))
        && query.text.as_ref().is_none_or(text)
        && query.since.is_none_or(|since| *at >= since)
        && query.until.is_none_or(|until| *at <= until)
        && (!query.open || end.is_none())
}

/// The page that a store with these operations must give.
#[must_use]
pub fn expected_operations(all: &[OperationRow], query: &OperationQuery) -> Vec<OperationRow> {
    let before = |operation: &&OperationRow| query.before.is_none_or(|before| operation.seq < before);
    let mut found: Vec<&OperationRow> = all.iter().filter(|operation| passes(operation, query)).collect();
    found.retain(before);
    found.sort_by_key(|operation| std::cmp::Reverse(operation.seq));
    found.into_iter().take(query.limit.min(500) as usize).cloned().collect()
}

/// The summary that it must give; of equally busy sandboxes the one with the smaller id comes first.
#[must_use]
pub fn expected_summary(all: &[OperationRow], query: &OperationQuery) -> Summary {
    let mut total = Tally::default();
    let mut days: BTreeMap<i64, Tally> = BTreeMap::new();
    let mut sandboxes: BTreeMap<Option<SandboxId>, Tally> = BTreeMap::new();
    let mut outcomes: BTreeMap<(bool, Option<Outcome>), Tally> = BTreeMap::new();
    for operation in all.iter().filter(|operation| passes(operation, query)) {
        let outcome = operation.end.as_ref().map(|end| end.facts.outcome);
        let tallies = [
            &mut total,
            days.entry(operation.at.div_euclid(86_400_000)).or_default(),
            sandboxes.entry(operation.begin.sandbox).or_default(),
            outcomes.entry((outcome.is_none(), outcome)).or_default(),
        ];
        for tally in tallies {
            tally.count += 1;
            tally.ok += u64::from(outcome == Some(Outcome::Ok));
            tally.failed += u64::from(outcome.is_some_and(|outcome| outcome != Outcome::Ok));
            tally.duration_us += operation.end.as_ref().map_or(0, |end| end.facts.duration_us);
        }
    }
    let mut sandboxes: Vec<_> = sandboxes.into_iter().collect();
    sandboxes.sort_by_key(|(sandbox, tally)| (std::cmp::Reverse(tally.count), *sandbox));
    let outcomes = outcomes.into_iter().map(|((_, outcome), tally)| (outcome, tally)).collect();
    Summary { total, days: days.into_iter().rev().collect(), sandboxes, outcomes }
}
