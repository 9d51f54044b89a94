//! `atoll cp`: one file, of any size, streamed; folders are in `copy_folder`. An incomplete file never
//! appears: here it is written to a temporary name and renamed, and inside the server does the same.

use crate::{Failure, args::Cp, copy_end::CopyEnd, copy_folder, progress, resolve};
use atoll_client::{Client, Download, Uuid};
use atoll_types::files::{NOT_WRITABLE, OVERWRITE};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, stream};
use indicatif::ProgressBar;
use std::{io, path::Path};
use tokio::{
    fs::File,
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
};

const PIECE: usize = 256 << 10;

pub(crate) async fn run(options: Cp) -> Result<u8, Failure> {
    let Cp { source, destination, force, server } = options;
    let client = server.client()?;
    let json = server.json;
    match (source, destination) {
        (CopyEnd::Inside { id, path }, CopyEnd::Inside { .. }) => {
            let message = format!("both ends are in sandboxes; copy {id}:{path} here first, and then on");
            Err(Failure::usage("DESTINATION", message))
        }
        (CopyEnd::Inside { id, path }, to) => {
            let sandbox = resolve::sandbox(&client, &id).await?;
            download(&client, sandbox, &path, to, json).await.map_err(|e| about(e, &id, &path))
        }
        (from, CopyEnd::Inside { id, path }) => {
            let sandbox = resolve::sandbox(&client, &id).await?;
            upload(&client, sandbox, from, &path, (force, json)).await.map_err(|e| about(e, &id, &path))
        }
        _ => Err(Failure::usage("DESTINATION", "one of the two must be in a sandbox, as in ID:/path")),
    }?;
    Ok(0)
}

/// A file of this machine is named already, and a missing one inside by its path; every other error is about the
/// sandbox.
fn about(failure: Failure, id: &str, path: &str) -> Failure {
    if failure.is_of_this_machine() {
        return failure;
    }
    match failure.is_missing() && !path.is_empty() {
        true => failure.about(&format!("{id}:{path}")),
        false => failure.about(id),
    }
}

/// The last name of a path inside; none for a folder's own names.
fn last_name(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| !matches!(*name, "" | "." | ".."))
}

async fn upload(
    client: &Client,
    id: Uuid,
    from: CopyEnd,
    path: &str,
    (force, json): (bool, bool),
) -> Result<(), Failure> {
    let CopyEnd::Here(from) = from else {
        let target = target(client, id, path, None).await?;
        let bar = progress::bar(&target, None, json);
        return send(client, id, &target, force, tokio::io::stdin(), bar).await;
    };
    let failed = |e: io::Error| Failure::file(&from, &e);
    let file = File::open(&from).await.map_err(failed)?;
    let about = file.metadata().await.map_err(failed)?;
    if about.is_dir() {
        return copy_folder::upload(client, id, &from, path, json).await;
    }
    let name = from.file_name().and_then(|n| n.to_str());
    let target = target(client, id, path, name).await?;
    let total = about.is_file().then_some(about.len());
    send(client, id, &target, force, file, progress::bar(&target, total, json)).await
}

/// The path of the copy: the path itself, or below it under its own name when that is a folder. Looking it up
/// first also finds errors before all of the file is sent.
async fn target(client: &Client, id: Uuid, path: &str, name: Option<&str>) -> Result<String, Failure> {
    let probe = if path.is_empty() { "/workspace" } else { path };
    let is_folder = match client.stat(id, probe, true).await.map_err(Failure::from) {
        Ok(entry) => entry.is_directory,
        Err(failure) if failure.is_missing() => path.ends_with('/'),
        Err(failure) => return Err(failure),
    };
    match (is_folder, name) {
        (false, _) => Ok(path.to_owned()),
        (true, Some(name)) if path.is_empty() || path.ends_with('/') => Ok(format!("{path}{name}")),
        (true, Some(name)) => Ok(format!("{path}/{name}")),
        (true, None) => Err(Failure::usage("DESTINATION", "it is a folder; say which file in it")),
    }
}

