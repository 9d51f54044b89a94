//! Finding operations, and adding them up.

use super::{
    Failure, NOW, Outcome as Checked, Shared, add,
    audit::{Trail, begin},
    expected_operations, expected_summary, same, sandbox,
};
use crate::{
    Begin, Change, DETAIL_KEPT, Detail, End, KeyId, OPERATIONS_PER_PAGE, OperationQuery, OperationRow,
    Outcome, SandboxId, Status,
};

fn any() -> OperationQuery {
    OperationQuery { limit: 7, ..OperationQuery::default() }
}

struct Cast {
    sandboxes: [SandboxId; 3],
    keys: [KeyId; 2],
}

/// Many operations, in which every value of a field meets nearly every value of another.
async fn many(store: &Shared) -> Result<(Vec<OperationRow>, Cast), Failure> {
    let cast = Cast {
        sandboxes: [SandboxId::random(), SandboxId::random(), SandboxId::random()],
        keys: [KeyId::random(), KeyId::random()],
    };
    let mut trail = Trail::new();
    for n in 0..180_usize {
        let owner = ["one", "two", "two"][n % 3];
        let begin = Begin {
            owner: owner.into(),
            key: (n % 7 > 0).then(|| cast.keys[n % 2]),
            kind: ["exec", "file.read", "exec", "sandbox.create", "exec"][n % 5].into(),
            sandbox: (n % 11 > 0).then(|| cast.sandboxes[n % 3]),
            detail: Detail::new(["python3 run.py", "LS -l /tmp", "cat a.txt", ""][n % 4]),
            ..begin()
        };
        let outcome = Outcome::ALL[[0, 0, 0, 1, 0, 2, 3][n % 7]];
        let exit_code = (n % 2 == 0).then_some([0, 0, 1, 137, -1][n % 5]);
        let end = (n % 13 > 0).then(|| End { exit_code, ..End::new(outcome, 10 + n as u64) });
        // The clock is set back twice, and once far.
        let at =
            NOW + n as i64 * 1000 - if n > 90 { 40_000 } else { 0 } - if n > 150 { 200_000_000 } else { 0 };
        trail.add(at, begin, end);
    }
    Ok((trail.write(store).await?, cast))
}

fn queries(all: &[OperationRow], cast: &Cast) -> Vec<OperationQuery> {
    let (owner, kind) = (Some("one".to_owned()), Some("exec".to_owned()));
    let (since, until) = (Some(all[60].at), Some(all[120].at));
    let key = Some(cast.keys[0]);
    let mut queries = vec![
        any(),
        OperationQuery { sandbox: Some(cast.sandboxes[1]), ..any() },
        OperationQuery { sandbox: Some(SandboxId::random()), ..any() },
        OperationQuery { owner: owner.clone(), ..any() },
        OperationQuery { owner: Some("One".into()), ..any() },
        OperationQuery { key, ..any() },
        OperationQuery { kind: kind.clone(), ..any() },
        OperationQuery { open: true, ..any() },
        OperationQuery { since, ..any() },
        OperationQuery { until, ..any() },
        OperationQuery { since, until, ..any() },
        OperationQuery { until: Some(all[170].at), ..any() },
        OperationQuery { until: Some(all[170].at - 1), ..any() },
        OperationQuery { since: Some(i64::MAX), ..any() },
        OperationQuery { until: Some(i64::MIN), ..any() },
        OperationQuery { owner: owner.clone(), until, ..any() },
        OperationQuery { sandbox: Some(cast.sandboxes[2]), since, until, ..any() },
        OperationQuery { owner: owner.clone(), kind: kind.clone(), ..any() },
        OperationQuery { owner: owner.clone(), text: Some("run".into()), ..any() },
        OperationQuery { kind, key, open: true, ..any() },
    ];
    for exit_code in [0, 1, -1, 5] {
        queries.push(OperationQuery { exit_code: Some(exit_code), ..any() });
        queries.push(OperationQuery { exit_code: Some(exit_code), owner: owner.clone(), ..any() });
    }
    for outcome in Outcome::ALL {
        queries.push(OperationQuery { outcome: Some(*outcome), ..any() });
        queries.push(OperationQuery { outcome: Some(*outcome), owner: owner.clone(), until, ..any() });
    }
    queries
}

