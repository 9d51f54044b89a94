//! How many connections a peer has, the few that are kept back for health checks, and the requests without a key.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Connections by peer; those without any are not in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A peer's identity: its address, or of an IPv6 address its /64, of which one machine has all.
pub(crate) fn peer_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

impl Peers {
    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection of this peer, unless it has so many.
    pub(crate) fn take(&self, peer: SocketAddr, most: usize) -> Option<PeerConnection> {
        let peer = peer_of(peer);
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(PeerConnection { peers: self.clone(), peer })
    }
}

/// One of a peer's connections, until it is dropped.
pub(crate) struct PeerConnection {
    peers: Peers,
    peer: IpAddr,
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

/// Requests that are answered without a key: a few at a time, of all callers and of one peer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct OpenCalls {
    room: Arc<Semaphore>,
    peers: Peers,
    per_peer: usize,
}

/// The place of such a request, until it is dropped.
pub struct OpenCall {
    _place: OwnedSemaphorePermit,
    _of_peer: Option<PeerConnection>,
}

impl OpenCalls {
    /// At most so many, and so many of one peer.
    #[must_use]
    pub fn new(most: usize, per_peer: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(most)), peers: Peers::default(), per_peer }
    }

    /// A place for one more; none where there are too many.
    #[must_use]
    pub fn take(&self, peer: Option<SocketAddr>) -> Option<OpenCall> {
        let place = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let of_peer = match peer {
            Some(peer) => Some(self.peers.take(peer, self.per_peer)?),
            None => None,
        };
        Some(OpenCall { _place: place, _of_peer: of_peer })
    }
}

/// Connections beyond the limits at a time.
const RESERVED: usize = 64;

/// The connections beyond the limits, the oldest first. One more than there may be ends the oldest: a health
/// check is answered within moments, and idle connections do not keep others out.
#[derive(Debug, Default)]
pub(crate) struct Reserve(VecDeque<CancellationToken>);

impl Reserve {
    /// One more. The token is cancelled when it has to go.
    pub(crate) fn enter(&mut self) -> CancellationToken {
        if self.0.len() >= RESERVED
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.cancel();
        }
        let token = CancellationToken::new();
        self.0.push_back(token.clone());
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_no_more_connections_than_it_may() {
        let peers = Peers::default();
        let take = |peer: &str| peers.take(peer.parse().unwrap(), 2);
        let held = (take("192.0.2.1:1"), take("[::ffff:192.0.2.1]:2"));
        assert!(held.0.is_some() && held.1.is_some() && take("192.0.2.1:3").is_none());
        assert!(take("192.0.2.2:1").is_some());
        let net = (take("[2001:db8::1]:1"), take("[2001:db8::2]:1"));
        assert!(net.1.is_some() && take("[2001:db8::3]:1").is_none() && take("[2001:db8:0:1::]:1").is_some());
        drop((held, net));
        assert!(peers.counts().is_empty());
    }

    #[test]
    fn requests_without_a_key_have_places_of_a_peer_and_of_all() {
        let calls = OpenCalls::new(3, 2);
        let take = |peer: &str| calls.take(Some(peer.parse().unwrap()));
        let held = (take("192.0.2.1:1"), take("192.0.2.1:2"));
        assert!(held.0.is_some() && held.1.is_some() && take("192.0.2.1:3").is_none());
        let other = take("192.0.2.2:1");
        assert!(other.is_some() && take("192.0.2.3:1").is_none(), "all places are taken");
        drop(held);
        assert!(take("192.0.2.1:3").is_some());
    }

    #[test]
    fn the_oldest_beyond_the_limits_makes_room() {
        let mut reserve = Reserve::default();
        let all: Vec<_> = (0..=RESERVED).map(|_| reserve.enter()).collect();
        assert!(all[0].is_cancelled() && !all[1].is_cancelled());
    }
}
