//! A layer's bytes on their way: counted and hashed as they come, decompressed, then counted and hashed again against the
//! limits of bombs.

use crate::{Compression, ImageLimits, RATIO_FREE, archive::read::wrong};
use atoll_oci::{Digest, Hasher};
use atoll_types::{Error, ErrorCode};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};
use std::io::{self, BufRead, BufReader, Read};

const BUFFER: usize = 128 << 10;
/// The largest window of Zstandard: what `zstd -19` makes, and its `--ultra -22` too.
const LARGEST_WINDOW: u64 = 128 << 20;

/// An error of ours, through a reader.
pub(super) fn carried(error: Error) -> io::Error {
    io::Error::other(error)
}

/// Bytes as they come.
pub(super) struct Raw<R> {
    inner: R,
    /// Read to see what they are, and to be read again.
    front: Vec<u8>,
    hasher: Hasher,
    count: u64,
}

impl<R: Read> Raw<R> {
    fn new(inner: R) -> Self {
        Self { inner, front: Vec::new(), hasher: Hasher::default(), count: 0 }
    }

    /// The first bytes, six of them where there are so many.
    fn peek(&mut self) -> io::Result<&[u8]> {
        let mut front = Vec::new();
        self.inner.by_ref().take(6).read_to_end(&mut front)?;
        self.front = front;
        Ok(&self.front)
    }
}

impl<R: Read> Read for Raw<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = match self.front.is_empty() {
            true => self.inner.read(buffer)?,
            false => {
                let got = self.front.as_slice().read(buffer)?;
                self.front.drain(..got);
                got
            }
        };
        self.hasher.update(&buffer[..got]);
        self.count += got as u64;
        Ok(got)
    }
}

/// What the first bytes of a layer or an archive say.
pub(super) fn detect(front: &[u8]) -> Result<Compression, Error> {
    let unknown = |name| {
        let message = format!("{name} is not supported; use gzip, zstd or an archive that is not compressed");
        Err(Error::invalid("body", message))
    };
    match front {
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => unknown("xz"),
        [b'B', b'Z', b'h', ..] => unknown("bzip2"),
        _ => Ok(Compression::None),
    }
}

/// Frames of Zstandard, one after another.
struct Zstd<R> {
    source: R,
    decoder: Box<FrameDecoder>,
    in_frame: bool,
}

impl<R: BufRead> Zstd<R> {
    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut self.source.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            self.in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(io::Error::other)?;
            }
            let got = self.decoder.read(buffer)?;
            if got > 0 || buffer.is_empty() {
                return Ok(got);
            }
            let (said, is) = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if said.is_some() && said != is {
                return Err(io::Error::other("a checksum is wrong"));
            }
            self.in_frame = false;
        }
    }
}

enum Decoder<R> {
    Plain(R),
    Gzip(MultiGzDecoder<R>),
    Zstd(Zstd<R>),
}

impl<R: BufRead> Decoder<R> {
    fn source(&self) -> &R {
        match self {
            Self::Plain(source) => source,
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => &decoder.source,
        }
    }

    fn into_source(self) -> R {
        match self {
            Self::Plain(source) => source,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.source,
        }
    }
}

impl<R: BufRead> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (name, got) = match self {
            Self::Plain(source) => return source.read(buffer),
            Self::Gzip(decoder) => ("gzip", decoder.read(buffer)),
            Self::Zstd(decoder) => ("zstd", decoder.read(buffer)),
        };
        got.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
                carried(wrong(format!("the {name} data is broken: {error}")))
            }
            _ => error,
        })
    }
}

/// An uncompressed layer.
pub(super) struct Decoded<R: Read> {
    decoder: Decoder<BufReader<Raw<R>>>,
    pub(super) compression: Compression,
    limits: ImageLimits,
    /// Of what is not compressed, the bytes as they come say it.
    hasher: Option<Hasher>,
    pub(super) count: u64,
}

impl<R: Read> Decoded<R> {
    pub(super) fn new(input: R, compression: Compression, limits: ImageLimits) -> io::Result<Self> {
        let mut raw = Raw::new(input);
        let compression = match compression {
            Compression::Detect => detect(raw.peek()?).map_err(carried)?,
            known => known,
        };
        let source = BufReader::with_capacity(BUFFER, raw);
        let decoder = match compression {
            Compression::Gzip => Decoder::Gzip(MultiGzDecoder::new(source)),
            Compression::Zstd => {
                let mut decoder = Box::new(FrameDecoder::new());
                decoder.set_max_window_size(LARGEST_WINDOW);
                Decoder::Zstd(Zstd { source, decoder, in_frame: false })
            }
            Compression::None | Compression::Detect => Decoder::Plain(source),
        };
        let hasher = (!matches!(decoder, Decoder::Plain(_))).then(Hasher::default);
        Ok(Self { decoder, compression, limits, hasher, count: 0 })
    }

    /// Reads what is left, and returns the digests: of the bytes as they came, and of the uncompressed ones.
    pub(super) fn finish(mut self) -> io::Result<(Digest, Digest)> {
        io::copy(&mut self, &mut io::sink())?;
        let mut source = self.decoder.into_source();
        io::copy(&mut source, &mut io::sink())?;
        let digest = source.into_inner().hasher.finish();
        let diff_id = self.hasher.map_or_else(|| digest.clone(), Hasher::finish);
        Ok((digest, diff_id))
    }

    fn check(&self) -> Result<(), Error> {
        let ImageLimits { bytes, ratio, .. } = self.limits;
        if self.count > bytes {
            return Err(Error::new(
                ErrorCode::TooLarge,
                format!("the layers have more than {bytes} bytes uncompressed"),
            ));
        }
        let compressed = self.decoder.source().get_ref().count.max(1);
        if self.count > RATIO_FREE && self.count / compressed > ratio {
            let message = format!("a layer becomes more than {ratio} times larger than its compressed bytes");
            return Err(Error::new(ErrorCode::TooLarge, message));
        }
        Ok(())
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.decoder.read(buffer)?;
        self.count += got as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..got]);
        }
        self.check().map_err(carried)?;
        Ok(got)
    }
}
