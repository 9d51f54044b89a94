//! `grpc.health.v1.Health`: whether the store and the providers answer, as `/health` says it.

use atoll_core::Core;
use futures_util::{Stream, StreamExt, stream};
use std::{pin::Pin, time::Duration};
use tonic::{Request, Response, Status};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus, health_server::Health,
};

/// How often a watcher's server looks.
const INTERVAL: Duration = Duration::from_secs(5);
/// The services that there are; the empty name is the server.
const SERVICES: [&str; 2] = ["", "sandbox.v1.SandboxService"];

/// The health of this server.
pub(crate) struct ServerHealth(pub(crate) Core);

async fn look(core: &Core) -> ServingStatus {
    match core.ready().await {
        Ok(()) => ServingStatus::Serving,
        Err(_) => ServingStatus::NotServing,
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[async_trait::async_trait]
impl Health for ServerHealth {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("there is no such service"));
        }
        Ok(Response::new(answer(look(&self.0).await)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let life = request.extensions().get::<atoll_http::Life>().cloned();
        let known = SERVICES.contains(&request.get_ref().service.as_str());
        let core = self.0.clone();
        let changes = stream::unfold(None, move |last| {
            let core = core.clone();
            async move {
                loop {
                    let now = if known { look(&core).await } else { ServingStatus::ServiceUnknown };
                    if last != Some(now) {
                        return Some((Ok(answer(now)), Some(now)));
                    }
                    tokio::time::sleep(INTERVAL).await;
                }
            }
        });
        let ends = async move {
            match life {
                Some(life) => life.ending().await,
                None => std::future::pending().await,
            }
        };
        Ok(Response::new(Box::pin(changes.take_until(Box::pin(ends)))))
    }
}
