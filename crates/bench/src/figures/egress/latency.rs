//! A small fetch over a new connection. One program makes some of them in one way, and then the next way has
//! its turn; the median of those counts once.

use super::{Bench, Fetch, Row, Way, Ways, beside};
use crate::{Result, pace::Pace};

/// Fetches of one turn.
const EACH: usize = 20;
const SMALL: u64 = 100;

pub(super) async fn take(bench: &Bench<'_>, ways: &mut Ways<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, pause, turns) in [("tight", 0.0, 30), ("paused", 0.3, 5)] {
        let fetch = Fetch { size: SMALL, count: bench.scale.pick(2, EACH, EACH), pause: Some(pause) };
        let pace = Pace::tight(bench.scale.pick(1, turns, turns * 3));
        rows.extend(one(ways, pace, (name, fetch)).await?);
    }
    Ok(rows)
}

async fn one(ways: &mut Ways<'_>, pace: Pace, (name, fetch): (&'static str, Fetch)) -> Result<Vec<Row>> {
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
    let row = |row, own| Row::latency(row, name, own, baselines.clone()).by_difference();
    Ok(vec![row("egress request, proxy", proxy), row("egress request, by name", transparent)])
}
