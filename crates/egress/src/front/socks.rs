//! SOCKS5: names and addresses, connections only. No authentication: the socket identifies the sandbox.

use super::tunnel::{self, TunnelReply};
use crate::{Host, Via, http::Client, session::Caller};
use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};
use tokio::{io::AsyncWriteExt, time::timeout};

pub(crate) const VERSION: u8 = 5;
const TIME: Duration = Duration::from_secs(10);

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    command: u8,
    host: String,
    port: u16,
}

/// Why bytes are not SOCKS5, with the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bad(u8);

const GENERAL: Bad = Bad(1);
const COMMAND: u8 = 7;
const ADDRESS_TYPE: Bad = Bad(8);

/// The client's first message: whether it accepts "no authentication". None: more bytes are needed.
fn greeting(bytes: &[u8]) -> Result<Option<(bool, usize)>, Bad> {
    match bytes {
        [] | [VERSION] => Ok(None),
        [VERSION, count, rest @ ..] => {
            let count = usize::from(*count);
            Ok(rest.get(..count).map(|methods| (methods.contains(&0), 2 + count)))
        }
        _ => Err(GENERAL),
    }
}

fn request(bytes: &[u8]) -> Result<Option<(Wanted, usize)>, Bad> {
    let (command, kind, rest) = match bytes {
        [VERSION, command, 0, kind, rest @ ..] => (*command, *kind, rest),
        _ if bytes.len() < 4 && bytes.iter().zip([VERSION]).all(|(a, b)| *a == b) => return Ok(None),
        _ => return Err(GENERAL),
    };
    let (host, port) = match kind {
        1 => match rest.first_chunk::<4>() {
            Some(address) => (Ipv4Addr::from(*address).to_string(), rest.get(4..)),
            None => return Ok(None),
        },
        4 => match rest.first_chunk::<16>() {
            Some(address) => (Ipv6Addr::from(*address).to_string(), rest.get(16..)),
            None => return Ok(None),
        },
        3 => match rest.split_first() {
            Some((0, _)) => return Err(GENERAL),
            Some((length, rest)) => match rest.get(..usize::from(*length)) {
                Some(name) => {
                    let name = std::str::from_utf8(name).map_err(|_| GENERAL)?;
                    (name.to_owned(), rest.get(usize::from(*length)..))
                }
                None => return Ok(None),
            },
            None => return Ok(None),
        },
        _ => return Err(ADDRESS_TYPE),
    };
    let Some([high, low, more @ ..]) = port else { return Ok(None) };
    let port = u16::from_be_bytes([*high, *low]);
    Ok(Some((Wanted { command, host, port }, bytes.len() - more.len())))
}

/// A reply: the code, and an unspecified address.
pub(super) fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// Reads until a message is complete.
async fn read<T>(
    client: &mut Client,
    parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, Bad>,
) -> Option<Result<T, Bad>> {
    loop {
        match parse(client.reader.data()) {
            Ok(Some((message, length))) => {
                client.reader.consume(length);
                return Some(Ok(message));
            }
            Ok(None) => {}
            Err(bad) => return Some(Err(bad)),
        }
        if !matches!(client.reader.fill(1024).await, Ok(read) if read > 0) {
            return None;
        }
    }
}

/// Serves one connection.
pub(super) async fn serve(caller: &Arc<Caller>, mut client: Client) {
    let wanted = match timeout(TIME, negotiate(caller, &mut client)).await {
        Ok(Some(wanted)) => wanted,
        _ => return,
    };
    let host = match Host::parse(&wanted.host) {
        Ok(host) if wanted.port != 0 && wanted.command == 1 => host,
        parsed => {
            let code = if wanted.command == 1 { GENERAL.0 } else { COMMAND };
            let rule = if parsed.is_ok() { "malformed: command" } else { "malformed: host" };
            caller.malformed(Via::Socks, &wanted.host, rule);
            let _ = client.writer.write_all(&reply(code)).await;
            return crate::http::linger(client).await;
        }
    };
    tunnel::open(caller, client, (Via::Socks, host, wanted.port), TunnelReply::Socks).await;
}

async fn negotiate(caller: &Arc<Caller>, client: &mut Client) -> Option<Wanted> {
    match read(client, greeting).await? {
        Ok(true) => client.writer.write_all(&[VERSION, 0]).await.ok()?,
        Ok(false) | Err(_) => {
            caller.malformed(Via::Socks, "", "malformed: method");
            client.writer.write_all(&[VERSION, 0xff]).await.ok()?;
            return None;
        }
    }
    match read(client, request).await? {
        Ok(wanted) => Some(wanted),
        Err(Bad(code)) => {
            caller.malformed(Via::Socks, "", "malformed");
            client.writer.write_all(&reply(code)).await.ok()?;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(host: &str, port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, u8::try_from(host.len()).unwrap()];
        bytes.extend_from_slice(host.as_bytes());
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn messages_are_read_whole_or_not_at_all() {
        assert_eq!(greeting(&[5, 2, 0, 2, 9]), Ok(Some((true, 4))));
        assert_eq!(greeting(&[5, 1, 2]), Ok(Some((false, 3))));
        assert_eq!(greeting(&[5, 0]), Ok(Some((false, 2))));
        assert_eq!(greeting(&[4, 1]), Err(GENERAL));
        let bytes = name("a.example", 443);
        for end in 0..bytes.len() {
            assert_eq!(request(&bytes[..end]), Ok(None), "{end}");
        }
        let wanted = Wanted { command: 1, host: "a.example".to_owned(), port: 443 };
        assert_eq!(request(&[&bytes[..], b"rest"].concat()), Ok(Some((wanted, bytes.len()))));
    }

    #[test]
    fn addresses_are_addresses_in_every_form() {
        let v4 = request(&[5, 1, 0, 1, 127, 0, 0, 1, 0, 80]).unwrap().unwrap().0;
        let mapped = [&[5, 1, 0, 4][..], &[0; 10], &[0xff, 0xff, 127, 0, 0, 1, 0, 80]].concat();
        let mapped = request(&mapped).unwrap().unwrap().0;
        let decimal = request(&name("2130706433", 80)).unwrap().unwrap().0;
        for wanted in [v4, mapped, decimal] {
            assert_eq!(Host::parse(&wanted.host), Ok(Host::from(Ipv4Addr::LOCALHOST)), "{wanted:?}");
        }
    }

    #[test]
    fn the_rest_is_refused() {
        assert_eq!(request(&[5, 1, 0, 2, 0]), Err(ADDRESS_TYPE));
        assert_eq!(request(&[5, 1, 1, 1, 0]), Err(GENERAL));
        assert_eq!(request(&[4, 1, 0, 1, 0]), Err(GENERAL));
        assert_eq!(request(&[5, 1, 0, 3, 0, 0, 80]), Err(GENERAL));
        assert_eq!(request(&[5, 1, 0, 3, 2, 0xff, 0xfe, 0, 80]), Err(GENERAL));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(crate::fuzz_cases()))]
        #[test]
        fn arbitrary_bytes_never_panic_and_never_read_past_their_end(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = greeting(&bytes);
            if let Ok(Some((_, length))) = request(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            let with = [&[5, 1, 0][..], &bytes].concat();
            if let Ok(Some((wanted, length))) = request(&with) {
                prop_assert!(length <= with.len());
                // The same bytes alone parse to the same.
                prop_assert_eq!(request(&with[..length]), Ok(Some((wanted, length))));
            }
        }
    }
}
