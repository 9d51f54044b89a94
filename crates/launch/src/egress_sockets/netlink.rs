//! Netlink messages by hand: a few fixed ones, sent in one call and answered before it returns. The maintained
//! crates have no nftables, and the others need a C library or the `nft` program.

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with},
};
use std::io;

const REQUEST: u16 = 1;
const ACK: u16 = 4;
/// Only where there is none yet.
const CREATE_NEW: u16 = 0x200 | 0x400;
/// After those that are there.
const APPEND: u16 = 0x800;
/// The type of a reply that carries a result code.
const ERROR: u16 = 2;
const HEADER: usize = 16;
/// An attribute that holds attributes.
const NESTED: u16 = 0x8000;

/// A socket of one of the kernel's parts, routing where none is named, in the network namespace that
/// this process is in now.
pub(super) fn open(part: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, part)?)
}

/// Messages on their way.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    count: u32,
}

impl Batch {
    /// Adds a message that makes something new: its kind, its fixed part, its attributes.
    pub(super) fn make(self, kind: u16, fixed: &[u8], attributes: &[u8]) -> Self {
        self.add(kind, REQUEST | ACK | CREATE_NEW, fixed, attributes)
    }

    /// The same for an ordered object: it is appended to those that exist.
    pub(super) fn append(self, kind: u16, fixed: &[u8], attributes: &[u8]) -> Self {
        self.add(kind, REQUEST | ACK | CREATE_NEW | APPEND, fixed, attributes)
    }

    /// Adds a message that only marks a place.
    pub(super) fn mark(self, kind: u16, fixed: &[u8]) -> Self {
        self.add(kind, REQUEST, fixed, &[])
    }

    fn add(mut self, kind: u16, flags: u16, fixed: &[u8], attributes: &[u8]) -> Self {
        self.count += u32::from(flags & ACK != 0);
        let length = HEADER + fixed.len() + attributes.len();
        self.bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        // No number and no sender: nothing is matched by them, since every answer must be good.
        self.bytes.extend([0; 8]);
        self.bytes.extend(fixed);
        self.bytes.extend(attributes);
        self
    }

    /// Sends them all. The kernel has answered when the call returns; the first error is the result.
    pub(super) fn send(self, socket: &OwnedFd) -> io::Result<()> {
        send(socket, &self.bytes, SendFlags::empty())?;
        let mut good = 0;
        let mut buffer = [0; 8192];
        while good < self.count {
            let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
            good += answers(&buffer[..length])?;
        }
        Ok(())
    }
}

/// How many of these messages the kernel acknowledged.
fn answers(mut bytes: &[u8]) -> io::Result<u32> {
    let mut good = 0;
    while let Some((header, _)) = bytes.split_first_chunk::<HEADER>() {
        let [a, b, c, d, kind_low, kind_high, ..] = *header;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        let body = bytes.get(HEADER..length).ok_or(io::ErrorKind::InvalidData)?;
        if u16::from_ne_bytes([kind_low, kind_high]) == ERROR {
            let code = body.first_chunk().map(|code| i32::from_ne_bytes(*code));
            match code.ok_or(io::ErrorKind::InvalidData)? {
                0 => good += 1,
                code => return Err(io::Error::from_raw_os_error(-code)),
            }
        }
        bytes = bytes.get(aligned(length)..).unwrap_or_default();
    }
    Ok(good)
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// An attribute.
pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = Vec::with_capacity(aligned(length));
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(length), 0);
    bytes
}

/// A number, as netfilter writes them.
pub(super) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

/// A name, which ends with a zero.
pub(super) fn name(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// An attribute that holds others.
pub(super) fn nest(kind: u16, inside: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &inside.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: i32) -> Vec<u8> {
        let body = [&code.to_ne_bytes()[..], &[0; HEADER]].concat();
        Batch::default().add(ERROR, 0, &body, &[]).bytes
    }

    #[test]
    fn every_message_must_be_done() {
        assert_eq!(answers(&[answer(0), answer(0)].concat()).unwrap(), 2);
        assert_eq!(answers(&[]).unwrap(), 0);
        let refused = answers(&[answer(0), answer(-17)].concat()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        let whole = answer(0);
        for length in HEADER..whole.len() {
            assert!(answers(&whole[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn attributes_are_padded_and_their_length_is_not() {
        assert_eq!(attribute(7, b"abcde"), [9, 0, 7, 0, b'a', b'b', b'c', b'd', b'e', 0, 0, 0]);
        assert_eq!(name(1, "ab"), [7, 0, 1, 0, b'a', b'b', 0, 0]);
        assert_eq!(nest(4, &[number(1, 3)]), [12, 0, 4, 0x80, 8, 0, 1, 0, 0, 0, 0, 3]);
    }
}
