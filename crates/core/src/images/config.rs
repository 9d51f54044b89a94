//! What an image says of its containers, as the catalogue keeps it.

use super::build::TARGET;
use crate::sandboxes::check_environment;
use atoll_provider::{Container, Guest};
use atoll_types::{ImageConfig, Result};
use std::sync::Arc;

/// The longest /etc/passwd of an image that is read.
const LONGEST_PASSWD: u64 = 1 << 20;
/// The highest id that a sandbox has.
const HIGHEST_ID: u32 = 65_533;

/// The configuration of an image that is unpacked in the sandbox of a build.
pub(super) async fn image_config(
    container: &Arc<dyn Container>,
    document: Option<&str>,
) -> Result<ImageConfig> {
    let said = match document {
        Some(document) => atoll_oci::ImageConfig::parse(document.as_bytes())?,
        None => atoll_oci::ImageConfig::default(),
    };
    let environment = said.env.into_iter().filter(|(name, _)| !name.is_empty()).collect();
    check_environment("config", &environment)?;
    let passwd = match said.user.is_empty() {
        true => String::new(),
        // An image without it has no names.
        false => passwd(container.guest()).await.unwrap_or_default(),
    };
    let directory = Some(said.working_dir).filter(|path| !path.is_empty() && path != "/");
    Ok(ImageConfig {
        environment,
        ids: ids(&said.user, &passwd),
        user: Some(said.user).filter(|user| !user.is_empty()),
        working_directory: directory,
        entrypoint: said.entrypoint,
        command: said.cmd,
        labels: said.labels,
        ports: said.exposed_ports,
    })
}

async fn passwd(guest: &Guest) -> Result<String> {
    let mut file = guest.read_file(&format!("{TARGET}/etc/passwd"), 0, LONGEST_PASSWD).await?;
    let mut text = Vec::new();
    while let Some(piece) = file.next().await? {
        text.extend_from_slice(&piece);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The ids of a user as an image names it: `name`, `uid`, either with `:group`. None of root, of ids that sandboxes do not have, and
/// of a name that the image lacks. A group that is root's, or a name, gives way to the user's own.
fn ids(user: &str, passwd: &str) -> Option<(u32, u32)> {
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
    let gid = group.and_then(|group| group.parse().ok()).unwrap_or(gid);
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
        for (user, expected) in [
            ("", None),
            ("root", None),
            ("0", None),
            ("0:0", None),
            ("nosuch", None),
            ("70000", None),
            ("app", Some((1001, 1002))),
            ("app:staff", Some((1001, 1002))),
            ("1001", Some((1001, 1002))),
            ("1001:5", Some((1001, 5))),
            ("65532", Some((65_532, 65_532))),
            ("zero", Some((77, 77))),
        ] {
            assert_eq!(ids(user, passwd), expected, "{user}");
        }
    }
}
