//! A large file into a container and out again, compared with the same bytes written and read on the same
//! file system without it. Neither side waits for the disk: the guest does not, so the copy does not.

use super::Bench;
use crate::{
    Result,
    pace::{Pace, timed, timed_here},
    report::{Baseline, Row},
};
use atoll_provider::{Guest, WriteOptions};
use bytes::Bytes;
use futures_util::stream;
use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
};

const PIECE: usize = 64 << 10;
const INSIDE: &str = "/workspace/large";

pub(super) async fn take(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let size: u64 = bench.scale.pick(16 << 20, 256 << 20, 256 << 20);
    let container = bench.container().await?;
    let folder = bench.instance.scratch(container.id())?;
    let pace = Pace::tight(bench.scale.pick(1, 5, 20));
    let guest = container.guest();
    let mut series = pace.take(async || round(guest, &folder, size).await).await?.into_iter();
    bench.destroy(&container).await?;
    let mut next = || series.next().ok_or("a series is missing");
    let (write, plain_write, read, plain_read) = (next()?, next()?, next()?, next()?);
    Ok(vec![
        Row::throughput("file write", size, &write, &Baseline::new("plain write, same volume", plain_write)),
        Row::throughput("file read", size, &read, &Baseline::new("plain read, same volume", plain_read)),
    ])
}

/// Write inside, write plain, read inside, read plain.
async fn round(guest: &Guest, folder: &Path, size: u64) -> Result<Vec<f64>> {
    let plain = folder.join("plain");
    let piece = noise();
    settle(folder)?;
    let (write, entry) = timed(guest.write_file(INSIDE, WriteOptions::default(), body(&piece, size))).await?;
    settle(folder)?;
    let (plain_write, ()) = timed_here(|| write_plain(&plain, &piece, size))?;
    settle(folder)?;
    let (read, bytes) = timed(read_inside(guest)).await?;
    let (plain_read, plain_bytes) = timed_here(|| read_plain(&plain))?;
    if [entry.size, bytes, plain_bytes] != [size; 3] {
        return Err(format!("{size} bytes became {}, {bytes} and {plain_bytes}", entry.size).into());
    }
    guest.remove(INSIDE, false).await?;
    fs::remove_file(&plain)?;
    Ok(vec![write, plain_write, read, plain_read])
}

/// Incompressible bytes.
pub(super) fn noise() -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    };
    (0..PIECE / 8).flat_map(|_| next()).collect()
}

fn body(
    piece: &Bytes,
    size: u64,
) -> impl futures_util::Stream<Item = atoll_types::Result<Bytes>> + Send + 'static {
    let piece = piece.clone();
    stream::iter((0..size / PIECE as u64).map(move |_| Ok(piece.clone())))
}

/// Waits until earlier writes are on the disk, so that no measurement pays for another's.
pub(super) fn settle(folder: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(File::open(folder)?)?)
}

fn write_plain(path: &Path, piece: &[u8], size: u64) -> Result<()> {
    let mut file = File::create(path)?;
    Ok((0..size / PIECE as u64).try_for_each(|_| file.write_all(piece))?)
}

async fn read_inside(guest: &Guest) -> Result<u64> {
    let mut reader = guest.read_file(INSIDE, 0, 0).await?;
    let mut bytes = 0;
    while let Some(data) = reader.next().await? {
        bytes += data.len() as u64;
    }
    Ok(bytes)
}

fn read_plain(path: &Path) -> Result<u64> {
    let (mut file, mut buffer, mut bytes) = (File::open(path)?, vec![0; PIECE], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            length => bytes += length as u64,
        }
    }
}
