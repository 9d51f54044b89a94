//! A large file into a sandbox and out again, compared with a plain file server that writes to and reads from
//! the same volume. One client does both, and neither server waits for the disk.

use super::Bench;
use crate::{
    Result,
    figures::files::{noise, settle},
    file_server,
    http::Client,
    pace::{Pace, timed},
    report::{Baseline, Row},
    server::{self, Server},
};
use std::{fs, path::Path};

/// The path of the plain server's file in the volume.
const PLAIN: &str = "/plain";

pub(super) async fn take(bench: &Bench<'_>, server: &Server) -> Result<Vec<Row>> {
    let size: u64 = bench.scale.pick(16 << 20, 256 << 20, 256 << 20);
    let mut client = server.connect().await?;
    let sandbox = server::create(&mut client, "{}").await?;
    let folder = server.volume(&sandbox)?;
    let mut plain = file_server::start(&folder).await?;
    let file = sandbox.path("/files/large");
    let pace = Pace::tight(bench.scale.pick(1, 5, 20));
    let round = async || round((&mut client, &file), &mut plain, &folder, size).await;
    let mut series = pace.take(round).await?.into_iter();
    server::delete(&mut client, &sandbox).await?;
    let mut next = || series.next().ok_or("a series is missing");
    let (upload, plain_upload, download, plain_download) = (next()?, next()?, next()?, next()?);
    let plain = |samples| Baseline::new("plain file server, same volume", samples);
    Ok(vec![
        Row::throughput("rest upload", size, &upload, &plain(plain_upload)),
        Row::throughput("rest download", size, &download, &plain(plain_download)),
    ])
}

/// Upload, plain upload, download, plain download.
async fn round(
    (client, file): (&mut Client, &str),
    plain: &mut Client,
    folder: &Path,
    size: u64,
) -> Result<Vec<f64>> {
    let piece = noise();
    settle(folder)?;
    let (upload, answer) = timed(client.put(file, &piece, size)).await?;
    answer.expect(204)?;
    settle(folder)?;
    let (plain_upload, answer) = timed(plain.put(PLAIN, &piece, size)).await?;
    answer.expect(204)?;
    settle(folder)?;
    let (download, bytes) = timed(client.get(file)).await?;
    let (plain_download, plain_bytes) = timed(plain.get(PLAIN)).await?;
    if [bytes, plain_bytes] != [size; 2] {
        return Err(format!("{size} bytes became {bytes} and {plain_bytes}").into());
    }
    // Each round makes its file anew: overwriting one costs more.
    let remove = r#"{"path":"large"}"#;
    client.ask("POST", &file.replace("/files/large", "/fs/remove"), remove).await?.expect(204)?;
    fs::remove_file(folder.join(&PLAIN[1..]))?;
    Ok(vec![upload, plain_upload, download, plain_download])
}
