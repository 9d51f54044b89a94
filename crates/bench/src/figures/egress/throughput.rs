//! A large fetch over one connection, from its opening to its last byte.

use super::{Bench, Fetch, Row, Way, Ways, beside};
use crate::{Result, pace::Pace, report::Baseline};

pub(super) async fn take(bench: &Bench<'_>, ways: &mut Ways<'_>) -> Result<Vec<Row>> {
    let size: u64 = bench.scale.pick(8 << 20, 512 << 20, 1 << 30);
    let pace = Pace::tight(bench.scale.pick(1, 10, 40));
    let fetch = Fetch { size, count: 1, pause: Some(0.0) };
    let bare = ways.bare();
    let all: Vec<Way> =
        [Way::Proxy, Way::Transparent].into_iter().chain(bare.iter().map(|(way, _)| *way)).collect();
    let round = async || {
        let mut values = Vec::new();
        for way in &all {
            values.push(ways.fetch(*way, fetch).await?.median());
        }
        Ok(values)
    };
    let mut series = pace.take(round).await?.into_iter();
    let mut next = || series.next().ok_or("a series is missing");
    let (proxy, transparent) = (next()?, next()?);
    let baselines = beside(series, &bare);
    let row = |name: &str, own| -> Result<Row> {
        let mut rows = baselines.iter().map(|baseline: &Baseline| Row::throughput(name, size, own, baseline));
        let first = rows.next().ok_or("there is nothing beside it")?;
        Ok(rows.fold(first, Row::beside_also))
    };
    Ok(vec![row("egress fetch, proxy", &proxy)?, row("egress fetch, by name", &transparent)?])
}
