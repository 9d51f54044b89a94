//! Requests on one connection, each decided anew. The connection to the host is kept for the next request if
//! that is for the same host.

use super::{
    client::{Client, Unread, linger},
    exchange::{Done, Failure, Upstream, exchange, pump},
    head::RequestHead,
    io::Buffered,
    reply::ProxyReply,
    target::{self, Destination, Front},
    tcp::Tcp,
};
use crate::{
    BadToken, Host, Request, Tokens, Verdict, Via,
    dial::Failed,
    session::{Account, Caller, Claim, Direction, Stop},
};
use rustls::pki_types::ServerName;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{io::AsyncWriteExt, time::timeout};
use tokio_rustls::TlsConnector;

const HANDSHAKE: Duration = Duration::from_secs(10);

/// What happens on the connection after a request.
enum Next {
    /// Another request.
    Again,
    /// It is closed, after the response has arrived.
    Close,
    /// It has ended already.
    Over,
}

/// The authentication that every request on a connection over a network must carry.
pub(crate) struct Badge {
    pub(crate) tokens: Tokens,
    pub(crate) connection: String,
}

impl Badge {
    fn is_shown(&self, head: &RequestHead) -> bool {
        let shown = head.only("proxy-authorization").ok().flatten();
        self.tokens.verify_header(shown).is_ok_and(|claims| claims.session_id == self.connection)
    }
}

pub(crate) struct HttpConnection {
    caller: Arc<Caller>,
    front: Front,
    /// Whether the connection to the host uses TLS.
    tls: bool,
    badge: Option<Badge>,
    upstream: Option<(Host, u16, Upstream)>,
    opened: Instant,
}

impl HttpConnection {
    pub(crate) fn new(caller: &Arc<Caller>, front: Front, tls: bool) -> Self {
        let (caller, opened) = (Arc::clone(caller), Instant::now());
        Self { caller, front, tls, badge: None, upstream: None, opened }
    }

    /// The same, where every request must be authenticated.
    pub(crate) fn with_badge(self, badge: Badge) -> Self {
        Self { badge: Some(badge), ..self }
    }

    /// Serves requests until the connection ends, or until one wants a tunnel. The first may have been read.
    pub(crate) async fn serve(
        &mut self,
        mut client: Client,
        mut first: Option<RequestHead>,
    ) -> Option<(Client, RequestHead)> {
        loop {
            client.begun = false;
            let head = match first.take() {
                Some(head) => Ok(head),
                None => self.next(&mut client).await,
            };
            let head = match head {
                Ok(head) => head,
                Err(Unread::End) => {
                    let _ = client.writer.shutdown().await;
                    return None;
                }
                Err(Unread::Malformed(why)) => {
                    self.caller.malformed(Via::Http, "", &format!("malformed: {why}"));
                    ProxyReply::malformed(why).send(&mut client.writer, false, false).await;
                    linger(client).await;
                    return None;
                }
            };
            if self.badge.as_ref().is_some_and(|badge| !badge.is_shown(&head)) {
                ProxyReply::token(BadToken::Forged).send(&mut client.writer, false, false).await;
                linger(client).await;
                return None;
            }
            if head.method == "CONNECT" && matches!(self.front, Front::Proxy) {
                return Some((client, head));
            }
            match self.request(&mut client, &head).await {
                Next::Again => {}
                Next::Close => {
                    linger(client).await;
                    return None;
                }
                Next::Over => {
                    client.abort();
                    return None;
                }
            }
        }
    }

    /// The next request. While the client is idle, a connection to a host that is no longer allowed is closed.
    async fn next(&mut self, client: &mut Client) -> Result<RequestHead, Unread> {
        let mut rules = self.caller.session().watch();
        loop {
            self.close_refused_upstream();
            tokio::select! {
                head = client.head() => return head,
                changed = rules.changed() => changed.map_err(|_| Unread::End)?,
            }
        }
    }

    fn close_refused_upstream(&mut self) {
        self.upstream.take_if(|(host, port, upstream)| {
            let address = self.caller.session().decide_address(upstream.address, *port);
            let host = self.caller.decide(host, *port, None);
            [host, address].iter().any(|verdict| matches!(verdict, Verdict::Deny(_)))
        });
    }

    /// Answers a request that is not forwarded. Another may follow if this one has no body left to read.
    async fn answer(&self, client: &mut Client, head: &RequestHead, reply: ProxyReply) -> Next {
        if client.begun {
            return Next::Over;
        }
        let keep = head.framing == super::Framing::None && head.keeps_open();
        reply.send(&mut client.writer, keep, head.method == "HEAD").await;
        if keep { Next::Again } else { Next::Close }
    }

    async fn request(&mut self, client: &mut Client, head: &RequestHead) -> Next {
        let to = match target::destination(head, &self.front) {
            Ok(to) => Destination { host: self.caller.named(to.host.clone()), ..to },
            Err(why) => {
                self.caller.malformed(Via::Http, &head.target, &format!("malformed: {why}"));
                ProxyReply::malformed(why).send(&mut client.writer, false, false).await;
                return Next::Close;
            }
        };
        let mut claim = Claim::new(Via::Http, to.host.clone(), to.port);
        claim.request = Some((head.method.clone(), to.bare_path().to_owned()));
        claim.inspected = true;
        let most = self.caller.session().rules().limits().connection_seconds;
        if most.is_some_and(|most| self.opened.elapsed() >= Duration::from_secs(most.into())) {
            self.caller.refuse(&claim, "limit: connection_seconds");
            ProxyReply::limit("connection_seconds").send(&mut client.writer, false, false).await;
            return Next::Close;
        }
        let asked = Request { method: &head.method, path: to.bare_path() };
        let rule = match self.caller.decide(&to.host, to.port, Some(asked)) {
            Verdict::Allow(rule) => rule,
            Verdict::Inspect(rule) | Verdict::Deny(rule) => {
                self.caller.refuse(&claim, &rule);
                return self.answer(client, head, ProxyReply::not_allowed(&to.host, &rule)).await;
            }
        };
        for _ in 0..2 {
            match self.attempt(client, head, &to, (&claim, &rule)).await {
                Some(next) => return next,
                None => self.upstream = None,
            }
        }
        self.answer(client, head, ProxyReply::upstream(&to.host, "it closed the connection twice")).await
    }

