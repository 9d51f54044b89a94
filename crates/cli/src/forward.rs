//! `atoll port-forward`: servers inside a sandbox, on this machine's own ports.

use crate::{Failure, args::PortForward, resolve, terminal};
use atoll_client::{
    Client, Forward, Uuid,
    tungstenite::{self, Message},
};
use atoll_types::{Error, ErrorCode};
use bytes::BytesMut;
use futures_util::{SinkExt, StreamExt};
use std::{io, net::SocketAddr};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// The size of one read.
const PIECE: usize = 64 * 1024;

/// A port of this machine, and the sandbox's port that it forwards to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    local: u16,
    remote: u16,
}

/// `[LOCAL:]REMOTE`.
pub(crate) fn mapping(text: &str) -> Result<Mapping, String> {
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("{text:?} is not a port"));
    let (local, remote) = match text.split_once(':') {
        Some((local, remote)) => (number(local)?, number(remote)?),
        None => (number(text)?, number(text)?),
    };
    if remote == 0 { Err("the sandbox's port is 1 to 65535".into()) } else { Ok(Mapping { local, remote }) }
}

/// Listens on this machine until it is interrupted; each connection is one to the sandbox.
pub(crate) async fn run(options: PortForward) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let mut listeners = JoinSet::new();
    let mut bound = Vec::new();
    for mapping in &options.mappings {
        let address = SocketAddr::new(options.address, mapping.local);
        let taken = |e: io::Error| {
            let message = format!("cannot listen on {address}: {e}; name another port as LOCAL:REMOTE");
            Failure::from(Error::new(ErrorCode::Unavailable, message))
        };
        let listener = TcpListener::bind(address).await.map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        bound.push((listener, *mapping, address));
    }
    // Checked before the first connection, so that a missing sandbox is reported at once.
    let inspected = client.get(id).await.map_err(|e| Failure::from(e).about(&options.id))?;
    drop(inspected);
    for (listener, mapping, address) in bound {
        terminal::print(&format!("{address} -> {}\n", mapping.remote))?;
        listeners.spawn(listen(listener, client.clone(), id, mapping.remote));
    }
    tokio::select! {
        () = async { while listeners.join_next().await.is_some() {} } => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(0)
}

async fn listen(listener: TcpListener, client: Client, id: Uuid, port: u16) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let client = client.clone();
                tokio::spawn(async move {
                    if let Err(why) = connection(stream, &client, id, port).await {
                        complain(&format!("{peer} -> {port}: {why}"));
                    }
                });
            }
            Err(error) => {
                complain(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn complain(text: &str) {
    terminal::note(text);
}

async fn connection(stream: TcpStream, client: &Client, id: Uuid, port: u16) -> Result<(), String> {
    let _ = stream.set_nodelay(true);
    let socket = client.forward(id, port).await.map_err(|e| e.to_string())?;
    carry(stream, socket).await.map_err(|e| e.to_string())
}

/// Carries bytes until both directions are done, or either side breaks off.
async fn carry(mut stream: TcpStream, socket: Forward) -> Result<(), tungstenite::Error> {
    let (mut sink, mut messages) = socket.split();
    let (mut from, mut to) = stream.split();
    let outward = async {
        let mut buffer = BytesMut::with_capacity(PIECE);
        loop {
            let read = from.read_buf(&mut buffer).await?;
            // An empty message is the end of this direction; the other may continue.
            sink.send(Message::Binary(buffer.split().freeze())).await?;
            if read == 0 {
                return Ok::<_, tungstenite::Error>(());
            }
            buffer.reserve(PIECE);
        }
    };
    let inward = async {
        while let Some(message) = messages.next().await {
            match message? {
                Message::Binary(bytes) if bytes.is_empty() => to.shutdown().await?,
                Message::Binary(bytes) => to.write_all(&bytes).await?,
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok::<_, tungstenite::Error>(())
    };
    let mut inward = std::pin::pin!(inward);
    let carried = tokio::select! {
        ended = &mut inward => ended,
        // The server closes when both directions are done.
        sent = outward => match sent {
            Ok(()) => inward.await,
            Err(error) => Err(error),
        },
    };
    match carried {
        // Either side may close first.
        Err(tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed) => Ok(()),
        Err(tungstenite::Error::Io(e))
            if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings() {
        assert_eq!(mapping("8080"), Ok(Mapping { local: 8080, remote: 8080 }));
        assert_eq!(mapping("0:80"), Ok(Mapping { local: 0, remote: 80 }));
        for wrong in ["", "x", "1:", ":1", "1:2:3", "70000", "1:0", "0", "-1"] {
            assert!(mapping(wrong).is_err(), "{wrong:?}");
        }
    }
}
