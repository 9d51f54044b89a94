//! Reading parts of an archive that lies as a file.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
};

/// A part of a file, read by offset: several readers of one file do not move each other.
#[derive(Debug)]
pub struct Section<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl<'a> Section<'a> {
    /// The part of `size` bytes from an offset.
    #[must_use]
    pub fn new(file: &'a File, at: u64, size: u64) -> Self {
        Self { file, at, left: size }
    }

    /// All of a file.
    #[must_use]
    pub fn whole(file: &'a File) -> Self {
        Self::new(file, 0, u64::MAX)
    }

    /// How many bytes are not read yet.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }
}

impl Read for Section<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let got = self.file.read_at(&mut buffer[..most], self.at)?;
        self.at += got as u64;
        self.left -= got as u64;
        Ok(got)
    }
}

/// A reader that counts the bytes it has returned.
#[derive(Debug)]
pub struct Counted<R> {
    input: R,
    count: u64,
}

impl<R> Counted<R> {
    /// Counts from zero.
    pub fn new(input: R) -> Self {
        Self { input, count: 0 }
    }

    /// The bytes read so far.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.input.read(buffer)?;
        self.count += got as u64;
        Ok(got)
    }
}
