//! Which containers use a volume: a folder for each volume in the run folder, with an empty file for each container that has
//! it. What asks for the users of a volume reads their records, and not those of every container of the machine.
//!
//! A container's files are made before its record is first written, so no user is missing; they are removed when it is
//! freed, and where that is cut off, at the launcher's start. A file says only where to look: the record decides.

use crate::{
    context::{Context, Folders, make_folder},
    record::{self, Record},
};
use atoll_types::{ContainerId, Error, Result, VolumeId};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

fn folder(folders: &Folders, volume: VolumeId) -> PathBuf {
    folders.volume_users().join(volume.to_string())
}

/// Makes the files of a container for all of its volumes. Its record is written afterwards.
pub(crate) fn add(folders: &Folders, record: &Record) -> Result<()> {
    record
        .volumes()
        .try_for_each(|volume| add_one(&folder(folders, volume), record.container))
        .map_err(|e| Error::internal(format!("cannot write down which volumes the container uses: {e}")))
}

fn add_one(folder: &Path, container: ContainerId) -> io::Result<()> {
    loop {
        make_folder(folder, 0o700)?;
        match fs::File::create(folder.join(container.to_string())) {
            // The last other user of the volume was just removed, and the folder with it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            made => return made.map(drop),
        }
    }
}

/// Removes the files of a container that is freed.
pub(crate) fn remove(folders: &Folders, record: &Record) {
    for volume in record.volumes() {
        remove_one(&folder(folders, volume), &record.container.to_string());
    }
}

fn remove_one(folder: &Path, container: &str) {
    let _ = fs::remove_file(folder.join(container));
    // Only where it is empty.
    let _ = fs::remove_dir(folder);
}

/// The containers that have a volume, as their own, as their root or beside them.
pub(crate) fn of(folders: &Folders, volume: VolumeId) -> impl Iterator<Item = Record> {
    let listed = fs::read_dir(folder(folders, volume)).into_iter().flatten().flatten();
    let containers = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    containers.filter_map(|id| record::load(folders, id)).filter(move |record| record.uses(volume))
}

/// Makes the files of every container, among them those that an earlier version made, and removes those of containers that
/// are gone. Workers that were started meanwhile have their containers' folders before their files.
pub(crate) fn repair(context: &Context) {
    for volume in fs::read_dir(context.volume_users()).into_iter().flatten().flatten() {
        for user in fs::read_dir(volume.path()).into_iter().flatten().flatten() {
            let name = user.file_name();
            if !context.containers().join(&name).exists() {
                remove_one(&volume.path(), &name.to_string_lossy());
            }
        }
        let _ = fs::remove_dir(volume.path());
    }
    for record in record::containers(context).into_iter().filter_map(|id| record::load(context, id)) {
        if let Err(error) = add(context, &record) {
            tracing::error!(container = %record.container, %error, "its volumes are not protected");
        }
    }
}
