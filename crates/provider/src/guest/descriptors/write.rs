//! Writing to a passed file. While one job writes, the next bytes are collected, so that many small pieces
//! are few writes.

use super::{
    check::{Passed, failed},
    jobs::{Jobs, finished},
};
use atoll_types::{Error, ErrorCode, Result};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use rustix::io::{Errno, pwritev};
use std::{io::IoSlice, pin::pin, sync::Arc};

/// The most that is collected while a job writes.
const GATHERED: usize = 1 << 20;
/// The most pieces of one write; the kernel takes 1024.
const PIECES: usize = 512;

/// Writes all of it and closes the file.
pub(super) async fn write(
    jobs: &Jobs,
    file: Passed,
    data: impl Stream<Item = Result<Bytes>> + Send,
) -> Result<()> {
    let file = Arc::new(file);
    let written = pump(jobs, &file, data).await;
    // A job may still hold it where the data broke off; the file is dropped then, and its bytes with it.
    if let Ok(file) = Arc::try_unwrap(file) {
        jobs.run(move || file.close()).await?;
    }
    written
}

async fn pump(jobs: &Jobs, file: &Arc<Passed>, data: impl Stream<Item = Result<Bytes>> + Send) -> Result<()> {
    let mut data = pin!(data);
    let (mut gathered, mut bytes, mut offset) = (Vec::new(), 0, 0);
    let (mut job, mut ended) = (None, false);
    loop {
        if job.is_none() && !gathered.is_empty() {
            let (file, pieces) = (Arc::clone(file), std::mem::take(&mut gathered));
            job = Some(jobs.start(move || write_all(&file, &pieces, offset)).await?);
            offset += std::mem::take(&mut bytes) as u64;
        }
        let writing = async {
            match &mut job {
                Some(job) => finished(job.await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            piece = data.next(), if !ended && bytes < GATHERED && gathered.len() < PIECES => match piece {
                Some(piece) => {
                    let piece = piece?;
                    bytes += piece.len();
                    gathered.push(piece);
                }
                None => ended = true,
            },
            done = writing => {
                done?;
                job = None;
            }
        }
        if ended && job.is_none() && gathered.is_empty() {
            return Ok(());
        }
    }
}

/// The offset is given with every write, and is ignored for a file that is appended to.
fn write_all(file: &Passed, pieces: &[Bytes], mut offset: u64) -> Result<()> {
    let file = file.get()?;
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|p| IoSlice::new(p)).collect();
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match pwritev(file, left, offset) {
            Ok(0) => return Err(Error::new(ErrorCode::DiskFull, "no space left on device").at("path")),
            Ok(length) => {
                offset += length as u64;
                IoSlice::advance_slices(&mut left, length);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}
