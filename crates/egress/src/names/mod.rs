//! The resolver inside a sandbox's network, over UDP and TCP. It resolves names that may be reached, to addresses
//! that only the proxy understands.

mod answer;
mod table;

pub(crate) use table::{Table, is_reserved};

use crate::session::{Caller, EgressSession};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

/// Queries on one connection, and the time between two.
const MOST_QUESTIONS: usize = 256;
const BETWEEN: Duration = Duration::from_secs(10);

/// Answers queries that come as datagrams, for as long as it runs.
pub(crate) async fn serve_datagrams(session: Arc<EgressSession>, socket: UdpSocket) {
    let mut buffer = vec![0; answer::MOST_BYTES + 1];
    loop {
        let (length, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // A client closed its socket before the answer came; any other error is retried only after a
                // pause.
                if error.kind() != io::ErrorKind::ConnectionRefused {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                continue;
            }
        };
        let caller = Caller::new(&session, session.asked(from), None);
        if let Err(limit) = session.start() {
            caller.malformed(crate::Via::Name, "", &format!("limit: {limit}"));
            continue;
        }
        match answer::answer(buffer.get(..length).unwrap_or_default(), &caller) {
            Some(reply) => drop(socket.send_to(&reply, from).await),
            None => caller.malformed(crate::Via::Name, "", "malformed"),
        }
    }
}

/// Answers queries of one connection.
pub(crate) async fn serve_stream(caller: Arc<Caller>, mut stream: TcpStream) -> io::Result<()> {
    for _ in 0..MOST_QUESTIONS {
        let Ok(length) = timeout(BETWEEN, stream.read_u16()).await else { return Ok(()) };
        let length = usize::from(length?);
        if length > answer::MOST_BYTES {
            caller.malformed(crate::Via::Name, "", "malformed");
            return Ok(());
        }
        let mut bytes = vec![0; length];
        let Ok(read) = timeout(BETWEEN, stream.read_exact(&mut bytes)).await else { return Ok(()) };
        read?;
        if caller.session().start().is_err() {
            caller.malformed(crate::Via::Name, "", "limit: connections_per_second");
            return Ok(());
        }
        let Some(reply) = answer::answer(&bytes, &caller) else {
            caller.malformed(crate::Via::Name, "", "malformed");
            return Ok(());
        };
        let mut framed = u16::try_from(reply.len()).unwrap_or_default().to_be_bytes().to_vec();
        framed.extend_from_slice(&reply);
        timeout(BETWEEN, stream.write_all(&framed)).await??;
    }
    Ok(())
}
