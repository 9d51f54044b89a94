//! Egress decisions in the audit trail.

use super::{
    NOW, Outcome as Checked, Shared,
    audit::{begin, begins, linked, rows},
    same,
};
use crate::{
    AuditRow, Checkpoint, Egress, EgressQuery, EgressRow, EgressTotals, Facts, Mac, OperationId, SandboxId,
};

fn egress(sandbox: SandboxId, host: &str, allowed: bool) -> Egress {
    Egress {
        sandbox,
        via: "connect".into(),
        host: host.into(),
        port: Some(443),
        address: allowed.then(|| "192.0.2.1".into()),
        method: Some("GET".into()),
        path: Some("/a \"b\"".into()),
        allowed,
        rule: "allow: *.example.com".into(),
        error: None,
        sent: 10,
        received: 1 << 40,
        duration_us: 5,
        count: 2,
    }
}

fn row(seq: u64, operation: Option<OperationId>, facts: &Egress) -> (AuditRow, EgressRow) {
    let at = NOW + i64::try_from(seq).unwrap_or(0);
    let listed = EgressRow { seq, operation, at, facts: facts.clone() };
    (linked(seq, operation, at, Facts::Egress(Box::new(facts.clone()))), listed)
}

/// Operations 1 and 2; then decisions of two sandboxes and hosts, some without an operation.
async fn filled(store: &Shared, sandboxes: [SandboxId; 2]) -> Result<Vec<EgressRow>, super::Failure> {
    let ids = [OperationId::random(), OperationId::random()];
    let begun = (1..).zip(ids).map(|(seq, id)| linked(seq, Some(id), NOW, begins(begin())));
    store.append_audit(rows(begun.collect())).await?;
    let (mut batch, mut listed) = (Vec::new(), Vec::new());
    for n in 0..24_u64 {
        let host = if n % 3 == 0 { "a.example" } else { "B.example" };
        let facts = egress(sandboxes[usize::from(n % 2 == 1)], host, n % 4 < 2);
        let operation = match n % 5 {
            0 => None,
            1 | 2 => Some(ids[0]),
            _ => Some(ids[1]),
        };
        let (row, wanted) = row(n + 3, operation, &facts);
        batch.push(row);
        listed.insert(0, wanted);
    }
    store.append_audit(rows(batch)).await?;
    Ok(listed)
}

pub(super) async fn decisions_are_found_by_what_they_are(store: Shared) -> Checked {
    let sandboxes = [SandboxId::random(), SandboxId::random()];
    let all = filled(&store, sandboxes).await?;
    let operation = all.iter().find_map(|row| row.operation);
    let base = EgressQuery { limit: 100, ..EgressQuery::default() };
    for query in [
        base.clone(),
        EgressQuery { sandbox: Some(sandboxes[0]), ..base.clone() },
        EgressQuery { sandbox: Some(SandboxId::random()), ..base.clone() },
        EgressQuery { operation, ..base.clone() },
        EgressQuery { allowed: Some(false), sandbox: Some(sandboxes[1]), ..base.clone() },
        EgressQuery { allowed: Some(true), ..base.clone() },
        EgressQuery { host: Some("b.EXAMPLE".into()), sandbox: Some(sandboxes[0]), ..base.clone() },
        EgressQuery { host: Some("xample".into()), ..base.clone() },
        EgressQuery { sandbox: Some(sandboxes[0]), before: Some(12), limit: 3, ..base.clone() },
        EgressQuery { operation, sandbox: Some(sandboxes[0]), allowed: Some(true), ..base.clone() },
    ] {
        let wanted: Vec<EgressRow> = all
            .iter()
            .filter(|row| query.sandbox.is_none_or(|id| id == row.facts.sandbox))
            .filter(|row| query.operation.is_none() || query.operation == row.operation)
            .filter(|row| query.allowed.is_none_or(|allowed| allowed == row.facts.allowed))
            .filter(|row| query.host.as_ref().is_none_or(|h| h.eq_ignore_ascii_case(&row.facts.host)))
            .filter(|row| query.before.is_none_or(|before| row.seq < before))
            .take(query.limit as usize)
            .cloned()
            .collect();
        same(&format!("{query:?}"), store.audit_egress(&query).await?, wanted)?;
    }
    same("operations", store.count_operations(u64::MAX).await?, 2)
}

pub(super) async fn decisions_add_up_and_go_with_their_rows(store: Shared) -> Checked {
    let sandboxes = [SandboxId::random(), SandboxId::random()];
    let all = filled(&store, sandboxes).await?;
    let sum = |from: u64| {
        let mut totals = EgressTotals::default();
        for EgressRow { facts, .. } in
            all.iter().filter(|row| row.seq >= from && row.facts.sandbox == sandboxes[0])
        {
            let counted = if facts.allowed { &mut totals.allowed } else { &mut totals.refused };
            *counted += facts.count;
            totals.sent += facts.sent;
            totals.received += facts.received;
        }
        totals
    };
    same("all", store.egress_totals(sandboxes[0]).await?, sum(0))?;
    same("unknown", store.egress_totals(SandboxId::random()).await?, EgressTotals::default())?;
    let end = |seq, row: &EgressRow| {
        let end = crate::End::new(crate::Outcome::Ok, 1);
        linked(seq, row.operation, NOW, Facts::End(Box::new(end)))
    };
    let mut ended: Vec<OperationId> = Vec::new();
    let mut next = 27;
    for row in &all {
        if let Some(id) = row.operation.filter(|id| !ended.contains(id)) {
            ended.push(id);
            store.append_audit(rows(vec![end(next, row)])).await?;
            next += 1;
        }
    }
    let checkpoint = Checkpoint { removed_to: 12, mac: Mac([1; 32]), before: NOW, evidence: Vec::new() };
    store.remove_audit(12, linked(next, None, NOW, Facts::Checkpoint(checkpoint))).await?;
    same("what is left", store.egress_totals(sandboxes[0]).await?, sum(13))?;
    let query = EgressQuery { sandbox: Some(sandboxes[0]), limit: 100, ..EgressQuery::default() };
    let wanted = all.iter().filter(|row| row.seq > 12 && row.facts.sandbox == sandboxes[0]).count();
    same("the rows that are left", store.audit_egress(&query).await?.len(), wanted)
}
