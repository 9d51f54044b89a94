//! Sparse files: which bytes of a file are in the archive. GNU tar writes them in four ways; each is read into the
//! same map, which is checked before a byte is written.

use super::{
    BLOCK,
    read::{broke_off, wrong},
};
use atoll_types::{Error, Result};
use std::io::{self, Read};
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

/// Most pieces of one file.
const MOST_PIECES: usize = 100_000;

/// Where the bytes of a sparse file belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Map {
    /// The length of the file.
    pub(crate) size: u64,
    /// Where each piece begins, and its length.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl Map {
    /// Refuses a map that is not of this many bytes, in their order.
    pub(crate) fn check(&self, bytes: u64) -> Result<()> {
        let (mut end, mut sum) = (0, 0_u64);
        for (offset, length) in &self.pieces {
            let after = offset.checked_add(*length).filter(|after| *offset >= end && *after <= self.size);
            end = after.ok_or_else(broken)?;
            sum += length;
        }
        if sum == bytes { Ok(()) } else { Err(broken()) }
    }
}

pub(crate) fn refused() -> Error {
    wrong("sparse entries are not supported")
}

fn broken() -> Error {
    wrong("the map of a sparse file is broken")
}

fn pairs(numbers: &[u64]) -> Result<Vec<(u64, u64)>> {
    let (pairs, rest) = numbers.as_chunks::<2>();
    if rest.is_empty() {
        Ok(pairs.iter().map(|[offset, length]| (*offset, *length)).collect())
    } else {
        Err(broken())
    }
}

/// The map in the header of an old GNU archive and in the blocks behind it.
pub(crate) struct Blocks(Map);

impl Blocks {
    pub(crate) fn read(header: &Header, input: &mut impl Read) -> Result<Self> {
        let header = header.as_gnu().ok_or_else(broken)?;
        let size = header.real_size().map_err(|_| broken())?;
        let mut pieces = Vec::new();
        let mut add = |all: &[GnuSparseHeader]| {
            for piece in all.iter().filter(|piece| !piece.is_empty()) {
                let read = |number: io::Result<u64>| number.map_err(|_| broken());
                pieces.push((read(piece.offset())?, read(piece.length())?));
            }
            if pieces.len() > MOST_PIECES { Err(broken()) } else { Ok(()) }
        };
        add(&header.sparse)?;
        let mut more = header.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            input.read_exact(block.as_mut_bytes()).map_err(|e| broke_off(&e))?;
            add(block.sparse())?;
            more = block.is_extended();
        }
        Ok(Self(Map { size, pieces }))
    }

    pub(crate) fn map(self) -> Map {
        self.0
    }
}

/// What extensions say of a sparse file, in the versions 0.0, 0.1 and 1.0.
#[derive(Default)]
pub(crate) struct Records {
    /// The name; the header has one that was made up.
    pub(crate) name: Option<Vec<u8>>,
    size: Option<u64>,
    numbers: Vec<u64>,
    /// The map is at the beginning of the bytes.
    in_body: bool,
}

impl Records {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let number = |text: &[u8]| {
            std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok()).ok_or_else(broken)
        };
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"offset" | b"numbytes" => self.numbers.push(number(value)?),
            b"map" => self.numbers = value.split(|b| *b == b',').map(number).collect::<Result<_>>()?,
            b"major" => self.in_body = number(value)? == 1,
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn is_sparse(&self) -> bool {
        self.size.is_some()
    }

    /// The map, of which a part may be read from the entry's bytes.
    pub(crate) fn map(self, body: &mut impl Read) -> Result<Map> {
        let size = self.size.ok_or_else(broken)?;
        let numbers =
            if self.in_body { Lines { body, block: [0; BLOCK], at: BLOCK }.all()? } else { self.numbers };
        Ok(Map { size, pieces: pairs(&numbers)? })
    }
}

/// Numbers in lines, in whole blocks.
struct Lines<'a, R: Read> {
    body: &'a mut R,
    block: [u8; BLOCK],
    at: usize,
}

impl<R: Read> Lines<'_, R> {
    fn all(&mut self) -> Result<Vec<u64>> {
        let count =
            usize::try_from(self.number()?).ok().filter(|count| *count <= MOST_PIECES).ok_or_else(broken)?;
        (0..2 * count).map(|_| self.number()).collect()
    }

    fn number(&mut self) -> Result<u64> {
        let mut number: u64 = 0;
        for digits in 0..21 {
            if self.at == BLOCK {
                self.body.read_exact(&mut self.block).map_err(|e| broke_off(&e))?;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'0'..=b'9' => {
                    let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(byte - b'0')));
                    number = next.ok_or_else(broken)?;
                }
                b'\n' if digits > 0 => return Ok(number),
                _ => return Err(broken()),
            }
        }
        Err(broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_in_order_within_the_file_and_of_all_bytes() {
        let map = |size, pieces: &[(u64, u64)]| Map { size, pieces: pieces.to_vec() };
        assert!(map(10, &[(0, 2), (5, 5), (10, 0)]).check(7).is_ok());
        for (bad, bytes) in [
            (map(10, &[(0, 2)]), 3),
            (map(10, &[(5, 2), (0, 2)]), 4),
            (map(10, &[(0, 6), (5, 2)]), 8),
            (map(10, &[(9, 2)]), 2),
            (map(10, &[(u64::MAX, 2)]), 2),
        ] {
            assert!(bad.check(bytes).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_map_in_the_bytes_ends_at_its_block() {
        let mut body = b"2\n0\n3\n512\n4\n".to_vec();
        body.resize(BLOCK, 0);
        body.extend_from_slice(b"abcdefg");
        let mut records = Records::default();
        for (key, value) in [("major", "1"), ("minor", "0"), ("realsize", "600"), ("name", "f")] {
            records.add(key.as_bytes(), value.as_bytes()).unwrap();
        }
        let mut rest = body.as_slice();
        let map = records.map(&mut rest).unwrap();
        assert_eq!((map.size, map.pieces, rest), (600, vec![(0, 3), (512, 4)], &b"abcdefg"[..]));
    }
}
