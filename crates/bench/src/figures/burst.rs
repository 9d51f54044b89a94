//! Many containers created at once, until the last one can run commands, compared with as many `unshare`.

use super::Bench;
use crate::{
    Result, baseline,
    instance::small_spec,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
};
use atoll_provider::Provider;
use futures_util::future::{join_all, try_join_all};

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in bench.scale.pick(&[5][..], &[20], &[20, 100]) {
        for pace in bench.paces(5) {
            let mut series = pace.take(async || round(bench, pace, *count).await).await?.into_iter();
            let mut next = || series.next().ok_or("a series is missing");
            let (own, unshare) = (next()?, Baseline::new("as many unshare at once", next()?));
            rows.push(Row::latency(format!("{count} creates at once"), pace.name, own, vec![unshare]));
        }
    }
    Ok(rows)
}

async fn round(bench: &Bench<'_>, pace: Pace, count: usize) -> Result<Vec<f64>> {
    let provider = &bench.instance.provider;
    let specs = (0..count).map(|_| small_spec()).collect::<Result<Vec<_>>>()?;
    let ids: Vec<_> = specs.iter().map(|spec| spec.id).collect();
    pace.wait().await;
    let made = timed(try_join_all(specs.into_iter().map(|spec| provider.create(spec)))).await;
    // Also after a failure: containers that were still being made would appear after it.
    let gone = join_all(ids.into_iter().map(|id| provider.destroy(id))).await;
    let (own, _) = made?;
    gone.into_iter().collect::<atoll_types::Result<Vec<()>>>()?;
    pace.wait().await;
    let (unshare, ()) = timed_here(|| baseline::unshare_at_once(count))?;
    Ok(vec![own, unshare])
}
