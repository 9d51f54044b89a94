//! `df` of a sandbox, which the launcher mounts over the image's own. A sandbox's disk limit is a quota group, of which
//! statfs knows nothing: for a volume this program reads the kernel's live figures of its group, which the launcher
//! mounts at [`DISKS`], and for everything else it asks statfs, as any `df` does. The options and the table are those of
//! GNU coreutils.

mod mounts;
mod options;
mod table;

use mounts::FileSystem;
use options::{Asked, Options};
use std::{ffi::OsString, io::Write, path::Path};

/// A folder for each volume, named by its device number: `group` holds the kernel's figures, and `shared` how much of a
/// fork's limit is taken by what it shared when it was made.
pub const DISKS: &str = "/etc/atoll/disks";

/// Runs with the arguments behind the program's name and returns the exit code.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> u8 {
    let (text, code) = match options::parse(arguments) {
        Ok(Asked::Text(text)) => (text, 0),
        Ok(Asked::Table(options)) => {
            let (rows, failed) = rows(&options);
            let none = rows.is_empty();
            if none && !failed {
                complain("no file systems processed");
            }
            let text = if none { String::new() } else { table::render(&options, &rows) };
            (text, u8::from(failed || none))
        }
        Err(message) => {
            complain(&message);
            complain("try 'df --help'");
            return 1;
        }
    };
    let written = std::io::stdout().lock().write_all(text.as_bytes());
    if written.is_err() { 1 } else { code }
}

fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "df: {message}");
}

/// The file systems of the named paths, or all, and whether a path could not be looked at.
fn rows(options: &Options) -> (Vec<FileSystem>, bool) {
    let known = mounts::read();
    if options.paths.is_empty() {
        return (mounts::chosen(known, options, Path::new(DISKS)), false);
    }
    let (mut rows, mut failed) = (Vec::new(), false);
    for path in &options.paths {
        match mounts::of_path(&known, path, Path::new(DISKS)) {
            Ok(row) if options.takes(&row.kind) => rows.push(row),
            Ok(_) => {}
            Err(cause) => {
                complain(&format!("{}: {}", path.display(), crate::errno::text(cause)));
                failed = true;
            }
        }
    }
    (rows, failed)
}
