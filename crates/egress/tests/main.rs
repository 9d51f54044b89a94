//! The proxy from outside: real sockets on loopback, a real TLS server, a real name server that can change its
//! mind. What lives on loopback is reached only because an entry names it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod dialer;
mod hostile;
mod http;
mod inspect;
mod limits;
mod live;
mod names;
mod network;
mod redirected;
mod socks;
mod support;
mod tunnel;