async fn send(
    client: &Client,
    id: Uuid,
    path: &str,
    force: bool,
    from: impl AsyncRead + Unpin + Send + 'static,
    bar: ProgressBar,
) -> Result<(), Failure> {
    let body = pieces(from, bar.clone());
    let result = match force {
        true => client.upload_by_force(id, path, body).await,
        false => client.upload(id, path, body).await,
    };
    bar.finish_and_clear();
    let remedy = format!("{path}: {NOT_WRITABLE}; --force replaces it");
    result.map_err(|e| Failure::from(e).with_remedy(OVERWRITE, &remedy))
}

pub(crate) fn pieces(
    from: impl AsyncRead + Unpin + Send + 'static,
    bar: ProgressBar,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::try_unfold((from, bar), |(mut from, bar)| async move {
        let mut buffer = BytesMut::with_capacity(PIECE);
        let count = from.read_buf(&mut buffer).await?;
        bar.inc(count as u64);
        Ok((count > 0).then(|| (buffer.freeze(), (from, bar))))
    })
}

async fn download(client: &Client, id: Uuid, path: &str, to: CopyEnd, json: bool) -> Result<(), Failure> {
    let path = if path.is_empty() { "/workspace" } else { path };
    let entry = client.stat(id, path, true).await?;
    if entry.is_directory {
        return copy_folder::download(client, id, path, to, json).await;
    }
    let bar = progress::bar(path, Some(entry.size), json);
    let result = match to {
        CopyEnd::Here(to) => {
            let to = match (tokio::fs::metadata(&to).await.is_ok_and(|m| m.is_dir()), last_name(path)) {
                (false, _) => to,
                (true, Some(name)) => to.join(name),
                (true, None) => {
                    return Err(Failure::usage("DESTINATION", "it is a folder; say which file in it"));
                }
            };
            receive_file(client.download(id, path).await?, &to, &bar).await
        }
        _ => receive(client.download(id, path).await?, &mut tokio::io::stdout(), &bar, Failure::output).await,
    };
    bar.finish_and_clear();
    result
}

pub(crate) async fn receive(
    mut download: Download,
    to: &mut (impl AsyncWrite + Unpin),
    bar: &ProgressBar,
    failed: impl Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    while let Some(bytes) = download.next().await? {
        to.write_all(&bytes).await.map_err(&failed)?;
        bar.inc(bytes.len() as u64);
    }
    to.flush().await.map_err(failed)
}

pub(crate) async fn receive_file(download: Download, to: &Path, bar: &ProgressBar) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::file(to, &e);
    let existing = tokio::fs::metadata(to).await.ok();
    // A device or a pipe is written to, not replaced.
    if existing.as_ref().is_some_and(|m| !m.is_file()) {
        let mut file = File::options().write(true).open(to).await.map_err(failed)?;
        return receive(download, &mut file, bar, failed).await;
    }
    // A link stays, and its target is replaced.
    let to =
        if existing.is_some() { tokio::fs::canonicalize(to).await.map_err(failed)? } else { to.to_owned() };
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".atoll-{}", Uuid::new_v4().simple()));
    let beside = to.with_file_name(name);
    let result = async {
        let mut file = File::options().write(true).create_new(true).open(&beside).await.map_err(failed)?;
        receive(download, &mut file, bar, failed).await?;
        if let Some(existing) = existing {
            file.set_permissions(existing.permissions()).await.map_err(failed)?;
        }
        tokio::fs::rename(&beside, &to).await.map_err(failed)
    };
    let result = result.await;
    if result.is_err() {
        let _ = tokio::fs::remove_file(&beside).await;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::last_name;

    #[test]
    fn folders_have_no_last_name() {
        assert_eq!(last_name("/a/b.txt"), Some("b.txt"));
        assert_eq!(last_name("b"), Some("b"));
        assert!(["/", "a/", "a/..", "."].into_iter().all(|p| last_name(p).is_none()));
    }
}
