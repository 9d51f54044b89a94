//! The result of a run: rows of figures with their baselines, and the figures that failed.

use crate::{Result, figures::Figure, machine::Machine, promises::Judgement, stats::Samples};
use serde::Serialize;
use std::{fs, path::Path};

/// The unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "KiB")]
    Kibibytes,
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    #[serde(rename = "/s")]
    PerSecond,
}

impl Unit {
    /// Whether more of it is better.
    fn is_rate(self) -> bool {
        matches!(self, Self::MebibytesPerSecond | Self::PerSecond)
    }
}

/// How a figure is compared with its baselines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compare {
    /// As a multiple.
    Ratio,
    /// As a difference.
    Difference,
}

/// A baseline of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Baseline {
    pub(crate) name: &'static str,
    pub(crate) samples: Samples,
}

impl Baseline {
    pub(crate) fn new(name: &'static str, samples: Samples) -> Self {
        Self { name, samples }
    }
}

/// One figure at one pace.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) pace: &'static str,
    pub(crate) unit: Unit,
    pub(crate) compare: Compare,
    pub(crate) samples: Samples,
    /// At least one.
    pub(crate) baselines: Vec<Baseline>,
}

impl Row {
    /// A latency, as a multiple of its baselines.
    pub(crate) fn latency(
        name: impl Into<String>,
        pace: &'static str,
        samples: Samples,
        baselines: Vec<Baseline>,
    ) -> Self {
        let (unit, compare) = (Unit::Milliseconds, Compare::Ratio);
        Self { name: name.into(), pace, unit, compare, samples, baselines }
    }

    /// The same, compared by its difference.
    pub(crate) fn by_difference(self) -> Self {
        Self { compare: Compare::Difference, ..self }
    }

    /// Megabytes a second, where `samples` are milliseconds for `bytes`.
    pub(crate) fn throughput(name: &str, bytes: u64, samples: &Samples, baseline: &Baseline) -> Self {
        let mebibytes = bytes as f64 / (1 << 20) as f64;
        Self::rate(name, mebibytes, Unit::MebibytesPerSecond, samples, baseline)
    }

    /// Requests a second, where `samples` are milliseconds for `count` of them.
    pub(crate) fn frequency(name: &str, count: usize, samples: &Samples, baseline: &Baseline) -> Self {
        Self::rate(name, count as f64, Unit::PerSecond, samples, baseline)
    }

    fn rate(name: &str, amount: f64, unit: Unit, samples: &Samples, baseline: &Baseline) -> Self {
        let rate = |ms: f64| amount / (ms / 1e3);
        let baseline = Baseline::new(baseline.name, baseline.samples.map(rate));
        let (name, samples) = (name.into(), samples.map(rate));
        Self { name, pace: "tight", unit, compare: Compare::Ratio, samples, baselines: vec![baseline] }
    }

    /// The same, with the baselines of the other one as well.
    pub(crate) fn beside_also(mut self, other: Self) -> Self {
        self.baselines.extend(other.baselines);
        self
    }

    /// Memory, in megabytes.
    pub(crate) fn memory(name: &str, samples: Samples, baseline: Baseline) -> Self {
        let (unit, compare) = (Unit::Mebibytes, Compare::Difference);
        Self { name: name.into(), pace: "idle", unit, compare, samples, baselines: vec![baseline] }
    }

    /// Memory of something small, where `samples` are bytes.
    pub(crate) fn small_memory(name: &str, samples: Samples, baseline: Baseline) -> Self {
        let kibibytes = |bytes: f64| bytes / 1024.0;
        let baseline = Baseline::new(baseline.name, baseline.samples.map(kibibytes));
        Self { unit: Unit::Kibibytes, pace: "open", ..Self::memory(name, samples.map(kibibytes), baseline) }
    }

    /// The 95th percentile: of a rate the low end, of all else the high one.
    pub(crate) fn p95(&self) -> f64 {
        self.samples.quantile(if self.unit.is_rate() { 0.05 } else { 0.95 })
    }

    /// The median compared with that of a baseline.
    pub(crate) fn beside(&self, baseline: &Baseline) -> f64 {
        let (own, other) = (self.samples.median(), baseline.samples.median());
        match self.compare {
            Compare::Ratio => own / other,
            Compare::Difference => own - other,
        }
    }

    /// Whether all of its series were measured.
    pub(crate) fn sound(&self) -> bool {
        let baselines = !self.baselines.is_empty() && self.baselines.iter().all(|b| b.samples.sound());
        self.samples.sound() && baselines
    }
}

/// A figure that could not be taken.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Failure {
    pub(crate) figure: Figure,
    pub(crate) why: String,
}

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) notes: Vec<String>,
}

/// A row as a file has it: with what the table says about it.
#[derive(Serialize)]
struct ReportRow<'a> {
    #[serde(flatten)]
    row: &'a Row,
    p50: f64,
    p95: f64,
    beside: Vec<f64>,
    promise: Option<Judgement>,
}

impl<'a> ReportRow<'a> {
    fn of(row: &'a Row) -> Self {
        let beside = row.baselines.iter().map(|b| row.beside(b)).collect();
        Self { row, p50: row.samples.median(), p95: row.p95(), beside, promise: Judgement::of(row) }
    }
}

impl Report {
    pub(crate) fn new(machine: Machine) -> Self {
        Self { machine, rows: Vec::new(), failures: Vec::new(), notes: Vec::new() }
    }

    /// Writes everything, single measurements included.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let Self { machine, rows, failures, notes } = self;
        let rows: Vec<ReportRow<'_>> = rows.iter().map(ReportRow::of).collect();
        let all = serde_json::json!({
            "machine": machine, "rows": rows, "failures": failures, "notes": notes,
        });
        fs::write(path, serde_json::to_vec_pretty(&all)?)
            .map_err(|e| format!("cannot write {}: {e}", path.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> Samples {
        values.iter().copied().collect()
    }

    #[test]
    fn a_row_is_set_against_its_baseline() {
        let baseline = Baseline::new("b", of(&[2.0]));
        let row = Row::latency("r", "tight", of(&[5.0]), vec![baseline.clone()]);
        assert_eq!((row.beside(&baseline), row.clone().by_difference().beside(&baseline)), (2.5, 3.0));
        assert!(row.sound());
        assert!(!Row { baselines: Vec::new(), ..row.clone() }.sound());
        assert!(!Row { samples: of(&[]), ..row }.sound());
    }

    #[test]
    fn rates_are_worst_at_their_low_end() {
        let baseline = Baseline::new("b", of(&[500.0]));
        let row = Row::throughput("r", 64 << 20, &of(&[1000.0, 2000.0]), &baseline);
        assert_eq!(row.samples, of(&[64.0, 32.0]));
        assert_eq!(row.baselines[0].samples, of(&[128.0]));
        assert!(row.p95() < row.samples.median());
        let row = Row::frequency("r", 500, &of(&[1000.0, 2000.0]), &baseline);
        assert_eq!((&row.samples, &row.baselines[0].samples), (&of(&[500.0, 250.0]), &of(&[1000.0])));
        assert!(row.p95() < row.samples.median());
    }
}
