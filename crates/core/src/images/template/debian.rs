//! An image from packages of Debian alone: mmdebstrap, in a sandbox of the machine's own image that has the new image's volume at
//! `/image`. The archives are those of the machine's release, as its apt is set to.

use super::steps::run_logged;
use crate::images::build::{BuildContext, TARGET};
use atoll_egress::presets::AptSources;
use atoll_provider::{Command, WriteOptions};
use atoll_types::{Error, ErrorCode, InstalledPackage, Result};
use bytes::Bytes;
use futures_util::stream;

const SOURCES: &str = "/workspace/image.sources";
const PINS: &str = "/workspace/image.pref";

/// Nothing is mounted in the image, for a sandbox may not. Manuals are left out, and so is what the build's own sandbox has in /etc.
const SCRIPT: &str = r#"
set -eu
target=$1 suite=$2 packages=$3
command -v mmdebstrap > /dev/null || { echo 'mmdebstrap is not installed on the machine of the server'; exit 127; }
mkdir -p /etc/apt/apt.conf.d
chown 0:0 "$target"
chmod 755 "$target"
umask 022
export TMPDIR=/tmp
mmdebstrap --mode=root --variant=apt --skip=chroot/mount,check/empty \
  --aptopt='Acquire::Languages "none"' --aptopt='APT::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --setup-hook='mkdir -p "$1/etc/apt/preferences.d" && cp /workspace/image.pref "$1/etc/apt/preferences.d/lock.pref"' \
  --customize-hook='rm -f "$1/etc/apt/preferences.d/lock.pref"' \
  --include="$packages" "$suite" "$target" /workspace/image.sources 2>&1 | grep -v ' as requested$'
test -e "$target/bin/sh" || { echo 'the packages were not installed'; exit 1; }
rm -rf "$target"/dev/* "$target/etc/hostname" "$target"/var/cache/apt/* "$target"/var/lib/apt/lists/*
: > "$target/etc/resolv.conf"
"#;

/// Preferences by which apt installs the versions of a lock and no others.
fn pins(lock: &[InstalledPackage]) -> String {
    let pin = |one: &InstalledPackage| {
        format!("Package: {}\nPin: version {}\nPin-Priority: 1001\n\n", one.name, one.version)
    };
    lock.iter().filter(|one| one.manager == "debian").map(pin).collect()
}

/// Refuses where the machine has no archives of packages.
pub(super) fn sources_of(found: Option<&AptSources>) -> Result<AptSources> {
    found.cloned().ok_or_else(|| {
        let message = "this server's machine has no archives of Debian packages: its apt is set to none that an image can be built of";
        Error::new(ErrorCode::Unsupported, message).at("template")
    })
}

/// Fills the volume.
pub(super) async fn install(
    context: BuildContext,
    sources: AptSources,
    packages: Vec<String>,
    lock: Vec<InstalledPackage>,
) -> Result<()> {
    let BuildContext { container, log, .. } = context;
    for (path, text) in [(SOURCES, sources.text.clone()), (PINS, pins(&lock))] {
        let text = stream::iter([Ok(Bytes::from(text))]);
        container.guest().write_file(path, WriteOptions::default(), text).await?;
    }
    let words = ["/bin/bash", "-o", "pipefail", "-c", SCRIPT, "image", TARGET, &sources.suite];
    let packages = packages.join(",");
    let command = Command::new(words.into_iter().chain([packages.as_str()]));
    run_logged(&container, &log, command, "mmdebstrap").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_pins_packages_of_debian() {
        let package = |manager: &str, name: &str| InstalledPackage {
            manager: manager.into(),
            name: name.into(),
            version: "1:2.3-4".into(),
        };
        let text = pins(&[package("debian", "bash"), package("pip", "six")]);
        assert_eq!(text, "Package: bash\nPin: version 1:2.3-4\nPin-Priority: 1001\n\n");
    }
}
