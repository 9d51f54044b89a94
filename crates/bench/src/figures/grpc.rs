//! A command through gRPC, over a connection that stays open, compared with the same through REST.

use super::Bench;
use crate::{
    Result,
    pace::timed,
    report::{Baseline, Row},
    server::{self, KEY, Sandbox, Server},
};
use std::net::{SocketAddr, TcpListener};
use tonic::{
    Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

/// The fields of `sandbox.v1.ExecRequest` that are sent.
#[derive(Clone, PartialEq, prost::Message)]
struct ExecRequest {
    #[prost(string, tag = "1")]
    session_id: String,
    #[prost(string, tag = "2")]
    command: String,
}

/// The fields of `sandbox.v1.ExecResponse` that are looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct ExecResponse {
    #[prost(int32, tag = "1")]
    exit_code: i32,
    #[prost(string, tag = "3")]
    stderr: String,
}

/// The fields of `grpc.health.v1.HealthCheckRequest` that are sent.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthRequest {}

/// The fields of `grpc.health.v1.HealthCheckResponse` that are looked at.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

const EXEC: &str = "/sandbox.v1.SandboxService/Exec";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// What `HealthResponse` says of a server that works.
const SERVING: i32 = 1;
const LINE: &str = "true";

/// A client's end.
pub(super) type GrpcClient = Grpc<Channel>;

/// An address for gRPC that was free a moment ago.
pub(super) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The variable that has a server listen there.
pub(super) fn listens(address: SocketAddr) -> (&'static str, String) {
    ("ATOLL_GRPC_LISTEN", address.to_string())
}

/// A connection that stays open, and is warm.
pub(super) async fn connect(address: SocketAddr) -> Result<GrpcClient> {
    let mut client = Grpc::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?);
    match call(&mut client, HEALTH, HealthRequest {}).await? {
        HealthResponse { status: SERVING } => Ok(client),
        other => Err(format!("the server is not healthy: {other:?}").into()),
    }
}

/// A request and its response.
async fn call<Q, A>(client: &mut GrpcClient, method: &'static str, asked: Q) -> Result<A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut request = Request::new(asked);
    request.metadata_mut().insert("authorization", format!("Bearer {KEY}").parse()?);
    client.ready().await?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    Ok(client.unary(request, PathAndQuery::from_static(method), codec).await?.into_inner())
}

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let address = free_address()?;
    let settings = ["warm_pool_enabled=false".to_owned()];
    Server::with(&settings, &[listens(address)], async |server| rows(bench, server, address).await).await
}

async fn rows(bench: &Bench<'_>, server: &Server, address: SocketAddr) -> Result<Vec<Row>> {
    let mut rest = server.connect().await?;
    let sandbox = server::create(&mut rest, "{}").await?;
    let mut grpc = connect(address).await?;
    let body = format!(r#"{{"command":"{LINE}"}}"#);
    let mut rows = Vec::new();
    for pace in bench.paces(300) {
        let round = async || {
            pace.wait().await;
            let own = timed(exec(&mut grpc, &sandbox)).await?.0;
            pace.wait().await;
            Ok(vec![own, timed(server::exec(&mut rest, &sandbox, &body)).await?.0])
        };
        let mut series = pace.take(round).await?.into_iter();
        let mut next = || series.next().ok_or("a series is missing");
        let (own, other) = (next()?, Baseline::new("the same through REST", next()?));
        rows.push(Row::latency("grpc exec true, shell", pace.name, own, vec![other]).by_difference());
    }
    server::delete(&mut rest, &sandbox).await?;
    Ok(rows)
}

/// Runs a command that must succeed. A sandbox is a session under its id.
async fn exec(client: &mut GrpcClient, sandbox: &Sandbox) -> Result<()> {
    let asked = ExecRequest { session_id: sandbox.id().to_owned(), command: LINE.into() };
    match call(client, EXEC, asked).await? {
        ExecResponse { exit_code: 0, .. } => Ok(()),
        other => Err(format!("{LINE} went wrong: {other:?}").into()),
    }
}
