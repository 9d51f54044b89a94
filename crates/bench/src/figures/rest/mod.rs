//! The same through the REST API, over loopback and a connection that stays open. Each figure has a server of
//! its own, so that none finds what another left.

mod build;
mod burst;
mod changes;
mod claim;
mod connections;
mod create;
mod docker;
mod exec;
mod files;
mod kernel;
mod live;
mod pause;
mod preview;
mod pull;
mod snapshots;
mod stream;
mod terminal;

use super::Bench;
use crate::{Result, docker::Docker, report::Row, server::Server};

pub(super) async fn create(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| create::take(bench, server).await).await
}

pub(super) async fn pause(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| pause::take(bench, server).await).await
}

pub(super) async fn snapshots(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let settings = ["warm_pool_enabled=false", "default_max_per_user=100000", "plan.sandboxes=100000"]
        .map(str::to_owned);
    with_server_of(&settings, async |server| snapshots::take(bench, server).await).await
}

pub(super) async fn exec(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| exec::take(bench, server).await).await
}

pub(super) async fn files(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| files::take(bench, server).await).await
}

pub(super) async fn changes(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| changes::take(bench, server).await).await
}

pub(super) async fn stream(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| stream::take(bench, server).await).await
}

pub(super) async fn terminal(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| terminal::take(bench, server).await).await
}

pub(super) async fn preview(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| preview::take(bench, server).await).await
}

pub(super) use build::is_there as can_build;
pub(super) use pull::is_there as can_pull;

pub(super) async fn build(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| build::take(bench, server).await).await
}

pub(super) async fn pull(bench: &Bench<'_>) -> Result<Vec<Row>> {
    pull::take(bench).await
}

pub(super) async fn burst(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| burst::take(bench, server).await).await
}

pub(super) async fn live(bench: &Bench<'_>) -> Result<Vec<Row>> {
    live::take(bench).await
}

pub(super) async fn connections(bench: &Bench<'_>) -> Result<Vec<Row>> {
    connections::take(bench).await
}

pub(super) async fn docker(bench: &Bench<'_>) -> Result<Vec<Row>> {
    if !Docker::is_there() {
        return Ok(Vec::new());
    }
    with_server(async |server| docker::take(bench, server).await).await
}

pub(super) async fn kernel(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| kernel::take(bench, server).await).await
}

pub(super) async fn kernel_start(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let mut rows = with_server(async |server| kernel::start(bench, server).await).await?;
    rows.extend(kernel::claimed(bench).await?);
    Ok(rows)
}

pub(super) async fn kernel_checkpoint(bench: &Bench<'_>) -> Result<Vec<Row>> {
    with_server(async |server| kernel::checkpoint(bench, server).await).await
}

pub(super) async fn claim(bench: &Bench<'_>) -> Result<Vec<Row>> {
    claim::take(bench).await
}

pub(super) async fn claim_burst(bench: &Bench<'_>) -> Result<Vec<Row>> {
    claim::burst(bench).await
}

/// A server without a pool, whose refills would disturb every other figure.
pub(super) async fn with_server(work: impl AsyncFnOnce(&Server) -> Result<Vec<Row>>) -> Result<Vec<Row>> {
    with_server_of(&["warm_pool_enabled=false".to_owned()], work).await
}

pub(super) async fn with_server_of(
    settings: &[String],
    work: impl AsyncFnOnce(&Server) -> Result<Vec<Row>>,
) -> Result<Vec<Row>> {
    Server::with(settings, &[], work).await
}
