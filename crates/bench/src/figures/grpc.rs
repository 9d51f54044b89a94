//! A command through gRPC, over a connection that stays open, compared with the same through REST.

use super::Bench;
use crate::{
    Result,
    pace::timed,
    report::{Baseline, Row},
    server::{self, KEY, Sandbox, Server},
};
use std::net::TcpListener;
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

const EXEC: &str = "/sandbox.v1.SandboxService/Exec";
const LINE: &str = "true";

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let settings = ["warm_pool_enabled=false".to_owned()];
    let server = Server::start_with(&settings, &[("ATOLL_GRPC_LISTEN", address.to_string())]).await?;
    let taken = rows(bench, &server, format!("http://{address}")).await;
    let ended = server.end().await;
    let rows = taken?;
    ended?;
    Ok(rows)
}

async fn rows(bench: &Bench<'_>, server: &Server, address: String) -> Result<Vec<Row>> {
    let mut rest = server.connect().await?;
    let sandbox = server::create(&mut rest, "{}").await?;
    let mut grpc = Grpc::new(Endpoint::from_shared(address)?.connect().await?);
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
async fn exec(client: &mut Grpc<Channel>, sandbox: &Sandbox) -> Result<()> {
    let asked = ExecRequest { session_id: sandbox.id().to_owned(), command: LINE.into() };
    let mut request = Request::new(asked);
    request.metadata_mut().insert("authorization", format!("Bearer {KEY}").parse()?);
    client.ready().await?;
    let codec: ProstCodec<ExecRequest, ExecResponse> = ProstCodec::default();
    match client.unary(request, PathAndQuery::from_static(EXEC), codec).await?.into_inner() {
        ExecResponse { exit_code: 0, .. } => Ok(()),
        other => Err(format!("{LINE} went wrong: {other:?}").into()),
    }
}
