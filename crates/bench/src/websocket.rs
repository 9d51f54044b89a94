//! Just enough of WebSocket for the figures: short messages out, messages of any length in.

use crate::{
    Result,
    http::{Client, Wire},
};
use bytes::BytesMut;

/// The server checks that there is a key; the benchmark does not check the response to it.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
/// The longest message whose length fits into its second byte.
const SHORT: usize = 125;
/// No message is longer.
const LONGEST: u64 = 16 << 20;
const LAST: u8 = 0x80;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// A client's end.
pub(crate) struct Socket(Wire);

/// The length of a message, from the second byte and those that follow it.
fn length(second: u8, more: &[u8]) -> u64 {
    match second {
        126 | 127 => more.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        short => u64::from(short),
    }
}

impl Socket {
    pub(crate) async fn open(client: Client, path: &str) -> Result<Self> {
        Ok(Self(client.upgrade(path, UPGRADE).await?))
    }

    /// Sends a few bytes.
    pub(crate) async fn send(&mut self, data: &[u8]) -> Result<()> {
        let size = u8::try_from(data.len()).ok().filter(|size| usize::from(*size) <= SHORT);
        // A client's messages are masked; this mask changes nothing.
        let mut frame = vec![LAST | BINARY, 0x80 | size.ok_or("the message is too long")?, 0, 0, 0, 0];
        frame.extend_from_slice(data);
        Ok(self.0.send(&frame).await?)
    }

    /// The next bytes from the other end. Text messages and pings are skipped.
    pub(crate) async fn next(&mut self) -> Result<BytesMut> {
        loop {
            let head = self.0.take(2).await?;
            let more = match head[1] {
                126 => self.0.take(2).await?,
                127 => self.0.take(8).await?,
                _ => BytesMut::new(),
            };
            let length = length(head[1], &more);
            if length > LONGEST || head[1] & 0x80 != 0 {
                return Err("this is no message of a server".into());
            }
            let data = self.0.take(usize::try_from(length)?).await?;
            match head[0] & 0x0f {
                BINARY => return Ok(data),
                CLOSE => return Err(format!("the server said goodbye: {data:?}").into()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// What a client reads from a server that answers the first message with these bytes.
    fn told(answer: &'static [u8]) -> Result<(Vec<u8>, BytesMut)> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let client = Client::connect(listener.local_addr()?, None).await?;
            let mut server = Wire::new(listener.accept().await?.0)?;
            let serve = async {
                server.head().await?;
                server.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n").await?;
                let sent = server.take(7).await?.to_vec();
                server.send(answer).await?;
                drop(server);
                Ok(sent)
            };
            let ask = async {
                let mut socket = Socket::open(client, "/").await?;
                socket.send(b"x").await?;
                socket.next().await
            };
            tokio::try_join!(serve, ask)
        })
    }

    #[test]
    fn bytes_go_out_masked_and_come_in_between_other_messages() {
        let (sent, read) = told(b"\x89\x00\x81\x02{}\x82\x7e\x00\x03abc").unwrap();
        assert_eq!(sent, [0x82, 0x81, 0, 0, 0, 0, b'x']);
        assert_eq!(&read[..], b"abc");
    }

    #[test]
    fn a_goodbye_and_nonsense_are_errors() {
        assert!(told(b"\x88\x02\x03\xe8").is_err());
        assert!(told(b"\x82\x05abc").is_err());
        assert!(told(b"\x82\x81\0\0\0\0x").is_err());
        assert!(told(b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn lengths_are_read() {
        assert_eq!(length(125, &[]), 125);
        assert_eq!(length(126, &[1, 2]), 258);
        assert_eq!(length(127, &[0, 0, 0, 0, 0, 1, 0, 0]), 65536);
    }
}
