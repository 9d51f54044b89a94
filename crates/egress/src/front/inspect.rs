//! Inspected connections: TLS ends here and begins anew towards the host, and each request is decided. A
//! connection that cannot be inspected does not pass.

use super::tunnel::{HELLO, TunnelReply};
use crate::{
    Host,
    http::{Buffered, Client, Front, HttpConnection, ProxyReply, linger},
    session::{Account, Caller, Claim, Stop},
    tls::{First, Hello, UNRECOGNIZED_NAME},
};
use std::{io::Cursor, sync::Arc, time::Instant};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

const NO_AUTHORITY: &str = "this server has no authority to look inside TLS";

pub(super) async fn open(
    caller: &Arc<Caller>,
    mut client: Client,
    (claim, rule): (Claim, &str),
    answer: TunnelReply,
) {
    let claim = Claim { inspected: true, ..claim };
    // On other ports the client may begin TLS, and could not be sent an error any more.
    if caller.session().shared.authority.is_none() && claim.port != 80 {
        caller.refuse(&claim, NO_AUTHORITY);
        return answer.no(client, ProxyReply::not_allowed(&claim.host, NO_AUTHORITY)).await;
    }
    if answer.yes(&mut client).await.is_err() {
        return;
    }
    let first = timeout(HELLO, first(&mut client)).await.unwrap_or(First::More);
    match first {
        First::Tls(name) => {
            let named = name.and_then(|name| Host::parse(&name).ok());
            let fits = match &claim.host {
                Host::Name(_) => named.as_ref() == Some(&claim.host),
                Host::Address(_) => true,
            };
            if fits {
                return look(caller, client, (claim, rule)).await;
            }
            caller.refuse(&claim, "sni");
            let _ = client.writer.write_all(&UNRECOGNIZED_NAME).await;
            linger(client).await;
        }
        First::Other => {
            let front = Front::Inside(claim.host, claim.port);
            HttpConnection::new(caller, front, false).serve(client, None).await;
        }
        First::More | First::Bad => {
            caller.refuse(&claim, "nothing to look at");
            client.abort();
        }
    }
}

async fn first(client: &mut Client) -> First {
    let mut hello = Hello::default();
    let mut step = hello.feed(client.reader.data());
    while step == First::More {
        let fed = client.reader.data().len();
        if !matches!(client.reader.fill(16 * 1024).await, Ok(read) if read > 0) {
            return First::More;
        }
        step = hello.feed(client.reader.data().get(fed..).unwrap_or_default());
    }
    step
}

/// Terminates the client's TLS and serves the requests inside.
async fn look(caller: &Arc<Caller>, client: Client, (claim, rule): (Claim, &str)) {
    let started = Instant::now();
    let Some(authority) = &caller.session().shared.authority else {
        return caller.refuse(&claim, NO_AUTHORITY);
    };
    let config = match authority.config(&claim.host) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "no certificate for an inspected connection");
            return Account::new(caller, claim, rule, started).stop(&Stop::Broken(error.message));
        }
    };
    let Client { reader, writer, .. } = client;
    let (source, read) = reader.into_parts();
    let stream = tokio::io::join(Cursor::new(read).chain(source), writer);
    let accepted = timeout(HELLO, TlsAcceptor::from(config).accept(stream)).await;
    let why = match accepted {
        Ok(Ok(stream)) => {
            let (reader, writer) = tokio::io::split(stream);
            let reader = Buffered::new(reader, Vec::new());
            let client = Client { reader, writer: Box::new(writer), begun: false };
            let front = Front::Inside(claim.host, claim.port);
            HttpConnection::new(caller, front, true).serve(client, None).await;
            return;
        }
        Ok(Err(error)) => format!("the client does not accept the server's certificate: {error}"),
        Err(_) => "no TLS handshake in time".to_owned(),
    };
    Account::new(caller, claim, rule, started).stop(&Stop::Broken(why));
}
