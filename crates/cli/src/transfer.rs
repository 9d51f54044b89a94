//! `atoll export` and `atoll import`: a sandbox as one archive, streamed, as `atoll image export` is. A file is there whole or not at all.

use crate::{
    Failure,
    args::{Export, Import},
    copy::{pieces, receive},
    progress, resolve,
    terminal::{note, print, print_json},
};
use atoll_client::Download;
use indicatif::ProgressBar;
use std::{
    io::{self, IsTerminal},
    path::Path,
};
use tokio::fs::File;

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

pub(crate) async fn export(options: Export) -> Result<u8, Failure> {
    let Export { id, output, no_snapshots, server } = options;
    check_output(&output).await?;
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, &id).await?;
    let archive = client.export(sandbox, !no_snapshots).await.map_err(|e| Failure::from(e).about(&id))?;
    save(archive, &output, &id, server.json).await
}

/// Refuses a place that no archive may be written to, before the server is asked for one.
pub(crate) async fn check_output(output: &Path) -> Result<(), Failure> {
    let to_stdout = is_dash(output);
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::usage("output", "an archive is no text for a terminal; use -o FILE, or a pipe"));
    }
    if !to_stdout && tokio::fs::symlink_metadata(output).await.is_ok() {
        return Err(there_already(output));
    }
    Ok(())
}

/// Writes an archive to a new file or to standard output.
pub(crate) async fn save(archive: Download, output: &Path, name: &str, json: bool) -> Result<u8, Failure> {
    let bar = progress::bar(name, archive.left(), json);
    let result = match is_dash(output) {
        true => receive(archive, &mut tokio::io::stdout(), &bar, Failure::output).await,
        false => receive_new_file(archive, output, &bar).await,
    };
    bar.finish_and_clear();
    result.map(|()| 0)
}

/// An archive may be all that is left of a sandbox or of an image, so no file is written over.
fn there_already(path: &Path) -> Failure {
    Failure::file(
        path,
        &io::Error::new(io::ErrorKind::AlreadyExists, "it exists, and an export writes over no file"),
    )
}

/// Writes a new file, which is removed again where it does not become whole.
async fn receive_new_file(archive: Download, to: &Path, bar: &ProgressBar) -> Result<(), Failure> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => there_already(to),
        _ => Failure::file(to, &e),
    };
    let mut file = File::options().write(true).create_new(true).open(to).await.map_err(failed)?;
    let received = receive(archive, &mut file, bar, failed).await;
    if received.is_err() {
        let _ = tokio::fs::remove_file(to).await;
    }
    received
}

pub(crate) async fn import(options: Import) -> Result<u8, Failure> {
    let Import { file, no_snapshots, volumes, server } = options;
    let client = server.client()?;
    let imported = if is_dash(&file) {
        let body = pieces(tokio::io::stdin(), progress::bar("import", None, server.json));
        client.import(!no_snapshots, volumes, body).await?
    } else {
        let failed = |e: io::Error| Failure::file(&file, &e);
        let archive = File::open(&file).await.map_err(failed)?;
        let total = archive.metadata().await.map_err(failed)?.len();
        let bar = progress::bar(&file.to_string_lossy(), Some(total), server.json);
        let imported = client.import(!no_snapshots, volumes, pieces(archive, bar.clone())).await;
        bar.finish_and_clear();
        imported?
    };
    if server.json {
        print_json(&imported.json)?;
        return Ok(0);
    }
    print(&format!("{}\n", imported.sandbox.id))?;
    if !imported.missing_secrets.is_empty() {
        let names = imported.missing_secrets.join(", ");
        note(&format!("secret values are not exported; these variables are not set: {names}"));
    }
    if !imported.missing_kernels.is_empty() {
        let count = imported.missing_kernels.len();
        note(&format!("variables of kernels are not exported; {count} snapshots have their files alone"));
    }
    for one in &imported.left_out {
        note(&format!("not exported: {one}"));
    }
    Ok(0)
}
