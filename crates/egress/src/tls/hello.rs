//! The server name that a client sends in its ClientHello. Only that is read; the bytes are passed on as they
//! came.

use rustls::server::Acceptor;

/// The longest first message.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum First {
    /// More bytes are needed.
    More,
    /// Not TLS.
    Other,
    /// TLS, for this name if it has one.
    Tls(Option<String>),
    /// TLS, but not a ClientHello.
    Bad,
}

#[derive(Default)]
pub(crate) struct Hello {
    acceptor: Acceptor,
    fed: usize,
    first: Option<u8>,
}

impl Hello {
    /// Reads the bytes that follow those of before.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> First {
        if self.first.is_none() {
            self.first = bytes.first().copied();
        }
        match self.first {
            None => return First::More,
            Some(0x16) => {}
            // Other TLS records cannot come first; a lenient server would read on.
            Some(0x14 | 0x15 | 0x17 | 0x18) => return First::Bad,
            Some(_) => return First::Other,
        }
        self.fed += bytes.len();
        while !bytes.is_empty() {
            if !matches!(self.acceptor.read_tls(&mut bytes), Ok(read) if read > 0) {
                return First::Bad;
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    return First::Tls(accepted.client_hello().server_name().map(str::to_owned));
                }
                Err(_) => return First::Bad,
            }
        }
        if self.fed > MOST_BYTES { First::Bad } else { First::More }
    }
}

/// The alert that says: no such name here.
pub(crate) const UNRECOGNIZED_NAME: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::tls;
    use proptest::prelude::*;
    use rustls::{ClientConnection, pki_types::ServerName};
    use std::sync::OnceLock;

    pub(crate) fn hello(name: &str) -> Vec<u8> {
        static CONFIG: OnceLock<std::sync::Arc<rustls::ClientConfig>> = OnceLock::new();
        let config = CONFIG.get_or_init(|| tls::upstream(&[]).unwrap());
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut connection = ClientConnection::new(config.clone(), name).unwrap();
        let mut out = Vec::new();
        connection.write_tls(&mut out).unwrap();
        out
    }

    fn read(bytes: &[u8]) -> First {
        Hello::default().feed(bytes)
    }

    #[test]
    fn the_name_is_read_however_it_is_cut() {
        let bytes = hello("a.example");
        let name = First::Tls(Some("a.example".to_owned()));
        assert_eq!(read(&bytes), name);
        let mut slow = Hello::default();
        let (last, rest) = bytes.split_last().unwrap();
        for byte in rest {
            assert_eq!(slow.feed(&[*byte]), First::More);
        }
        assert_eq!(slow.feed(&[*last]), name);
    }

    #[test]
    fn a_message_over_several_records_is_one() {
        let bytes = hello("a.example");
        let mut records = Vec::new();
        for part in bytes[5..].chunks(7) {
            records.extend_from_slice(&[0x16, 3, 1, 0, u8::try_from(part.len()).unwrap()]);
            records.extend_from_slice(part);
        }
        assert_eq!(read(&records), First::Tls(Some("a.example".to_owned())));
    }

    #[test]
    fn an_address_is_no_name() {
        assert_eq!(read(&hello("192.0.2.1")), First::Tls(None));
    }

    #[test]
    fn the_rest_is_told_apart() {
        assert_eq!(read(b""), First::More);
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), First::Other);
        assert_eq!(read(b"SSH-2.0-x\r\n"), First::Other);
        assert_eq!(read(&[0x15, 3, 1, 0, 2, 1, 0]), First::Bad);
        assert_eq!(read(&[0x14, 3, 1, 0, 1, 1]), First::Bad);
        assert_eq!(read(&[0x16, 3, 1, 0xff, 0xff, 0]), First::Bad);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::fuzz_cases()))]
        #[test]
        fn arbitrary_bytes_are_some_kind(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut hello = Hello::default();
            for part in bytes.chunks(17) {
                if hello.feed(part) != First::More { break }
            }
            read(&[&[0x16, 3, 1][..], &bytes].concat());
        }

        #[test]
        fn a_changed_message_still_has_at_most_one_name(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = hello("a.example");
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let First::Tls(Some(name)) = read(&bytes) {
                // The name that was read is somewhere in the bytes that are passed on.
                prop_assert!(bytes.windows(name.len()).any(|w| w.eq_ignore_ascii_case(name.as_bytes())));
            }
        }
    }
}
