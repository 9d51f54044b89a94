//! Figures about the server, in the text form that Prometheus reads.

use crate::{App, shapes::status_name};
use atoll_core::{PoolKey, PoolView, UsageTotals};
use atoll_store::Status;
use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Upper ends of the buckets, in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

#[derive(Default)]
struct Route {
    count: u64,
    seconds: f64,
    buckets: [u64; BUCKETS.len()],
}

/// What was counted: by route and status, and how long it took by route.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    times: Mutex<BTreeMap<String, Route>>,
}

impl Metrics {
    fn add(&self, route: String, status: u16, seconds: f64) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route.clone(), status)).or_insert(0) += 1;
        drop(requests);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = times.entry(route).or_default();
        entry.count += 1;
        entry.seconds += seconds;
        for (count, _) in entry.buckets.iter_mut().zip(BUCKETS).filter(|(_, end)| seconds <= *end) {
            *count += 1;
        }
    }

    /// The whole page.
    pub(crate) fn render(
        &self,
        sandboxes: &BTreeMap<Status, u64>,
        used: &UsageTotals,
        pool: &PoolView,
    ) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        writeln!(page, "# TYPE atoll_sandboxes gauge")?;
        let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
        for (status, count) in sandboxes {
            *by_name.entry(status_name(*status)).or_insert(0) += count;
        }
        for (status, count) in by_name {
            writeln!(page, "atoll_sandboxes{{status=\"{status}\"}} {count}")?;
        }
        // Sums only: a series for each sandbox would have no end.
        let UsageTotals { cpu_usec, memory_bytes, processes, disk_bytes } = *used;
        writeln!(page, "# TYPE atoll_sandboxes_cpu_seconds_total counter")?;
        writeln!(page, "atoll_sandboxes_cpu_seconds_total {}", cpu_usec as f64 / 1e6)?;
        for (name, value) in
            [("memory_bytes", memory_bytes), ("processes", processes), ("disk_bytes", disk_bytes)]
        {
            writeln!(page, "# TYPE atoll_sandboxes_{name} gauge\natoll_sandboxes_{name} {value}")?;
        }
        render_pool(&mut page, pool)?;
        writeln!(page, "# TYPE atoll_http_requests_total counter")?;
        for ((route, status), count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            writeln!(page, "atoll_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}")?;
        }
        writeln!(page, "# TYPE atoll_http_request_seconds histogram")?;
        for (route, entry) in self.times.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for (end, count) in BUCKETS.iter().zip(entry.buckets) {
                writeln!(
                    page,
                    "atoll_http_request_seconds_bucket{{route=\"{route}\",le=\"{end}\"}} {count}"
                )?;
            }
            writeln!(
                page,
                "atoll_http_request_seconds_bucket{{route=\"{route}\",le=\"+Inf\"}} {}",
                entry.count
            )?;
            writeln!(page, "atoll_http_request_seconds_sum{{route=\"{route}\"}} {}", entry.seconds)?;
            writeln!(page, "atoll_http_request_seconds_count{{route=\"{route}\"}} {}", entry.count)?;
        }
        Ok(page)
    }
}

/// What is kept ready, by image: those are the operator's, and few.
fn render_pool(page: &mut String, pool: &PoolView) -> std::fmt::Result {
    type Figure = fn(&PoolKey) -> f64;
    let figures: [(&str, &str, Figure); 9] = [
        ("hits_total", "counter", |key| key.hits as f64),
        ("misses_total", "counter", |key| key.misses as f64),
        ("failures_total", "counter", |key| key.failures as f64),
        ("refill_seconds_sum", "counter", |key| key.refill_time.as_secs_f64()),
        ("refill_seconds_count", "counter", |key| key.refills as f64),
        ("ready", "gauge", |key| key.ready.into()),
        ("starting", "gauge", |key| key.starting.into()),
        ("target", "gauge", |key| key.target.into()),
        ("oldest_seconds", "gauge", |key| key.oldest.map_or(0.0, |age| age.as_secs_f64())),
    ];
    for (name, kind, figure) in figures {
        writeln!(page, "# TYPE atoll_pool_{name} {kind}")?;
        for key in &pool.keys {
            writeln!(page, "atoll_pool_{name}{{image=\"{}\"}} {}", key.image, figure(key))?;
        }
    }
    Ok(())
}

/// Counts every request by its route, never by its path: paths are the callers' and without end.
pub(crate) async fn count(State(app): State<App>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|p| p.as_str().to_owned());
    // A preview takes any method, and anybody can invent one.
    let method = match *request.method() {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS => request.method().as_str(),
        _ => "OTHER",
    };
    let route = format!("{method} {}", matched.as_deref().unwrap_or("none"));
    let began = Instant::now();
    let response = next.run(request).await;
    app.metrics.add(route, response.status().as_u16(), began.elapsed().as_secs_f64());
    response
}
