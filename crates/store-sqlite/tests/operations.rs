//! Pages and sums of any operations with any query are what the plain model says.

use crate::fixture::Folder;
use atoll_store::{
    AuditBatch, AuditRow, Audits, Begin, Detail, End, Facts, KeyId, OperationEnd, OperationId,
    OperationQuery, OperationRow, Outcome, SandboxId,
    conformance::{begin, expected_operations, expected_summary, linked},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use uuid::Uuid;

fn sandbox(number: u128) -> SandboxId {
    SandboxId::from_uuid(Uuid::from_u128(number))
}

fn key(number: u128) -> KeyId {
    KeyId::from_uuid(Uuid::from_u128(number))
}

/// What FTS, LIKE and SQL find special, in few enough letters that matches happen.
fn text(most: usize) -> impl Strategy<Value = String> {
    vec(select(vec!['a', 'A', 'b', '"', '\'', '%', '*', ' ', 'é', '\0', '-']), 0..most)
        .prop_map(String::from_iter)
}

prop_compose! {
    fn operation()(
        owner in select(vec!["one", "two"]), key_number in option::of(0..2_u128), kind in select(vec!["x", "y"]),
        sandbox_number in option::of(0..3_u128), detail in text(9), at in -200_000_000..200_000_000_i64,
        end in option::weighted(0.8, (select(Outcome::ALL), option::of(-1..2_i32), 0..1000_u64)),
    ) -> (i64, Begin, Option<End>) {
        let begin = Begin {
            owner: owner.into(), key: key_number.map(key), kind: kind.into(), sandbox: sandbox_number.map(sandbox),
            detail: Detail::new(&detail), ..begin()
        };
        (at, begin, end.map(|(outcome, exit_code, duration)| End { exit_code, ..End::new(outcome, duration) }))
    }
}

prop_compose! {
    fn query()(
        owner in option::weighted(0.3, select(vec!["one", "two"]).prop_map(String::from)),
        key_number in option::weighted(0.2, 0..2_u128), kind in option::weighted(0.2, select(vec!["x", "y"]).prop_map(String::from)),
        sandbox_number in option::weighted(0.2, 0..3_u128), exit_code in option::weighted(0.2, -1..2_i32),
        outcome in option::weighted(0.2, select(Outcome::ALL)), text in option::weighted(0.4, text(5)),
        since in option::weighted(0.3, -200_000_000..200_000_000_i64), until in option::weighted(0.3, -200_000_000..200_000_000_i64),
        open in prop::bool::weighted(0.1), before in option::weighted(0.3, 0..600_u64), limit in 1..40_u32,
    ) -> OperationQuery {
        OperationQuery {
            owner, key: key_number.map(key), kind, sandbox: sandbox_number.map(sandbox), exit_code, outcome, text,
            since, until, open, before, limit,
        }
    }
}

fn rows(wanted: Vec<(i64, Begin, Option<End>)>) -> (Vec<AuditRow>, Vec<OperationRow>) {
    let (mut rows, mut operations): (Vec<AuditRow>, Vec<OperationRow>) = (Vec::new(), Vec::new());
    for (at, begin, end) in wanted {
        let id = OperationId::random();
        let seq = rows.len() as u64 + 1;
        rows.push(linked(seq, Some(id), at, Facts::Begin(Box::new(begin.clone()))));
        if let Some(end) = &end {
            rows.push(linked(seq + 1, Some(id), at, Facts::End(Box::new(end.clone()))));
        }
        let end = end.map(|facts| OperationEnd { seq: seq + 1, at, facts });
        operations.push(OperationRow { seq, id, at, begin, end });
    }
    (rows, operations)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn pages_and_sums_are_what_the_model_says(wanted in vec(operation(), 1..320), queries in vec(query(), 40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = Folder::new();
            let store = folder.fresh().await;
            let (rows, operations) = rows(wanted);
            // In two halves, so that the index of texts has one of them.
            let half = rows.len() / 2;
            for rows in [rows[..half].to_vec(), rows[half..].to_vec()] {
                store.append_audit(AuditBatch { rows, ..AuditBatch::default() }).await.unwrap();
            }
            for query in queries {
                assert_eq!(store.audit_operations(&query).await.unwrap(), expected_operations(&operations, &query), "{query:?}");
                assert_eq!(store.audit_summary(&query).await.unwrap(), expected_summary(&operations, &query), "{query:?}");
            }
        });
    }
}
