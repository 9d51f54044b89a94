//! Lists, against the plain model.

use super::{Failure, NOW, Outcome, Shared, add, expected, same, sandbox};
use crate::{
    Activity, ActivityKind, Change, ListQuery, NewSandbox, SandboxId, SandboxRecord, SortBy, Status,
};
use std::collections::BTreeMap;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// Records that are equal in almost everything, so that only a total order keeps them apart.
async fn fill(store: &Shared) -> Result<Vec<SandboxRecord>, Failure> {
    let mut records = Vec::new();
    for number in 0..40_u32 {
        let new = NewSandbox {
            owner: format!("owner {}", number % 2),
            image: ["B", "a", "a_b", "é", "a-b"][number as usize % 5].into(),
            session_key: (number % 4 == 0).then(|| format!("key {number}")),
            labels: labels(
                &[("parity", ["even", "odd"][number as usize % 2]), ("third", "0")]
                    [..1 + number as usize % 2],
            ),
            created_at: NOW + i64::from(number % 3),
            ..sandbox()
        };
        let id = add(store, new).await?.id;
        for _ in 0..number % 3 {
            store.record_activity(exec(id, NOW + i64::from(number % 4))).await?;
        }
        let status = Status::ALL[number as usize % Status::ALL.len()];
        records.push(store.update_sandbox(id, 1, Change::status(status)).await?);
    }
    Ok(records)
}

fn exec(sandbox: SandboxId, at: i64) -> Activity {
    let (exit_code, duration_ms) = (Some(0), Some(1));
    Activity {
        sandbox,
        kind: ActivityKind::Exec,
        at,
        detail: "true".into(),
        exit_code,
        duration_ms,
        bytes: None,
    }
}

async fn agrees(store: &Shared, records: &[SandboxRecord], query: &ListQuery) -> Outcome {
    same(&format!("{query:?}"), store.list_sandboxes(query).await?, expected(records, query))
}

pub(super) async fn pages_show_each_record_once_in_order(store: Shared) -> Outcome {
    let records = fill(&store).await?;
    for sort_by in SortBy::ALL {
        for descending in [false, true] {
            let all = ListQuery {
                sort_by: *sort_by,
                descending,
                limit: 100,
                include_destroyed: true,
                ..ListQuery::default()
            };
            agrees(&store, &records, &all).await?;
            let whole = store.list_sandboxes(&all).await?.items;
            for limit in [1, 7, 40] {
                let mut shown = Vec::new();
                while shown.len() < whole.len() {
                    let query = ListQuery { limit, offset: shown.len() as u64, ..all.clone() };
                    let page = store.list_sandboxes(&query).await?;
                    if page.items.is_empty() {
                        break;
                    }
                    shown.extend(page.items);
                }
                same("the pages together", &shown, &whole)?;
            }
        }
    }
    for (offset, limit) in [(0, 0), (40, 5), (u64::MAX, u32::MAX)] {
        agrees(&store, &records, &ListQuery { offset, limit, ..ListQuery::default() }).await?;
    }
    Ok(())
}

pub(super) async fn filters_narrow_and_the_counts_ignore_the_status(store: Shared) -> Outcome {
    let records = fill(&store).await?;
    let any = || ListQuery { limit: 100, ..ListQuery::default() };
    let cases = [
        any(),
        ListQuery { include_destroyed: true, ..any() },
        ListQuery { owner: Some("owner 1".into()), ..any() },
        ListQuery { owner: Some("OWNER 1".into()), ..any() },
        ListQuery { statuses: vec![Status::Ready, Status::Dead], ..any() },
        ListQuery { statuses: vec![Status::Destroyed], ..any() },
        ListQuery { statuses: Status::ALL.to_vec(), owner: Some("owner 0".into()), ..any() },
        ListQuery { images: vec!["a_b".into()], ..any() },
        ListQuery { images: vec!["a-b".into(), "B".into(), "nosuch".into()], ..any() },
        ListQuery { session_key: Some("key 4".into()), ..any() },
        ListQuery { labels: labels(&[("parity", "odd")]), ..any() },
        ListQuery { labels: labels(&[("parity", "odd"), ("third", "0")]), ..any() },
        ListQuery { labels: labels(&[("parity", "odd"), ("third", "1")]), ..any() },
        ListQuery { labels: labels(&[("parity", "even"), ("third", "0")]), ..any() },
        ListQuery { labels: labels(&[("odd", "parity")]), ..any() },
        ListQuery { label: Some("third".into()), ..any() },
        ListQuery { label: Some("0".into()), ..any() },
        ListQuery {
            owner: Some("owner 0".into()),
            statuses: vec![Status::Ready],
            images: vec!["a".into()],
            labels: labels(&[("parity", "even")]),
            text: Some("ada".into()),
            ..any()
        },
    ];
    for query in cases {
        agrees(&store, &records, &query).await?;
    }
    Ok(())
}

pub(super) async fn text_is_found_as_it_is_written(store: Shared) -> Outcome {
    let mut records = Vec::new();
    let texts = ["100%", "a_b", "a\\b", "aXb", "Größe", "O'Neil", "\u{1f}x", "%", "ΑΣ", "x*?[a]"];
    for text in texts {
        let by_name = NewSandbox { owner_name: text.into(), ..sandbox() };
        let by_image = NewSandbox { image: text.into(), ..sandbox() };
        let by_key = NewSandbox { session_key: Some(text.into()), ..sandbox() };
        let by_label = NewSandbox { labels: labels(&[("name", text)]), ..sandbox() };
        for new in [by_name, by_image, by_key, by_label] {
            records.push(add(&store, new).await?);
        }
    }
    let id = records[0].id;
    let hyphenated = id.uuid().hyphenated().to_string();
    let id_parts = [id.to_string(), hyphenated.clone(), hyphenated[4..20].to_uppercase()];
    let more =
        ["", "A_B", "grÖSSE", "GRÖßE", "σ", "name=100", "=", "-", "\\%", "__", "%%", "hostada", "' OR 1"];
    for text in texts.into_iter().chain(more).map(String::from).chain(id_parts) {
        let query = ListQuery { text: Some(text), limit: 100, ..ListQuery::default() };
        agrees(&store, &records, &query).await?;
    }
    Ok(())
}

pub(super) async fn labels_are_found_as_they_are_now(store: Shared) -> Outcome {
    let made =
        add(&store, NewSandbox { labels: labels(&[("old", "one"), ("kept", "k")]), ..sandbox() }).await?;
    let change = Change { labels: Some(labels(&[("new", "two"), ("kept", "k")])), ..Change::default() };
    store.update_sandbox(made.id, 1, change.clone()).await?;
    let records = [change.apply(made, 1)?];
    for pair in [("old", "one"), ("new", "two"), ("kept", "k")] {
        agrees(&store, &records, &ListQuery { labels: labels(&[pair]), ..ListQuery::default() }).await?;
        agrees(&store, &records, &ListQuery { text: Some(pair.1.into()), ..ListQuery::default() }).await?;
    }
    Ok(())
}
