//! A connection to a host, by whichever protocol it was requested. Bytes pass as they are, except that a client
//! that begins TLS must name the host it requested.

use super::{inspect, socks};
use crate::{
    Host, Verdict, Via,
    dial::Failed,
    http::{Buffered, Client, ProxyReply, Tcp, linger, pump},
    session::{Account, Caller, Claim, Direction, Stop},
    tls::{First, Hello, UNRECOGNIZED_NAME},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

/// For the whole of a client's first message.
pub(super) const HELLO: Duration = Duration::from_secs(10);

/// How the client gets the result of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TunnelReply {
    Connect,
    Socks,
    /// A redirected connection: the client knows of no proxy.
    Silent,
}

impl TunnelReply {
    pub(super) async fn yes(self, client: &mut Client) -> std::io::Result<()> {
        match self {
            TunnelReply::Connect => {
                client.writer.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await
            }
            TunnelReply::Socks => client.writer.write_all(&socks::reply(0)).await,
            TunnelReply::Silent => Ok(()),
        }
    }

    /// Refuses, with the reason as far as the protocol allows.
    pub(super) async fn no(self, mut client: Client, reply: ProxyReply) {
        match self {
            TunnelReply::Connect => reply.send(&mut client.writer, false, false).await,
            TunnelReply::Socks => drop(client.writer.write_all(&socks::reply(reply.socks_code())).await),
            TunnelReply::Silent => return client.abort(),
        }
        linger(client).await;
    }
}

/// Opens a tunnel, if the rules allow it.
pub(super) async fn open(
    caller: &Arc<Caller>,
    client: Client,
    (via, host, port): (Via, Host, u16),
    answer: TunnelReply,
) {
    let host = caller.named(host);
    let claim = Claim::new(via, host.clone(), port);
    match caller.decide(&host, port, None) {
        Verdict::Deny(rule) => {
            caller.refuse(&claim, &rule);
            answer.no(client, ProxyReply::not_allowed(&host, &rule)).await;
        }
        Verdict::Inspect(rule) => inspect::open(caller, client, (claim, &rule), answer).await,
        Verdict::Allow(rule) => through(caller, client, (claim, &rule), answer).await,
    }
}

async fn through(
    caller: &Arc<Caller>,
    mut client: Client,
    (mut claim, rule): (Claim, &str),
    answer: TunnelReply,
) {
    let (host, port, started) = (claim.host.clone(), claim.port, Instant::now());
    let decide = |address| caller.session().decide_address(address, port);
    let stream = match caller.session().shared.dialer.dial(&host, port, decide).await {
        Ok((stream, address)) => {
            claim.address = Some(address);
            stream
        }
        Err(failed) => {
            let reply = ProxyReply::failed(&host, &failed);
            match failed {
                Failed::Denied(address, rule) => {
                    claim.address = Some(address);
                    caller.refuse(&claim, &rule);
                }
                failed => Account::new(caller, claim, rule, started).stop(&Stop::Broken(failed.to_string())),
            }
            return answer.no(client, reply).await;
        }
    };
    let account = Account::new(caller, claim, rule, started);
    if let Err(error) = answer.yes(&mut client).await {
        return account.stop(&error.into());
    }
    let left = carry(client, stream, &account).await;
    // The decision is recorded before the last bytes are waited for.
    drop(account);
    if let Some(client) = left {
        linger(client).await;
    }
}

/// Carries bytes until both sides are done, or until a rule or limit ends it; then both see a reset connection,
/// or the client an alert that should still arrive.
async fn carry(mut client: Client, stream: TcpStream, account: &Account) -> Option<Client> {
    let upstream = Tcp::new(stream);
    let mut answers = Buffered::new(upstream.clone(), Vec::new());
    let mut to = upstream;
    let work = async {
        check_name(&mut client, &mut answers, account).await?;
        let first = client.reader.take();
        tokio::try_join!(
            pump(client.reader.source(), first, &mut to, (account, Direction::Out)),
            pump(answers.source(), Vec::new(), &mut client.writer, (account, Direction::In)),
        )
    };
    let done = tokio::select! {
        biased;
        stop = account.caller().guard(account) => Err(stop),
        done = work => done,
    };
    let stop = done.err()?;
    account.stop(&stop);
    answers.source().abort();
    if stop == Stop::Denied("sni".to_owned()) {
        let _ = client.writer.write_all(&UNRECOGNIZED_NAME).await;
        return Some(client);
    }
    client.abort();
    None
}

/// Waits for the client's first bytes, and passes on what the host sends meanwhile: in some protocols the host
/// speaks first. If the client begins TLS, it must name the host that it requested.
async fn check_name(client: &mut Client, answers: &mut Buffered, account: &Account) -> Result<(), Stop> {
    let Host::Name(_) = &account.claim().host else { return Ok(()) };
    let denied = || Stop::Denied("sni".to_owned());
    let mut hello = Hello::default();
    let mut step = hello.feed(client.reader.data());
    let mut began = None;
    let mut silent = false;
    while step == First::More {
        let fed = client.reader.data().len();
        if fed > 0 {
            began.get_or_insert_with(tokio::time::Instant::now);
        }
        let late = async {
            match began {
                Some(began) => tokio::time::sleep_until(began + HELLO).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            read = client.reader.fill(16 * 1024) => {
                if read? == 0 {
                    // An incomplete message names no host.
                    return if fed == 0 { Ok(()) } else { Err(denied()) };
                }
                step = hello.feed(client.reader.data().get(fed..).unwrap_or_default());
            }
            read = answers.fill(account.chunk()), if !silent => {
                silent = read? == 0;
                let bytes = answers.take();
                account.spend(Direction::In, bytes.len()).await?;
                client.writer.write_all(&bytes).await?;
            }
            () = late => return Err(denied()),
        }
    }
    match step {
        First::Other => Ok(()),
        First::Tls(Some(name)) if Host::parse(&name).as_ref() == Ok(&account.claim().host) => Ok(()),
        _ => Err(denied()),
    }
}
