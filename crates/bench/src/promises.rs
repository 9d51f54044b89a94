//! The promises about the figures that are taken here. A promise without a row makes its figure fail, so none
//! is dropped by a renaming.

use crate::{
    figures::Figure,
    report::{Row, Unit},
};
use serde::Serialize;

/// The bound of a row's median.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// At most so much.
    Most(f64),
    /// At most so much more than its first baseline.
    MostMore(f64),
    /// At least this part of its first baseline.
    LeastPart(f64),
}

/// The promise of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) figure: Figure,
    pub(crate) row: &'static str,
    bound: Bound,
    /// Whether the row exists at every scale.
    pub(crate) always: bool,
}

impl Promise {
    const fn of(figure: Figure, row: &'static str, bound: Bound) -> Self {
        Self { figure, row, bound, always: true }
    }

    /// Of a row that a smaller scale does not have.
    const fn in_full(figure: Figure, row: &'static str, bound: Bound) -> Self {
        Self { figure, row, bound, always: false }
    }
}

/// Every promise of this benchmark.
pub(crate) const PROMISES: &[Promise] = &[
    Promise::of(Figure::Create, "create", Bound::Most(20.0)),
    Promise::of(Figure::Exec, "exec true", Bound::MostMore(2.0)),
    Promise::of(Figure::Memory, "memory, cgroup", Bound::Most(3.0)),
    Promise::of(Figure::Pause, "pause", Bound::Most(10.0)),
    Promise::of(Figure::Pause, "resume", Bound::Most(10.0)),
    Promise::of(Figure::Snapshots, "snapshot, 10 MB", Bound::Most(20.0)),
    Promise::of(Figure::Snapshots, "rollback, 10 MB", Bound::Most(20.0)),
    Promise::of(Figure::Snapshots, "fork, 10 MB", Bound::Most(20.0)),
    Promise::in_full(Figure::Snapshots, "snapshot, 1 GiB", Bound::Most(20.0)),
    Promise::in_full(Figure::Snapshots, "rollback, 1 GiB", Bound::Most(20.0)),
    Promise::in_full(Figure::Snapshots, "fork, 1 GiB", Bound::Most(20.0)),
    Promise::in_full(Figure::Snapshots, "snapshot, 100,000 files", Bound::Most(20.0)),
    Promise::in_full(Figure::Snapshots, "rollback, 100,000 files", Bound::Most(20.0)),
    Promise::in_full(Figure::Snapshots, "fork, 100,000 files", Bound::Most(20.0)),
    // Of a sandbox that runs, so a rollback and a fork are judged by what they take beyond the container that they start.
    Promise::of(Figure::RestSnapshots, "rest snapshot, 10 MB", Bound::Most(20.0)),
    Promise::of(Figure::RestSnapshots, "rest rollback, 10 MB", Bound::MostMore(20.0)),
    Promise::of(Figure::RestSnapshots, "rest fork, 10 MB", Bound::MostMore(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest snapshot, 1 GiB", Bound::Most(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest rollback, 1 GiB", Bound::MostMore(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest fork, 1 GiB", Bound::MostMore(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest snapshot, 100,000 files", Bound::Most(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest rollback, 100,000 files", Bound::MostMore(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest fork, 100,000 files", Bound::MostMore(20.0)),
    Promise::in_full(Figure::RestSnapshots, "rest snapshot, 1 GiB beside 10 MB", Bound::MostMore(10.0)),
    Promise::in_full(Figure::RestSnapshots, "rest rollback, 1 GiB beside 10 MB", Bound::MostMore(10.0)),
    Promise::in_full(Figure::RestSnapshots, "rest fork, 1 GiB beside 10 MB", Bound::MostMore(10.0)),
    Promise::in_full(
        Figure::RestSnapshots,
        "rest snapshot, 100,000 files beside 10 MB",
        Bound::MostMore(10.0),
    ),
    Promise::in_full(
        Figure::RestSnapshots,
        "rest rollback, 100,000 files beside 10 MB",
        Bound::MostMore(10.0),
    ),
    Promise::in_full(Figure::RestSnapshots, "rest fork, 100,000 files beside 10 MB", Bound::MostMore(10.0)),
    Promise::of(Figure::RestPause, "rest pause", Bound::Most(10.0)),
    Promise::of(Figure::RestPause, "rest resume", Bound::Most(10.0)),
    Promise::of(Figure::RestCreate, "rest create", Bound::Most(20.0)),
    Promise::of(Figure::RestExec, "rest exec true", Bound::MostMore(2.0)),
    Promise::of(Figure::RestFiles, "rest upload", Bound::LeastPart(0.6)),
    Promise::of(Figure::RestFiles, "rest download", Bound::LeastPart(0.6)),
    Promise::of(Figure::RestChanges, "rest exec, 100,000 files", Bound::MostMore(10.0)),
    Promise::of(Figure::Audit, "audit, both rows", Bound::Most(0.5)),
    Promise::in_full(Figure::Audit, "audit page, 1,000,000 operations", Bound::Most(20.0)),
    Promise::of(Figure::RestClaim, "rest claim", Bound::Most(3.0)),
    Promise::in_full(Figure::RestLive, "memory, 10 live", Bound::Most(3.0)),
    Promise::in_full(Figure::RestLive, "memory, 100 live", Bound::Most(3.0)),
    Promise::in_full(Figure::RestLive, "memory, 500 live", Bound::Most(3.0)),
    Promise::in_full(Figure::RestLive, "start with 500 live", Bound::Most(2000.0)),
    Promise::of(Figure::RestKernel, "rest kernel 1+1", Bound::Most(3.0)),
    Promise::in_full(Figure::RestClaimBurst, "rest 100 claims at once", Bound::Most(500.0)),
    Promise::of(Figure::AgentTurn, "agent turn", Bound::MostMore(5.0)),
    Promise::of(Figure::AgentTurn, "agent turn with a tool", Bound::MostMore(5.0)),
    Promise::in_full(Figure::Console, "console, its bytes", Bound::Most(300e3 / 1024.0)),
    Promise::in_full(Figure::Console, "console, first view", Bound::Most(1500.0)),
    Promise::in_full(Figure::RestBurst, "rest 100 creates at once", Bound::Most(2000.0)),
];

/// A promise compared with a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Judgement {
    pub(crate) bound: Bound,
    pub(crate) unit: Unit,
    pub(crate) kept: bool,
}

impl Judgement {
    /// The promise of a row, if there is one.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        let bound = PROMISES.iter().find(|p| p.row == row.name)?.bound;
        let own = row.samples.median();
        let first = || row.baselines.first().map(|b| b.samples.median());
        let kept = match bound {
            Bound::Most(most) => own <= most,
            Bound::MostMore(most) => own - first()? <= most,
            Bound::LeastPart(part) => own >= part * first()?,
        };
        Some(Self { bound, unit: row.unit, kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Baseline;

    fn row(name: &str, own: f64, baseline: f64) -> Row {
        let baseline = Baseline::new("b", [baseline].into_iter().collect());
        Row::latency(name, "tight", [own].into_iter().collect(), vec![baseline])
    }

    #[test]
    fn promises_are_judged_by_what_they_are_about() {
        let kept = |row: Row| Judgement::of(&row).map(|j| j.kept);
        assert_eq!(kept(row("create", 20.0, 1.0)), Some(true));
        assert_eq!(kept(row("create", 20.1, 1.0)), Some(false));
        assert_eq!(kept(row("exec true", 21.0, 19.5)), Some(true));
        assert_eq!(kept(row("exec true", 3.1, 1.0)), Some(false));
        assert_eq!(kept(row("rest upload", 600.0, 1000.0)), Some(true));
        assert_eq!(kept(row("rest upload", 590.0, 1000.0)), Some(false));
        assert_eq!(kept(row("destroy", 1000.0, 1.0)), None);
    }
}