    /// Tries once. None: the reused connection had ended.
    async fn attempt(
        &mut self,
        client: &mut Client,
        head: &RequestHead,
        to: &Destination,
        (claim, rule): (&Claim, &str),
    ) -> Option<Next> {
        let started = Instant::now();
        let mut upstream = match self.connected(to).await {
            Ok(upstream) => upstream,
            Err(failed) => {
                match &failed {
                    Failed::Denied(address, rule) => {
                        let claim = Claim { address: Some(*address), ..claim.clone() };
                        self.caller.refuse(&claim, rule);
                    }
                    failed => {
                        let account = Account::new(&self.caller, claim.clone(), rule, started);
                        account.stop(&Stop::Broken(failed.to_string()));
                    }
                }
                return Some(self.answer(client, head, ProxyReply::failed(&to.host, &failed)).await);
            }
        };
        let claim = Claim { address: Some(upstream.address), ..claim.clone() };
        let account = Account::new(&self.caller, claim, rule, started);
        let bytes = target::forwarded(head, to, self.tls);
        let done = tokio::select! {
            biased;
            stop = self.caller.guard(&account) => Err(Failure::Stop(stop)),
            done = exchange(client, &mut upstream, (head, &bytes), &account) => done,
        };
        match done {
            Ok(Done::Kept { client: keep, upstream: kept }) => {
                upstream.used = true;
                self.upstream = kept.then(|| (to.host.clone(), to.port, upstream));
                Some(if keep { Next::Again } else { Next::Close })
            }
            Ok(Done::Switched) => Some(self.switched(client, upstream, &account).await),
            Err(Failure::Stale) => {
                account.forget();
                None
            }
            Err(failure) => Some(self.failed(client, head, to, (failure, &account)).await),
        }
    }

    async fn failed(
        &self,
        client: &mut Client,
        head: &RequestHead,
        to: &Destination,
        (failure, account): (Failure, &Account),
    ) -> Next {
        let (stop, reply) = match failure {
            Failure::Stop(stop) => (stop.clone(), ProxyReply::stopped(&to.host, &stop)),
            Failure::Late => {
                let why = "it did not answer in time";
                (Stop::Broken(why.to_owned()), ProxyReply::late(&to.host, why))
            }
            Failure::Answer(why) => (Stop::Broken(why.clone()), ProxyReply::upstream(&to.host, why)),
            Failure::Gone(why) => {
                account.stop(&Stop::Broken(why));
                return Next::Over;
            }
            Failure::Stale => return Next::Over,
        };
        account.stop(&stop);
        match self.answer(client, head, reply).await {
            Next::Again => Next::Close,
            next => next,
        }
    }

    /// A connection to the host: the one from before, if it is for the same host and has not ended.
    async fn connected(&mut self, to: &Destination) -> Result<Upstream, Failed> {
        let session = Arc::clone(self.caller.session());
        if let Some((host, port, mut upstream)) = self.upstream.take()
            && (&host, port) == (&to.host, to.port)
            && matches!(session.decide_address(upstream.address, port), Verdict::Allow(_))
            && !upstream.reader.is_stale()
        {
            return Ok(upstream);
        }
        let decide = |address| session.decide_address(address, to.port);
        let (stream, address) = session.shared.dialer.dial(&to.host, to.port, decide).await?;
        if !self.tls {
            let stream = Tcp::new(stream);
            let reader = Buffered::new(stream.clone(), Vec::new());
            return Ok(Upstream { reader, writer: Box::new(stream), address, used: false });
        }
        let name = match &to.host {
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|e| Failed::Name(e.to_string()))?
            }
            Host::Address(address) => ServerName::IpAddress((*address).into()),
        };
        let connector = TlsConnector::from(Arc::clone(&session.shared.upstream));
        let stream = timeout(HANDSHAKE, connector.connect(name, stream)).await;
        let stream = stream
            .map_err(|_| Failed::Late("no TLS handshake in time".to_owned()))?
            .map_err(Failed::Connect)?;
        let (reader, writer) = tokio::io::split(stream);
        let reader = Buffered::new(reader, Vec::new());
        Ok(Upstream { reader, writer: Box::new(writer), address, used: false })
    }

    /// Bytes both ways, after the host has agreed to that.
    async fn switched(&self, client: &mut Client, upstream: Upstream, account: &Account) -> Next {
        let Upstream { reader, mut writer, .. } = upstream;
        let (mut from_host, first_in) = reader.into_parts();
        let Client { reader, writer: back, .. } = client;
        let first_out = reader.take();
        let both = async {
            tokio::try_join!(
                pump(reader.source(), first_out, &mut writer, (account, Direction::Out)),
                pump(&mut *from_host, first_in, back, (account, Direction::In)),
            )
        };
        let done = tokio::select! {
            biased;
            stop = self.caller.guard(account) => Err(stop),
            done = both => done,
        };
        match done {
            Ok(_) => Next::Close,
            Err(stop) => {
                account.stop(&stop);
                Next::Over
            }
        }
    }
}
