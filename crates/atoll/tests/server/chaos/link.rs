//! How clients reach a server that comes and goes. An answer that did not come whole is none.

use super::believed::Faults;
use crate::server::{fixture::KEY, http};
use std::{
    net::SocketAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// How long a client waits for a server that was killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What clients and the killer share.
pub(super) struct Link {
    /// None while there is no server.
    address: Mutex<Option<SocketAddr>>,
    /// Operations that were begun.
    begun: AtomicUsize,
    /// Whether a launcher was killed: only then may a server say that it cannot.
    pub(super) launcher_killed: AtomicBool,
    faults: Mutex<Faults>,
    /// How many answers did not come, and how many were refused for want of a launcher.
    pub(super) unanswered: AtomicUsize,
    pub(super) unable: AtomicUsize,
}

impl Link {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address: Mutex::new(Some(address)),
            begun: AtomicUsize::new(0),
            launcher_killed: AtomicBool::new(false),
            faults: Mutex::default(),
            unanswered: AtomicUsize::new(0),
            unable: AtomicUsize::new(0),
        }
    }

    /// Takes the next operation, if there is one left.
    pub(super) fn begin(&self, most: usize) -> bool {
        self.begun.fetch_add(1, Ordering::SeqCst) < most
    }

    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Says where the server is now.
    pub(super) fn moved(&self, to: Option<SocketAddr>) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }

    pub(super) fn fault(&self, what: String) {
        eprintln!("chaos: {what}");
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).0.push(what);
    }

    pub(super) fn take_faults(&self) -> Faults {
        std::mem::take(&mut *self.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the server is, once there is one.
    pub(super) fn address(&self) -> SocketAddr {
        let began = Instant::now();
        loop {
            if let Some(address) = *self.address.lock().unwrap_or_else(PoisonError::into_inner) {
                return address;
            }
            assert!(began.elapsed() < PATIENCE, "the server does not come back");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asks once, with a key. None where no answer came, or not all of it.
    pub(super) fn ask_as(
        &self,
        key: &str,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Option<http::Answer> {
        let authorization = format!("Bearer {key}");
        let headers: Vec<_> =
            [("Authorization", authorization.as_str())].into_iter().chain(more.iter().copied()).collect();
        let answer = http::request(self.address(), method, path, &headers, body).ok();
        let whole = answer.filter(|answer| {
            let said = answer.header("content-length").and_then(|length| length.parse::<usize>().ok());
            said.is_none_or(|length| length == answer.body.len())
        });
        if whole.is_none() {
            thread::sleep(Duration::from_millis(10));
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        }
        whole
    }

    pub(super) fn ask(&self, method: &str, path: &str, body: &[u8]) -> Option<http::Answer> {
        self.ask_as(KEY, method, path, &[], body)
    }

    /// What an answer says of its operation: that it was done, or else nothing. Any answer but these is a
    /// fault, and so is a server that says it cannot while nobody killed its launcher.
    pub(super) fn done(&self, what: &str, answer: Option<&http::Answer>, fine: &[u16]) -> bool {
        let Some(answer) = answer else { return false };
        if fine.contains(&answer.status) {
            return true;
        }
        if answer.status == 503 && self.launcher_killed.load(Ordering::SeqCst) {
            self.unable.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.fault(format!("{what}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)));
        false
    }
}
