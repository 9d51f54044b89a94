//! HTTP/1.1 as the proxy speaks it: strict in what it reads, plain in what it passes on.

mod body;
mod client;
mod connection;
mod exchange;
mod head;
mod io;
mod reply;
mod target;
mod tcp;

pub(crate) use body::{Coding, Cut, Framing, relay};
pub(crate) use client::{Client, Unread, linger};
pub(crate) use connection::{Badge, HttpConnection};
pub(crate) use exchange::pump;
pub(crate) use head::{Malformed, RequestHead, ResponseHead, response};
pub(crate) use io::{Buffered, Sink};
pub(crate) use reply::ProxyReply;
pub(crate) use target::{Front, authority};
pub(crate) use tcp::Tcp;

#[cfg(test)]
mod fuzz;
