//! `atoll keys recover`: a new admin key for an installation whose admin keys are lost. It works on the data
//! folder while no server does; a user who may write that folder could read and change everything in it
//! anyway.

use crate::serve::{self, engine::Ground, identity};
use atoll_types::{Error, ErrorCode, Result};
use std::{os::unix::fs::MetadataExt, path::Path};

/// Makes the key and prints its secret.
pub(crate) async fn recover(data_dir: &Path) -> Result<u8> {
    let missing = |_| {
        let message = format!("{} is not the data folder of a server", data_dir.display());
        Error::new(ErrorCode::NotFound, message)
    };
    let database = std::fs::metadata(serve::database(data_dir)).map_err(missing)?;
    // As the server's own user, or the server could not open what is written here.
    if rustix::process::geteuid().is_root() && database.uid() != 0 {
        let owner = identity::Identity { uid: database.uid(), gid: database.gid() };
        return Err(identity::become_user(&owner, data_dir, None));
    }
    let ground = Ground::open(data_dir).await?;
    let issued = ground.recover_admin().await?;
    // Alone on standard output, so that a script can keep it.
    println!("{}", issued.secret);
    eprintln!(
        "a new admin key of the owner {}, shown this once; start the server and use it",
        issued.key.owner_name
    );
    Ok(0)
}
