//! Where connections of a sandbox arrive: at the proxy, or redirected by an nftables rule.

mod inspect;
mod network;
mod socks;
mod tunnel;

pub(crate) use network::serve as serve_network;

use crate::{
    Host, Via,
    http::{Client, Front, HttpConnection, ProxyReply, RequestHead, authority, linger},
    names::is_reserved,
    session::{Caller, Claim},
};
use socket2::SockRef;
use std::{
    net::{IpAddr, SocketAddr, SocketAddrV4},
    sync::Arc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};
use tunnel::TunnelReply;

/// For the first byte.
const FIRST: Duration = Duration::from_secs(30);

/// Serves a connection to the proxy. Its first byte says which protocol it speaks.
pub(crate) async fn proxy(caller: Arc<Caller>, stream: TcpStream) {
    let mut first = [0; 1];
    if !matches!(timeout(FIRST, stream.peek(&mut first)).await, Ok(Ok(1))) {
        return;
    }
    let client = Client::new(stream, Vec::new());
    if first == [socks::VERSION] {
        return socks::serve(&caller, client).await;
    }
    let mut connection = HttpConnection::new(&caller, Front::Proxy, false);
    if let Some((client, head)) = connection.serve(client, None).await {
        connect(&caller, client, &head).await;
    }
}

/// Serves CONNECT.
async fn connect(caller: &Arc<Caller>, mut client: Client, head: &RequestHead) {
    match wanted(head) {
        Ok((host, port)) => {
            tunnel::open(caller, client, (Via::Connect, host, port), TunnelReply::Connect).await;
        }
        Err(why) => {
            caller.malformed(Via::Connect, &head.target, &format!("malformed: {why}"));
            ProxyReply::malformed(why).send(&mut client.writer, false, false).await;
            linger(client).await;
        }
    }
}

/// The host that a CONNECT is for. `Host` may be missing or leave out the port, but must not name another.
fn wanted(head: &RequestHead) -> Result<(Host, u16), crate::http::Malformed> {
    use crate::http::{Framing, Malformed};
    let (host, port) = authority(&head.target, None)?;
    if head.framing != Framing::None {
        return Err(Malformed::Framing);
    }
    match head.only("host")? {
        Some(text) if authority(text, Some(port))? != (host.clone(), port) => Err(Malformed::Host),
        _ => Ok((host, port)),
    }
}

/// The original destination of a connection. TPROXY keeps it as the local address; REDIRECT makes it available as
/// SO_ORIGINAL_DST.
fn meant(stream: &TcpStream) -> Option<SocketAddrV4> {
    match stream.local_addr() {
        Ok(SocketAddr::V4(own)) if is_reserved(*own.ip()) => Some(own),
        _ => SockRef::from(stream).original_dst_v4().ok()?.as_socket_ipv4(),
    }
}

/// Serves a connection whose original destination is an address of the reserved block.
pub(crate) async fn redirected(caller: Arc<Caller>, stream: TcpStream) {
    let meant = meant(&stream);
    let mut client = Client::new(stream, Vec::new());
    let Some(meant) = meant else {
        caller.malformed(Via::Transparent, "", "malformed: not redirected");
        return client.abort();
    };
    let (address, port) = (*meant.ip(), meant.port());
    match caller.session().names.name(address).filter(|_| is_reserved(address)) {
        Some(name) => {
            tunnel::open(&caller, client, (Via::Transparent, Host::Name(name), port), TunnelReply::Silent)
                .await;
        }
        None => {
            let host = Host::Address(IpAddr::V4(address));
            caller.refuse(&Claim::new(Via::Transparent, host, port), "unknown address");
            client.abort();
        }
    }
}

/// Sends a client the error that a limit is reached, as far as that is possible before it has sent anything.
pub(crate) async fn limited(stream: TcpStream, limit: &'static str) {
    let mut first = [0; 1];
    if !matches!(timeout(Duration::from_secs(2), stream.peek(&mut first)).await, Ok(Ok(1))) {
        return;
    }
    let mut client = Client::new(stream, Vec::new());
    if first == [socks::VERSION] {
        let _ = client.writer.write_all(&[socks::VERSION, 0xff]).await;
    } else {
        ProxyReply::limit(limit).send(&mut client.writer, false, false).await;
    }
    linger(client).await;
}
