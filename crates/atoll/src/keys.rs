//! `atoll keys recover`: a new admin key for an installation whose admin keys are lost. It works on the data
//! folder while no server does; a user who may write that folder could read and change everything in it
//! anyway.

use crate::{
    database,
    serve::{self, engine::Ground, identity},
};
use atoll_types::{Error, ErrorCode, Result, passwd::User};
use std::{io::Write, os::unix::fs::MetadataExt, path::Path};

/// Makes the key and prints its secret.
pub(crate) async fn recover(data_dir: &Path) -> Result<u8> {
    let missing = |()| {
        let message = format!("{} is not the data folder of a server", data_dir.display());
        Error::new(ErrorCode::NotFound, message)
    };
    // The file of either database, or what says that there is none.
    let found = database::is_there(data_dir)?;
    let database =
        std::fs::metadata(serve::folder(data_dir)).ok().filter(|_| found).ok_or_else(|| missing(()))?;
    // As the server's own user, or the server could not open what is written here.
    if rustix::process::geteuid().is_root() && database.uid() != 0 {
        let owner = User { uid: database.uid(), gid: database.gid() };
        return Err(identity::become_user(&owner, data_dir, None));
    }
    let ground = Ground::open(data_dir, &database::of(data_dir)?).await?;
    let issued = ground.recover_admin().await?;
    // Alone on standard output, so that a script can keep it.
    writeln!(std::io::stdout(), "{}", issued.secret).map_err(|error| {
        let message =
            format!("the new key's secret cannot be printed ({error}) and is lost; make another one");
        Error::new(ErrorCode::Unavailable, message)
    })?;
    // That standard error is closed is no fault.
    let _ = writeln!(
        std::io::stderr(),
        "a new admin key of the owner {}, shown this once; start the server and use it",
        issued.key.owner_name
    );
    Ok(0)
}
