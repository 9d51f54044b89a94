//! The table, printed a row at a time: a run takes minutes, and its first figures should show at once.

use crate::{
    machine::Machine,
    promises::{Bound, Judgement},
    report::{Compare, Report, Row, Unit},
};

/// The machine of the run.
pub(crate) fn print_machine(machine: &Machine) {
    let Machine { kernel, cores, memory_mib, cgroup, storage, quota, load, loaded, optimised, notes } =
        machine;
    println!(
        "kernel {kernel}, {cores} cores, {memory_mib} MiB, cgroup {cgroup}, storage {storage}, quota {quota}"
    );
    let state = if *loaded { "others are at work here, so the figures are noisy" } else { "quiet" };
    println!("load {:.2} {:.2} {:.2}: {state}", load[0], load[1], load[2]);
    if !optimised {
        println!("a debug build: its figures say little");
    }
    notes.iter().for_each(|note| println!("note: {note}"));
}

/// The names of the columns.
pub(crate) fn print_head() {
    println!();
    line(["figure", "pace", "n", "p50", "p95", "baseline", "its p50", "beside it", ""]);
}

/// A figure, with a line for each of its baselines.
pub(crate) fn print_row(row: &Row) {
    lines(row).iter().for_each(|cells| line(cells.each_ref().map(String::as_str)));
}

fn lines(row: &Row) -> Vec<[String; 9]> {
    let own = [
        row.name.clone(),
        row.pace.into(),
        row.samples.count().to_string(),
        value(row.samples.median(), row.unit),
        value(row.p95(), row.unit),
    ];
    let mut lines = Vec::new();
    for (number, baseline) in row.baselines.iter().enumerate() {
        let [name, pace, count, p50, p95] = if number == 0 { own.clone() } else { Default::default() };
        let promise = if number == 0 { Judgement::of(row).map(promise) } else { None };
        let its = value(baseline.samples.median(), row.unit);
        let beside = beside(row.beside(baseline), row);
        let promise = promise.unwrap_or_default();
        lines.push([name, pace, count, p50, p95, baseline.name.into(), its, beside, promise]);
    }
    lines
}

fn line(cells: [&str; 9]) {
    let [name, pace, count, p50, p95, baseline, its, beside, promise] = cells;
    let text = format!(
        "{name:<24} {pace:<6} {count:>4} {p50:>11} {p95:>11}  {baseline:<30} {its:>11} {beside:>11}  {promise}"
    );
    println!("{}", text.trim_end());
}

fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Milliseconds => format!("{value:.2} ms"),
        Unit::Mebibytes => format!("{value:.2} MiB"),
        Unit::Kibibytes => format!("{value:.1} KiB"),
        Unit::MebibytesPerSecond => format!("{value:.0} MiB/s"),
        Unit::PerSecond => format!("{value:.0} /s"),
    }
}

fn beside(amount: f64, row: &Row) -> String {
    match row.compare {
        Compare::Ratio => format!("{amount:.2} x"),
        Compare::Difference if amount < 0.0 => value(amount, row.unit),
        Compare::Difference => format!("+{}", value(amount, row.unit)),
    }
}

fn promise(judgement: Judgement) -> String {
    let Judgement { bound, unit, kept } = judgement;
    let unit = match unit {
        Unit::Milliseconds => "ms",
        Unit::Mebibytes => "MiB",
        Unit::Kibibytes => "KiB",
        Unit::MebibytesPerSecond => "MiB/s",
        Unit::PerSecond => "/s",
    };
    let bound = match bound {
        Bound::Most(most) => format!("<={most} {unit}"),
        Bound::MostMore(most) => format!("<={most} {unit} more"),
        Bound::LeastPart(part) => format!(">={:.0} % of it", part * 100.0),
    };
    let kept = if kept { "kept" } else { "missed" };
    format!("promise: {bound}, {kept}")
}

/// The remarks after the table.
pub(crate) fn print_tail(report: &Report) {
    println!();
    println!(
        "tight: one after another; paused: 300 ms of quiet before each. Figure and baselines take turns."
    );
    println!("p95 of a rate is what 95 of 100 runs reach.");
    println!("A sandbox has the default limits, one core and 512 MiB; a baseline has the whole machine.");
    report.notes.iter().for_each(|note| println!("note: {note}"));
    report.failures.iter().for_each(|f| println!("failed: {}: {}", f.figure, f.why));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Baseline;

    #[test]
    fn a_row_has_a_line_for_each_baseline() {
        let baseline = |name, ms: f64| Baseline::new(name, [ms].into_iter().collect());
        let baselines = vec![baseline("spawn", 1.0), baseline("runc", 40.0)];
        let row = Row::latency("create", "tight", [10.0].into_iter().collect(), baselines);
        let lines = lines(&row);
        assert_eq!(
            lines[0].join("|"),
            "create|tight|1|10.00 ms|10.00 ms|spawn|1.00 ms|10.00 x|promise: <=20 ms, kept"
        );
        assert_eq!(lines[1].join("|"), "|||||runc|40.00 ms|0.25 x|");
        let row = row.by_difference();
        assert_eq!((beside(1.5, &row), beside(-1.5, &row)), ("+1.50 ms".into(), "-1.50 ms".into()));
        let judged = |bound| promise(Judgement { bound, unit: Unit::Milliseconds, kept: false });
        assert_eq!(judged(Bound::MostMore(2.0)), "promise: <=2 ms more, missed");
        assert_eq!(judged(Bound::LeastPart(0.6)), "promise: >=60 % of it, missed");
    }
}
