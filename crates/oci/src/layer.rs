//! A layer on its way into the blobs: hashed as it comes, compressed where that is wanted, hashed again.

use crate::{Blobs, Descriptor, Digest, Hasher, blobs::failed, media};
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::{Stream, StreamExt};
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    pin::pin,
};
use tokio::sync::mpsc;

/// A layer among the blobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The blob.
    pub descriptor: Descriptor,
    /// The digest of its uncompressed bytes.
    pub diff_id: Digest,
}

/// Bytes on their way to a file, with their digest.
struct Hashed {
    file: File,
    hasher: Hasher,
    count: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

enum Encoder {
    Plain(Hashed),
    Gzip(GzEncoder<Hashed>),
}

impl Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    fn finish(self) -> io::Result<Hashed> {
        match self {
            Self::Plain(file) => Ok(file),
            Self::Gzip(encoder) => encoder.finish(),
        }
    }
}

/// What the blob and its uncompressed bytes are.
type Written = (Digest, u64, Digest);

fn write(path: &Path, gzip: bool, most: u64, pieces: &mut mpsc::Receiver<Bytes>) -> Result<Written> {
    let io = |e: io::Error| failed(&e);
    let file = Hashed { file: File::create_new(path).map_err(io)?, hasher: Hasher::default(), count: 0 };
    let mut encoder = match gzip {
        true => Encoder::Gzip(GzEncoder::new(file, Compression::default())),
        false => Encoder::Plain(file),
    };
    let (mut plain, mut count) = (Hasher::default(), 0);
    while let Some(piece) = pieces.blocking_recv() {
        count += piece.len() as u64;
        if count > most {
            return Err(Error::new(ErrorCode::TooLarge, format!("the layer has more than {most} bytes")));
        }
        plain.update(&piece);
        encoder.write(&piece).map_err(io)?;
    }
    let Hashed { file, hasher, count } = encoder.finish().map_err(io)?;
    file.sync_all().map_err(io)?;
    Ok((hasher.finish(), count, plain.finish()))
}

impl Blobs {
    /// Keeps the uncompressed archive of a layer as a blob. One that breaks off, or is larger than `most`, leaves none.
    pub async fn add_layer(
        &self,
        layer: impl Stream<Item = Result<Bytes>> + Send,
        gzip: bool,
        most: u64,
    ) -> Result<Layer> {
        let (sender, mut receiver) = mpsc::channel(8);
        let path = self.new_file();
        let discard = RemoveOnDrop(&path);
        let own = path.clone();
        let writer = tokio::task::spawn_blocking(move || write(&own, gzip, most, &mut receiver));
        let mut layer = pin!(layer);
        let mut broken = None;
        while let Some(piece) = layer.next().await {
            match piece {
                Ok(piece) => {
                    // The writer says why it ended.
                    if sender.send(piece).await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        drop(sender);
        let written = writer.await.map_err(|e| Error::internal(e.to_string()))?;
        if let Some(error) = broken {
            return Err(error);
        }
        let (digest, size, diff_id) = written?;
        tokio::fs::rename(&path, self.path(&digest)).await.map_err(|e| failed(&e))?;
        drop(discard);
        let kind = if gzip { media::LAYER_GZIP } else { media::LAYER };
        Ok(Layer { descriptor: Descriptor::new(kind, digest, size), diff_id })
    }
}

/// A file that did not become a blob is removed.
struct RemoveOnDrop<'a>(&'a Path);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}
