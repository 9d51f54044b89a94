//! What is promised, of the figures that are taken here. A promise that no row can be held against
//! makes its figure fail, so none is dropped by a renaming.

use crate::{
    figures::Figure,
    report::{Compare, Row, Unit},
};
use serde::Serialize;

/// What of a row the promise is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// Its median.
    Median,
    /// By how much its median is over that of its first baseline.
    OverBaseline,
}

/// At most so much.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    pub(crate) figure: Figure,
    pub(crate) row: &'static str,
    measure: Measure,
    most: f64,
}

/// Every promise of this benchmark.
pub(crate) const PROMISES: &[Promise] = &[
    Promise { figure: Figure::Create, row: "create", measure: Measure::Median, most: 20.0 },
    Promise { figure: Figure::Exec, row: "exec true", measure: Measure::OverBaseline, most: 2.0 },
    Promise { figure: Figure::Memory, row: "memory, cgroup", measure: Measure::Median, most: 3.0 },
];

/// A promise held against a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Judgement {
    pub(crate) most: f64,
    pub(crate) unit: Unit,
    pub(crate) over_baseline: bool,
    pub(crate) kept: bool,
}

impl Judgement {
    /// What is promised of a row, if anything is.
    pub(crate) fn of(row: &Row) -> Option<Self> {
        let Promise { measure, most, .. } = PROMISES.iter().find(|p| p.row == row.name)?;
        let value = match measure {
            Measure::Median => row.samples.median(),
            Measure::OverBaseline => {
                let first = row.baselines.first()?;
                Row { compare: Compare::Difference, ..row.clone() }.beside(first)
            }
        };
        let over_baseline = *measure == Measure::OverBaseline;
        Some(Self { most: *most, unit: row.unit, over_baseline, kept: value <= *most })
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
        assert_eq!(kept(row("destroy", 1000.0, 1.0)), None);
    }
}
