//! What sandboxes fetch from: a server on loopback that reads a number and answers with as many bytes, and a
//! DNS server that knows one name, which is this machine. They end with the program.

use crate::Result;
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

/// The one name that there is.
pub(crate) const NAME: &str = "source.test";
/// Idle connections need no more.
const STACK: usize = 128 << 10;

/// Their addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub(crate) bytes: SocketAddr,
    pub(crate) names: SocketAddr,
}

impl Source {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let source = Self { bytes: listener.local_addr()?, names: socket.local_addr()? };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serve = move || drop(give(stream));
                // The client sees a closed connection and reports it.
                let _ = thread::Builder::new().stack_size(STACK).spawn(serve);
            }
        });
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                if let Some(answer) = answer(&question[..length]) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Ok(source)
    }
}

fn give(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let mut left: usize = line.trim().parse().unwrap_or(0);
    let piece = vec![b'x'; left.min(256 << 10)];
    while left > 0 {
        let some = left.min(piece.len());
        stream.write_all(&piece[..some])?;
        left -= some;
    }
    Ok(())
}

/// Every query resolves to this machine, in IPv4, for a minute.
fn answer(question: &[u8]) -> Option<Vec<u8>> {
    let end = 12 + question.get(12..)?.iter().position(|byte| *byte == 0)? + 5;
    let (asked, kind) = (question.get(12..end)?, question.get(end - 4..end - 2)?);
    let count = u8::from(kind == [0, 1]);
    let mut answer = [&question[..2], &[0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0], asked].concat();
    if count == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn as_many_bytes_come_as_were_asked_for() {
        let source = Source::start().unwrap();
        for size in [0, 1, 300_000] {
            let mut stream = TcpStream::connect(source.bytes).unwrap();
            stream.write_all(format!("{size}\n").as_bytes()).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), size);
        }
    }

    #[test]
    fn names_have_an_address_and_nonsense_has_no_answer() {
        let question = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x06source\x04test\0\0\x01\0\x01";
        assert!(answer(question).unwrap().ends_with(&[127, 0, 0, 1]));
        assert_eq!(answer(&question[..14]), None);
        assert_eq!(answer(b""), None);
    }
}
