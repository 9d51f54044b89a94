//! What an image says of its containers, as the catalogue keeps it.

use super::{build::TARGET, build_log::BuildLog};
use crate::sandboxes::check_environment;
use atoll_provider::{Container, Guest};
use atoll_types::{ErrorCode, ImageConfig, ImageStart, Result};
use std::sync::Arc;

/// The longest file of users or groups of an image that is read.
const LONGEST_USERS: u64 = 1 << 20;
/// The highest id that a sandbox has.
const HIGHEST_ID: u32 = 65_533;

/// The configuration of an image that is unpacked in the sandbox of a build, from the document that came with it.
pub(super) async fn image_config(
    container: &Arc<dyn Container>,
    document: Option<&str>,
    log: &BuildLog,
) -> Result<ImageConfig> {
    let said = match document {
        Some(document) => atoll_oci::ImageConfig::parse(document.as_bytes())?,
        None => atoll_oci::ImageConfig::default(),
    };
    config_of(container, said, log).await
}

/// The same, from what the document says.
pub(super) async fn config_of(
    container: &Arc<dyn Container>,
    said: atoll_oci::ImageConfig,
    log: &BuildLog,
) -> Result<ImageConfig> {
    let environment = said.env.into_iter().filter(|(name, _)| !name.is_empty()).collect();
    check_environment("config", &environment)?;
    let ids = match said.user.is_empty() {
        true => None,
        false => {
            // An image without these has no names.
            let users = text_of(container.guest(), "/etc/passwd").await.unwrap_or_default();
            let groups = text_of(container.guest(), "/etc/group").await.unwrap_or_default();
            ids_or_notice(&said.user, &users, &groups, log)
        }
    };
    if let Err(error) = ImageStart::read(&said.labels) {
        log.line(format!("note: sandboxes of the image start nothing: {}", error.message));
    }
    let directory = Some(said.working_dir).filter(|path| !path.is_empty() && path != "/");
    if let Some(directory) = &directory {
        make_directory(container.guest(), directory).await?;
    }
    Ok(ImageConfig {
        environment,
        ids,
        user: Some(said.user).filter(|user| !user.is_empty()),
        working_directory: directory,
        entrypoint: said.entrypoint,
        command: said.cmd,
        labels: said.labels,
        ports: said.exposed_ports,
    })
}

/// Makes the directory that commands begin in, where the image only names it: a container could not, its root is read-only.
async fn make_directory(guest: &Guest, directory: &str) -> Result<()> {
    let path = format!("{TARGET}{directory}");
    match guest.stat(&path, false).await {
        Err(error) if error.code == ErrorCode::NotFound => guest.make_dir(&path, true).await.map(drop),
        // What else is wrong with it is said by the commands that begin there.
        _ => Ok(()),
    }
}

async fn text_of(guest: &Guest, path: &str) -> Result<String> {
    let mut file = guest.read_file(&format!("{TARGET}{path}"), 0, LONGEST_USERS).await?;
    let mut text = Vec::new();
    while let Some(piece) = file.next().await? {
        text.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The same as [`ids`]. Where sandboxes get a user of another kind than the image names, the log says so.
pub(super) fn ids_or_notice(user: &str, passwd: &str, groups: &str, log: &BuildLog) -> Option<(u32, u32)> {
    let found = ids(user, passwd, groups);
    let name = user.split(':').next().unwrap_or_default();
    if found.is_none() && !matches!(name, "" | "root") && name.parse() != Ok(0_u32) {
        log.line(format!(
            "note: the image's user {:.100} is not in its /etc/passwd and /etc/group, or has an id above {HIGHEST_ID}: commands of \
             its sandboxes run as the profile's user",
            user.escape_debug()
        ));
    }
    found
}

/// The ids of a user as an image names it: `name`, `uid`, either with `:group`. None of root, of ids that sandboxes do not have, and
/// of a name that the image lacks. A group that is root's gives way to the user's own.
fn ids(user: &str, passwd: &str, groups: &str) -> Option<(u32, u32)> {
    let (user, group) = user.split_once(':').map_or((user, None), |(user, group)| (user, Some(group)));
    let entry = |is: &dyn Fn(&str, u32) -> bool| {
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let (uid, gid): (u32, u32) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            is(name, uid).then_some((uid, gid))
        })
    };
    let (uid, gid) = match user.parse::<u32>() {
        Ok(uid) => entry(&|_, own| own == uid).unwrap_or((uid, uid)),
        Err(_) => entry(&|name, _| name == user)?,
    };
    let group_id = |group: &str| {
        let named = groups.lines().find(|line| line.split(':').next() == Some(group));
        group.parse().ok().or_else(|| named?.split(':').nth(2)?.parse::<u32>().ok())
    };
    let gid = match group.filter(|group| !group.is_empty()) {
        Some(group) => group_id(group)?,
        None => gid,
    };
    let gid = if gid == 0 { uid } else { gid };
    ((1..=HIGHEST_ID).contains(&uid) && gid <= HIGHEST_ID).then_some((uid, gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_an_image_is_found_in_it() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbroken\napp:x:1001:1002::/app:/bin/sh\nzero:x:77:0::/:/bin/sh\n";
        let groups = "wheel:x:0:\nbroken\nstaff:x:50:app\n";
        for (user, expected) in [
            ("", None),
            ("root", None),
            ("0", None),
            ("0:0", None),
            ("nosuch", None),
            ("70000", None),
            ("app", Some((1001, 1002))),
            ("app:staff", Some((1001, 50))),
            ("app:", Some((1001, 1002))),
            ("app:nosuch", None),
            ("app:wheel", Some((1001, 1001))),
            ("1001", Some((1001, 1002))),
            ("1001:5", Some((1001, 5))),
            ("65532", Some((65_532, 65_532))),
            ("zero", Some((77, 77))),
        ] {
            assert_eq!(ids(user, passwd, groups), expected, "{user}");
        }
    }
}
