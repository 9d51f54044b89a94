//! Ports of servers inside.

use super::{Outcome, ensure, same, says, shell, spec, with};
use crate::{Container, Ports, Provider};
use atoll_types::ErrorCode;
use std::{sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a server that answers each connection with its port and what it received, after the client has
/// closed its side.
async fn serve(container: &Arc<dyn Container>, address: &str, port: u16) -> Outcome {
    let program = format!(
        "import socket,threading\n\
         s=socket.create_server(('{address}',{port}),family=socket.AF_INET6 if ':' in '{address}' else socket.AF_INET)\n\
         print('up',flush=True)\n\
         def one(c):\n  d=b''\n  while (p:=c.recv(65536)): d+=p\n  c.sendall(b'{port} '+d); c.close()\n\
         while True: threading.Thread(target=one,args=(s.accept()[0],),daemon=True).start()"
    );
    // Outlives its command, as a server does.
    let line = format!(
        "cat > /tmp/s{port}.py <<'E'\n{program}\nE\nsetsid python3 /tmp/s{port}.py > /tmp/up{port} 2>&1 < /dev/null & \
         for i in $(seq 300); do grep -q up /tmp/up{port} && exit 0; sleep 0.1; done; cat /tmp/up{port} >&2; exit 1"
    );
    let started = shell(container, &line).await?;
    let why = || format!("no server: {}", String::from_utf8_lossy(&started.stderr));
    ensure(started.report.exit_code == Some(0), why)
}

async fn talk(power: &dyn Ports, port: u16, text: &str) -> Result<String, String> {
    let mut stream = power.connect(port).await.map_err(|e| format!("connect to {port}: {e}"))?;
    let exchange = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map(|_| answer)
    };
    let done = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer".to_owned())?;
    done.map_err(|e| format!("the connection broke: {e}"))
}

pub(super) async fn servers_inside_are_reached_and_reach_nothing(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let Some(power) = container.ports() else { return Ok(()) };
        let closed = power.connect(8080).await;
        same("closed", closed.err().map(|e| e.code), Some(ErrorCode::BadGateway))?;
        serve(&container, "127.0.0.1", 8080).await?;
        serve(&container, "::1", 8082).await?;
        for n in 0..40 {
            same("answer", talk(power, 8080, &n.to_string()).await?, format!("8080 {n}"))?;
        }
        same("by IPv6", talk(power, 8082, "x").await?, "8082 x".into())?;
        let listening = power.listening().await.map_err(|e| e.to_string())?;
        ensure(listening.contains(&8080) && listening.contains(&8082), || format!("{listening:?}"))?;
        ensure(!listening.contains(&8083), || format!("{listening:?}"))?;
        // Another container's port of the same number is another.
        with(provider, spec(), async |other| {
            let Some(power) = other.ports() else { return Ok(()) };
            let closed = power.connect(8080).await;
            same("of another", closed.err().map(|e| e.code), Some(ErrorCode::BadGateway))
        })
        .await?;
        // Connections come in, but the container still has no route out.
        let routes = says(&container, "tail -n +2 /proc/net/route | wc -l").await?;
        same("routes", routes, "0".into())
    })
    .await
}

pub(super) async fn connections_end_with_the_container(provider: &dyn Provider) -> Outcome {
    let mut kept = None;
    with(provider, spec(), async |container| {
        let Some(power) = container.ports() else { return Ok(()) };
        serve(&container, "127.0.0.1", 8080).await?;
        let stream = power.connect(8080).await.map_err(|e| e.to_string())?;
        kept = Some((stream, power.closed()));
        let early = tokio::time::timeout(Duration::from_millis(50), power.closed()).await;
        ensure(early.is_err(), || "it was closed while it lived".into())
    })
    .await?;
    let Some((mut stream, closed)) = kept else { return Ok(()) };
    let told = tokio::time::timeout(PATIENCE, closed).await;
    ensure(told.is_ok(), || "`closed` of the ports did not complete".into())?;
    // EOF or a reset: either way the connection is closed.
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    ensure(read.is_ok(), || "a connection outlived its container".into())
}
