//! Writes an image. It is built under another name, flushed, and renamed when complete; the caller holds the lock
//! of the folder, so an unfinished one is left by a dead process.

use super::plan::{Node, Plan};
use super::source;
use crate::error::failed;
use atoll_types::Result;
use rustix::fs::{Mode, chmod, syncfs};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;

const UNFINISHED: &str = ".unfinished-";

pub(super) fn build(plan: &Plan, images_dir: &Path, id: &str) -> Result<()> {
    sweep(images_dir)?;
    let place = images_dir.join(id);
    if place.exists() {
        return Ok(());
    }
    let doing = "write the host image";
    let unfinished = images_dir.join(format!("{UNFINISHED}{id}"));
    fs::create_dir(&unfinished).map_err(failed(doing))?;
    chmod(&unfinished, Mode::from(0o755)).map_err(failed(doing))?;
    for (path, node) in &plan.entries {
        write(plan, path, node, &unfinished.join(path))?;
    }
    // A name must not outlive a power cut that its content did not.
    File::open(&unfinished).and_then(|dir| Ok(syncfs(dir)?)).map_err(failed(doing))?;
    fs::rename(&unfinished, &place).map_err(failed(doing))
}

fn write(plan: &Plan, path: &str, node: &Node, to: &Path) -> Result<()> {
    let doing = "write the host image";
    let mode = match node {
        Node::Directory { mode } => {
            fs::create_dir(to).map_err(failed(doing))?;
            *mode
        }
        Node::Link { target } => return symlink(target, to).map_err(failed(doing)),
        Node::Text { text } => {
            fs::write(to, text).map_err(failed(doing))?;
            0o644
        }
        Node::Copy { mode, .. } => {
            let Some(content) = source::read(&plan.root, path)? else { return Ok(()) };
            fs::write(to, content).map_err(failed(doing))?;
            *mode
        }
    };
    chmod(to, Mode::from(mode)).map_err(failed(doing))
}

/// Renames a directory to an unfinished name, then removes it.
pub(super) fn discard(images_dir: &Path, place: &Path) -> Result<()> {
    let away = images_dir.join(format!("{UNFINISHED}{}", uuid::Uuid::new_v4().simple()));
    fs::rename(place, &away).map_err(failed("remove an image"))?;
    fs::remove_dir_all(away).map_err(failed("remove an image"))
}

fn sweep(images_dir: &Path) -> Result<()> {
    for entry in fs::read_dir(images_dir).map_err(failed("list the images"))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_dir_all(entry.path()).map_err(failed("remove an unfinished image"))?;
        }
    }
    Ok(())
}