pub(super) async fn operations_are_found_by_what_they_are(store: Shared) -> Checked {
    let (all, cast) = many(&store).await?;
    for query in queries(&all, &cast) {
        let page = store.audit_operations(&query).await?;
        same(&format!("{query:?}"), page, expected_operations(&all, &query))?;
    }
    Ok(())
}

pub(super) async fn operations_page_backwards(store: Shared) -> Checked {
    let (all, cast) = many(&store).await?;
    for mut query in queries(&all, &cast) {
        let mut seen = Vec::new();
        loop {
            let page = store.audit_operations(&query).await?;
            query.before = page.last().map(|operation| operation.seq);
            seen.extend(page.iter().map(|operation| operation.seq));
            if page.len() < query.limit as usize {
                break;
            }
        }
        let whole = OperationQuery { before: None, limit: 500, ..query };
        let wanted = expected_operations(&all, &whole).iter().map(|operation| operation.seq).collect();
        same(&format!("the pages of {whole:?}"), seen, wanted)?;
    }
    same("none", store.audit_operations(&OperationQuery { limit: 0, ..any() }).await?, vec![])?;
    let mut trail = Trail::new();
    trail.next = store.last_audit_row().await?.map_or(1, |row| row.seq as u64 + 1);
    (0..OPERATIONS_PER_PAGE).for_each(|_| trail.add(NOW, begin(), None));
    trail.write(&store).await?;
    let page = store.audit_operations(&OperationQuery { limit: u32::MAX, ..any() }).await?;
    same("how many at most", page.len(), OPERATIONS_PER_PAGE as usize)
}

pub(super) async fn a_detail_is_found_as_it_is_written(store: Shared) -> Checked {
    let long = format!("{}needle{}", "x".repeat(DETAIL_KEPT - 6), "beyond");
    let details = [
        "grep -E 'a|b' \"c\"",
        "100% of_it",
        "100 of it",
        "caféÉ naïve",
        "SELECT * FROM x; -- \\",
        "a\0b zero",
        "tab\tand\nline",
        "日本語テキスト",
        "NEAR(a b) AND OR NOT ^x*",
        "",
        &long,
    ];
    let texts = [
        "GREP",
        "'a|b'",
        "\"c\"",
        "0% of",
        "f_i",
        "%",
        "_",
        "é",
        "É",
        "fé",
        "café",
        "CAFÉ",
        "a\0b",
        "\0",
        "ro",
        "\t",
        "and\nl",
        "本語",
        "日本語テ",
        "OR NOT",
        "near(",
        "^x*",
        "\\",
        "needle",
        "beyond",
        "nowhere",
        "x",
        "ab",
        "*",
        "",
        "select * from x; -- \\",
    ];
    let mut trail = Trail::new();
    // Some are looked for soon after they were written, and some long after.
    for round in 0..40 {
        for detail in details {
            let owner = ["one", "two"][round % 2].into();
            trail.add(NOW, Begin { detail: Detail::new(detail), owner, ..begin() }, None);
        }
        let all = trail.write(&store).await?;
        if round == 1 || round == 20 || round == 39 {
            for text in texts {
                for owner in [None, Some("one".to_owned()), Some("nobody".to_owned())] {
                    let query = OperationQuery { text: Some(text.into()), owner, ..any() };
                    let page = store.audit_operations(&query).await?;
                    same(&format!("{query:?}"), page, expected_operations(&all, &query))?;
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn operations_of_the_destroyed_stay(store: Shared) -> Checked {
    let made = add(&store, sandbox()).await?;
    let mut trail = Trail::new();
    trail.add(NOW, Begin { sandbox: Some(made.id), ..begin() }, Some(End::new(Outcome::Ok, 1)));
    let all = trail.write(&store).await?;
    store.update_sandbox(made.id, 1, Change::status(Status::Destroyed)).await?;
    let query = OperationQuery { sandbox: Some(made.id), ..any() };
    same("its operations", store.audit_operations(&query).await?, all)
}

pub(super) async fn operations_add_up(store: Shared) -> Checked {
    same("nothing", store.audit_summary(&any()).await?, expected_summary(&[], &any()))?;
    let (all, cast) = many(&store).await?;
    for query in queries(&all, &cast) {
        let wanted = expected_summary(&all, &query);
        same(&format!("the sum of {query:?}"), store.audit_summary(&query).await?, wanted.clone())?;
        let paged = OperationQuery { before: Some(3), limit: 1, ..query };
        same("a page of it", store.audit_summary(&paged).await?, wanted)?;
    }
    Ok(())
}
