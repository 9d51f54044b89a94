//! A sandbox's egress policy and decisions, and changing the policy.

use super::sessions::{Seen, policy_of};
use crate::{Caller, EgressControl, operation::OperationSpec};
use atoll_egress::{Entry, Mode, Policy, presets::Preset};
use atoll_store::{
    EGRESS_PER_PAGE, Egress, EgressQuery, EgressRow, EgressTotals, Millis, OperationId, SandboxId,
    SandboxRecord,
};
use atoll_types::{Error, Operation, Result};
use std::collections::HashMap;

/// Hosts whose refusals are shown.
const SHOWN: usize = 50;

/// The refusals of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusals {
    pub host: String,
    pub port: Option<u16>,
    /// The rule of the last refusal.
    pub rule: String,
    pub count: u64,
    pub last_at: Millis,
}

/// A sandbox's egress policy, and what it reached.
#[derive(Debug, Clone)]
pub struct EgressView {
    /// As it was set.
    pub policy: Policy,
    /// The allowed entries with presets expanded, and their source: `allow`, `preset python`.
    pub allow: Vec<(String, Entry)>,
    /// Whether its egress sockets are served.
    pub served: bool,
    /// Whether tools that know no proxy get out too; none while that is not known.
    pub transparent: Option<bool>,
    /// Why nothing gets out though the policy allows it.
    pub problem: Option<String>,
    /// Connections that are open.
    pub open: u64,
    /// Totals of the decisions, as long as their rows are kept.
    pub totals: EgressTotals,
    /// The last refusals, by host.
    pub refusals: Vec<Refusals>,
}

fn by_host(rows: Vec<EgressRow>) -> Vec<Refusals> {
    let mut found: Vec<Refusals> = Vec::new();
    let mut places: HashMap<(String, Option<u16>), usize> = HashMap::new();
    for EgressRow { at, facts: Egress { host, port, rule, count, .. }, .. } in rows {
        match places.get(&(host.clone(), port)) {
            Some(place) => found[*place].count += count,
            None if found.len() < SHOWN => {
                places.insert((host.clone(), port), found.len());
                found.push(Refusals { host, port, rule, count, last_at: at });
            }
            None => {}
        }
    }
    found
}

impl EgressControl {
    /// Returns when what a sandbox asked of the network so far is in the audit trail, or cannot be within seconds.
    pub async fn settle(&self, id: SandboxId) {
        self.egress_sessions.settle(id).await;
    }

    /// A sandbox's egress policy, and what it reached.
    pub async fn view(&self, caller: &Caller, id: SandboxId) -> Result<EgressView> {
        let record = self.operations.visible(caller, id).await?;
        self.egress_of(&record).await
    }

    async fn egress_of(&self, record: &SandboxRecord) -> Result<EgressView> {
        let policy = policy_of(record)?;
        let presets = self.egress_sessions.parts.presets.presets(Some(record.profile.image.as_str()));
        let named = policy.presets.iter().flat_map(|name| {
            let entries = presets.0.get(name).cloned().unwrap_or_default();
            entries.into_iter().map(move |entry| (format!("preset {name}"), entry))
        });
        let allow = policy.allow.iter().map(|entry| ("allow".to_owned(), entry.clone())).chain(named);
        let allow = if policy.mode == Mode::None { Vec::new() } else { allow.collect() };
        let refused = EgressQuery {
            sandbox: Some(record.id),
            allowed: Some(false),
            limit: EGRESS_PER_PAGE,
            ..EgressQuery::default()
        };
        let refusals = by_host(self.store.audit_egress(&refused).await?);
        let seen = self.egress_sessions.seen(record.id);
        let served = seen.is_some();
        let (open, totals, transparent, problem) = match seen {
            None => (0, self.store.egress_totals(record.id).await?, None, None),
            Some(Seen { usage, before, transparent, problem }) => {
                let totals = EgressTotals {
                    allowed: before.allowed + usage.allowed,
                    refused: before.refused + usage.denied,
                    sent: before.sent + usage.sent,
                    received: before.received + usage.received,
                };
                (usage.open, totals, Some(transparent), problem)
            }
        };
        Ok(EgressView { policy, allow, served, transparent, problem, open, totals, refusals })
    }

    /// Replaces a sandbox's egress policy. A running one obeys at once, open connections included.
    pub async fn set(&self, caller: &Caller, id: SandboxId, policy: Policy) -> Result<EgressView> {
        let detail = serde_json::to_string(&policy).unwrap_or_default();
        let what = OperationSpec::to(Operation::EgressSet, id).with(detail).and("mode", policy.mode.as_str());
        let audited = self.operations.audited(caller, what).await?;
        let result = async {
            let record = audited.record()?;
            let policy =
                self.egress_sessions.asked(caller, record.profile.image.as_str(), None, Some(policy))?;
            let record = self.registry.set_egress(id, policy).await?;
            self.egress_of(&record).await
        }
        .await;
        audited.done(result).await
    }

    /// A sandbox's egress decisions, the latest first.
    pub async fn log(&self, caller: &Caller, query: EgressQuery) -> Result<Vec<EgressRow>> {
        let Some(id) = query.sandbox else { return Err(Error::internal("whose decisions?")) };
        if !(1..=EGRESS_PER_PAGE).contains(&query.limit) {
            let message = format!("limit must be between 1 and {EGRESS_PER_PAGE}");
            return Err(Error::invalid("limit", message));
        }
        self.operations.visible(caller, id).await?;
        Ok(self.store.audit_egress(&query).await?)
    }

    /// The decisions under an operation, the latest first; one page.
    pub async fn of_operation(&self, caller: &Caller, id: OperationId) -> Result<Vec<EgressRow>> {
        self.audit.operation(caller, id).await?;
        let query = EgressQuery { operation: Some(id), limit: EGRESS_PER_PAGE, ..EgressQuery::default() };
        Ok(self.store.audit_egress(&query).await?)
    }

    /// The presets for an image, and where their entries come from.
    #[must_use]
    pub fn presets(&self, image: Option<&str>) -> Vec<Preset> {
        let image = image.and_then(|name| self.catalogue.find(name));
        self.egress_sessions.parts.presets.list(image.as_ref().map(|image| image.name.as_str()))
    }

    /// Closes every egress session and writes the remaining decisions, for a server that shuts down.
    pub async fn close_sessions(&self) {
        self.egress_sessions.end().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_one_host_are_one() {
        let row = |seq: u64, host: &str, count| EgressRow {
            seq,
            operation: None,
            at: seq as i64,
            facts: Egress {
                sandbox: SandboxId::random(),
                via: "connect".into(),
                host: host.into(),
                port: Some(443),
                address: None,
                method: None,
                path: None,
                allowed: false,
                rule: format!("rule {seq}"),
                error: None,
                sent: 0,
                received: 0,
                duration_us: 0,
                count,
            },
        };
        let found = by_host(vec![row(9, "a.example", 2), row(8, "b.example", 1), row(7, "a.example", 3)]);
        let told: Vec<_> =
            found.iter().map(|r| (r.host.as_str(), r.count, r.last_at, r.rule.as_str())).collect();
        assert_eq!(told, [("a.example", 5, 9, "rule 9"), ("b.example", 1, 8, "rule 8")]);
    }
}
