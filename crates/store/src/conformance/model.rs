//! What a list should be, worked out the slow and plain way from the records themselves. It shares no
//! code with the stores: not the search text, and not the query's own helpers.

use crate::{ListQuery, Page, SandboxRecord, SortBy, Status};
use std::{cmp::Ordering, collections::BTreeMap};

/// The page that a store with these records must give.
#[must_use]
pub fn expected(records: &[SandboxRecord], query: &ListQuery) -> Page {
    let mut found: Vec<&SandboxRecord> = records.iter().filter(|record| passes(record, query)).collect();
    let mut status_counts = BTreeMap::new();
    for record in &found {
        *status_counts.entry(record.status).or_insert(0) += 1;
    }
    found.retain(|record| query.statuses.is_empty() || query.statuses.contains(&record.status));
    found.sort_by(|one, other| {
        let order = compare(one, other, query.sort_by).then(one.id.cmp(&other.id));
        if query.descending { order.reverse() } else { order }
    });
    let total = found.len() as u64;
    let offset = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let items = found.into_iter().skip(offset).take(query.limit as usize).cloned().collect();
    Page { items, total, status_counts }
}

/// Whether a record passes everything but the statuses.
fn passes(record: &SandboxRecord, query: &ListQuery) -> bool {
    let equal = |wanted: &Option<String>, got: Option<&str>| wanted.is_none() || wanted.as_deref() == got;
    let hidden = record.status == Status::Destroyed
        && !query.include_destroyed
        && !query.statuses.contains(&Status::Destroyed);
    !hidden
        && equal(&query.owner, Some(&record.owner))
        && (query.images.is_empty() || query.images.contains(&record.image))
        && equal(&query.session_key, record.session_key.as_deref())
        && query.labels.iter().all(|(name, value)| record.labels.get(name) == Some(value))
        && query.label.as_ref().is_none_or(|name| record.labels.contains_key(name))
        && (!query.with_lifetime || record.max_lifetime_seconds.is_some())
        && query.text.as_ref().is_none_or(|text| mentions(record, text))
}

fn mentions(record: &SandboxRecord, text: &str) -> bool {
    let text = lower(text);
    let labels = record.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let plain = [record.id.to_string(), record.image.clone(), record.owner_name.clone()];
    let mut fields = plain.into_iter().chain(record.session_key.clone()).chain(labels);
    let bare = text.replace('-', "");
    let in_id = !bare.is_empty() && record.id.to_string().contains(&bare);
    text.is_empty() || in_id || fields.any(|field| lower(&field).contains(&text))
}

fn lower(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

fn compare(one: &SandboxRecord, other: &SandboxRecord, by: SortBy) -> Ordering {
    match by {
        SortBy::CreatedAt => one.created_at.cmp(&other.created_at),
        SortBy::LastActivityAt => one.last_activity_at.cmp(&other.last_activity_at),
        SortBy::Status => one.status.as_str().cmp(other.status.as_str()),
        SortBy::Image => one.image.as_bytes().cmp(other.image.as_bytes()),
        SortBy::ExecCount => one.exec_count.cmp(&other.exec_count),
    }
}
