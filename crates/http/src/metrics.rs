//! Requests by route and status, and how long they took, in the text form that Prometheus reads.

use crate::HttpContext;
use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
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

    /// Their part of the page.
    pub(crate) fn render(&self, page: &mut String) -> fmt::Result {
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
        Ok(())
    }
}

/// Counts every request by its route, never by its path: paths are the callers' and without end.
pub(crate) async fn count(State(context): State<HttpContext>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().map(|p| p.as_str().to_owned());
    // A preview takes any method, and a client can invent one.
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
    context.metrics.add(route, response.status().as_u16(), began.elapsed().as_secs_f64());
    response
}
