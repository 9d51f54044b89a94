//! Message bodies: their length, and passing them on. Whatever the incoming framing, the outgoing one is written
//! anew: chunk extensions and trailers end here, and two readers cannot disagree on where a message ends.

use super::io::Buffered;
use crate::session::{Account, Direction, Stop};
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Where a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    None,
    Length(u64),
    Chunked,
    /// With the connection: answers only.
    Close,
}

/// How it is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Raw,
    Chunked,
}

const LONGEST_LINE: usize = 512;
const MOST_TRAILERS: usize = 8 * 1024;

/// Why a message was not passed on completely.
#[derive(Debug)]
pub(crate) enum Cut {
    /// Its sender stopped, or sent malformed bytes.
    From(io::Error),
    /// Its receiver does not take it.
    To(io::Error),
    /// A rule or limit ends it.
    Stop(Stop),
}

fn odd(what: &str) -> Cut {
    Cut::From(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Passes a message on, with or without an account that its bytes count towards.
pub(crate) async fn relay(
    from: &mut Buffered,
    framing: Framing,
    to: &mut (impl AsyncWrite + Unpin + ?Sized),
    coding: Coding,
    pays: Option<(&Account, Direction)>,
) -> Result<(), Cut> {
    let mut relay = Relay { from, to, coding, pays };
    match framing {
        Framing::None => return Ok(()),
        Framing::Length(length) => relay.bytes(Some(length)).await?,
        Framing::Close => relay.bytes(None).await?,
        Framing::Chunked => relay.chunks().await?,
    }
    if coding == Coding::Chunked {
        relay.write(b"0\r\n\r\n").await?;
    }
    relay.to.flush().await.map_err(Cut::To)
}

struct Relay<'a, W: ?Sized> {
    from: &'a mut Buffered,
    to: &'a mut W,
    coding: Coding,
    pays: Option<(&'a Account, Direction)>,
}

impl<W: AsyncWrite + Unpin + ?Sized> Relay<'_, W> {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        self.to.write_all(bytes).await.map_err(Cut::To)
    }

    fn chunk(&self) -> usize {
        self.pays.map_or(64 * 1024, |(account, _)| account.chunk())
    }

    async fn pay(&self, bytes: usize) -> Result<(), Cut> {
        match self.pays {
            Some((account, way)) => account.spend(way, bytes).await.map_err(Cut::Stop),
            None => Ok(()),
        }
    }

    async fn fill(&mut self) -> Result<usize, Cut> {
        self.from.fill(self.chunk()).await.map_err(Cut::From)
    }

    /// So many bytes, or all until the end.
    async fn bytes(&mut self, mut left: Option<u64>) -> Result<(), Cut> {
        while left != Some(0) {
            if self.from.data().is_empty() && self.fill().await? == 0 {
                return if left.is_none() {
                    Ok(())
                } else {
                    Err(Cut::From(io::ErrorKind::UnexpectedEof.into()))
                };
            }
            let most = left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
            let take = self.from.data().len().min(most).min(self.chunk());
            self.pay(take).await?;
            let data = self.from.data().get(..take).unwrap_or_default();
            if self.coding == Coding::Chunked {
                let mut framed = format!("{take:x}\r\n").into_bytes();
                framed.extend_from_slice(data);
                framed.extend_from_slice(b"\r\n");
                self.to.write_all(&framed).await.map_err(Cut::To)?;
            } else {
                self.to.write_all(data).await.map_err(Cut::To)?;
            }
            self.from.consume(take);
            left = left.map(|left| left - take as u64);
        }
        Ok(())
    }

    async fn chunks(&mut self) -> Result<(), Cut> {
        loop {
            let line = self.line(LONGEST_LINE).await?;
            match chunk_size(&line).ok_or_else(|| odd("a chunk's size cannot be read"))? {
                0 => break,
                size => self.bytes(Some(size)).await?,
            }
            if !self.line(2).await?.is_empty() {
                return Err(odd("a chunk is longer than it says"));
            }
        }
        let mut left = MOST_TRAILERS;
        loop {
            // Trailers are hop-by-hop and are not passed on.
            match self.line(left).await? {
                line if line.is_empty() => return Ok(()),
                line => left = left.saturating_sub(line.len() + 2),
            }
        }
    }

    /// One line without its end, which is CR LF and nothing else.
    async fn line(&mut self, longest: usize) -> Result<Vec<u8>, Cut> {
        loop {
            let data = self.from.data();
            if let Some(at) = data.iter().position(|b| *b == b'\n') {
                let line = data.get(..at).unwrap_or_default();
                let line = line.strip_suffix(b"\r").ok_or_else(|| odd("a line ends without CR"))?.to_vec();
                if line.len() + 2 > longest.max(2) || line.contains(&b'\r') {
                    return Err(odd("a line of a chunked message is too long or odd"));
                }
                self.from.consume(at + 1);
                self.pay(at + 1).await?;
                return Ok(line);
            }
            if data.len() >= longest.max(2) {
                return Err(odd("a line of a chunked message is too long"));
            }
            if self.fill().await? == 0 {
                return Err(Cut::From(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

/// The size in a chunk's line. Extensions are allowed, and not passed on.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|b| *b == b';').unwrap_or(line.len());
    let (size, extension) = line.split_at(end);
    let fits = (1..=15).contains(&size.len()) && size.iter().all(u8::is_ascii_hexdigit);
    let plain = extension.iter().all(|b| b.is_ascii_graphic() || matches!(b, b' ' | b'\t'));
    if !fits || !plain {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_hexadecimal_and_nothing_else() {
        assert_eq!(chunk_size(b"1f"), Some(31));
        assert_eq!(chunk_size(b"0;a=b"), Some(0));
        assert_eq!(chunk_size(b"FFFFFFFFFFFFFFF"), Some(0xfff_ffff_ffff_ffff));
        for odd in ["", "+1", "-1", "0x1", " 1", "1 ", "1g", "1_0", ";a", "10000000000000000", "1;\u{1}"] {
            assert_eq!(chunk_size(odd.as_bytes()), None, "{odd:?}");
        }
    }
}
