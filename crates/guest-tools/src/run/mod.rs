//! The tools, as PID 1 starts them: one request, an answer on stdout, or an error as one line of JSON on stderr.
//! They run as the user and have the user's rights; nothing here is a security boundary. `df` alone is a program of the
//! user's, with arguments.

pub mod df;
mod files;
mod find;
mod glob;
mod grep;
mod image;
mod out;
mod place;
mod process_api;
mod watch;

use crate::{
    ApplyLayer, ExportFolders, Find, Grep, ImportFolders, Pack, PackImage, ProcessApi, Unpack, UnpackImage,
    Watch,
};
use atoll_types::{Error, ErrorCode, Result};
use serde::de::DeserializeOwned;
use std::io::Write;

/// The longest request, which must fit into one argument of a program.
pub const LONGEST_REQUEST: usize = 64 << 10;

/// The names of the tools.
pub const NAMES: &[&str] = &[
    "find",
    "grep",
    "pack",
    "unpack",
    "export",
    "import",
    "watch",
    "apply-layer",
    "unpack-image",
    "pack-image",
    "process-api",
];

/// Runs a tool and returns its exit code.
#[must_use]
pub fn main(name: &str, request: &str) -> u8 {
    match run(name, request) {
        Ok(()) => 0,
        Err(error) => {
            let line = serde_json::to_string(&error).unwrap_or_default();
            let _ = writeln!(std::io::stderr(), "{line}");
            1
        }
    }
}

fn run(name: &str, request: &str) -> Result<()> {
    match name {
        "find" => find::run(&read::<Find>(request)?),
        "grep" => grep::run(&read::<Grep>(request)?),
        "pack" => files::pack(&read::<Pack>(request)?),
        "unpack" => files::unpack(&read::<Unpack>(request)?),
        "export" => files::export(&read::<ExportFolders>(request)?),
        "import" => files::import(&read::<ImportFolders>(request)?),
        "watch" => watch::run(&read::<Watch>(request)?),
        "apply-layer" => image::apply(&read::<ApplyLayer>(request)?),
        "unpack-image" => image::unpack(&read::<UnpackImage>(request)?),
        "pack-image" => image::pack(&read::<PackImage>(request)?),
        "process-api" => process_api::run(&read::<ProcessApi>(request)?),
        _ => Err(Error::new(ErrorCode::Unsupported, format!("there is no tool {name:?}")).at("tool")),
    }
}

fn read<T: DeserializeOwned>(request: &str) -> Result<T> {
    serde_json::from_str(request).map_err(|e| Error::invalid("request", e.to_string()))
}
