//! A profile is everything that is fixed when a container starts, and so the key of a warm pool.
//! Limits, environment, owner and egress are not part of it: they are set live.

use crate::{
    Error, ImageId, PathRules, Result, VolumeId, VolumeMount,
    attachment::{self, OwnFolders},
};
use serde::{Deserialize, Serialize};
use std::{fmt, path::Path, str::FromStr};

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a name: expected 1 to 64 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit")]
pub struct NameError;

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 64
        && bytes.next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                if is_name(text) { Ok(Self(text.into())) } else { Err(NameError) }
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of an image in the launcher's own catalogue; never a path.
    ImageName
);
name!(
    /// The name of a volume: one of its owner's.
    VolumeName
);
name!(
    /// The name of a provider: `native`, and later `docker`, `kubernetes`, `wasm`.
    ProviderName
);

/// How the name of every image begins that was sealed.
const SEALED: &str = "img-";

impl ImageName {
    /// The machine's own /usr and a curated /etc.
    #[must_use]
    pub fn host() -> Self {
        Self("host".into())
    }

    /// The name of an image that was sealed.
    #[must_use]
    pub fn of(id: ImageId) -> Self {
        Self(format!("{SEALED}{id}"))
    }

    /// The image that was sealed under this name; none for [`ImageName::host`].
    #[must_use]
    pub fn id(&self) -> Option<ImageId> {
        self.0.strip_prefix(SEALED)?.parse().ok()
    }
}

impl ProviderName {
    /// The provider over the launcher of this machine.
    #[must_use]
    pub fn native() -> Self {
        Self("native".into())
    }
}

/// The isolation between the sandbox and the machine's kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces, cgroups, seccomp, started by the launcher itself.
    #[default]
    Builtin,
    /// An OCI runtime of the launcher's list, by name (`runsc`, `runc`, `crun`, `kata-runtime`).
    Runtime(String),
}

/// Whether the root filesystem can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RootMode {
    /// The image as it is.
    ReadOnly,
    /// An overlay over the image, kept with the volume.
    Writable,
}

/// Sizes of the tmpfs mounts of a sandbox without a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TmpfsSizes {
    /// /workspace.
    pub workspace_bytes: u64,
    /// /tmp.
    pub tmp_bytes: u64,
    /// The user's home.
    pub home_bytes: u64,
}

/// Where the writable directories live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    /// On the volume, under the disk limit.
    Volume,
    /// In memory, gone with the container.
    Tmpfs(TmpfsSizes),
}

/// A host folder that the operator shared under a name when starting the launcher.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareMount {
    /// The name it was shared under.
    pub share: String,
    /// Where it appears inside.
    pub at: String,
    /// Whether the sandbox may write. The operator's own setting wins.
    pub writable: bool,
}

/// Which system calls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seccomp {
    /// The list that fits everything but building images.
    #[default]
    Default,
    /// The default list plus chroot and mknod of what needs no privilege, for package managers.
    Build,
}

/// A capability that user code may hold inside its own user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    Chown,
    DacOverride,
    Fowner,
    Fsetid,
    Kill,
    Setgid,
    Setuid,
    NetBindService,
    SysChroot,
    Setfcap,
}

/// Some of the profiles that ship.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profiles(u8);

impl Profiles {
    /// Those whose user is not root.
    pub const PLAIN: Self = Self(0b0011);
    /// All of them.
    pub const ALL: Self = Self(0b1111);

    /// Those with these names; none where one is unknown.
    #[must_use]
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let bit = |name: &str| Profile::BUILTIN.iter().position(|known| *known == name).map(|at| 1 << at);
        names.into_iter().try_fold(Self(0), |all, name| Some(Self(all.0 | bit(name)?)))
    }

    /// Their names.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let here = |(at, _): &(usize, &&str)| self.0 & (1 << at) != 0;
        Profile::BUILTIN.iter().enumerate().filter(here).map(|(_, name)| *name).collect()
    }

    /// Whether this is one of them.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        self.names().contains(&name)
    }
}

/// Everything that is fixed when a container starts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called.
    pub name: String,
    /// Its isolation.
    pub isolation: Isolation,
    /// Its root filesystem.
    pub image: ImageName,
    /// The user that commands run as.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// Whether the root can be written.
    pub root: RootMode,
    /// Where the writable directories live.
    pub storage: Storage,
    /// Folders of the operator's.
    pub mounts: Vec<ShareMount>,
    /// The system call filter.
    pub seccomp: Seccomp,
    /// What user code may hold; empty for every profile whose user is not root.
    pub capabilities: Vec<Capability>,
    /// Volumes beside its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeMount>,
    /// Paths with a rule.
    #[serde(default, skip_serializing_if = "PathRules::is_empty")]
    pub paths: PathRules,
    /// A volume whose files are the root filesystem instead of the image's, and can be written there. Such a container
    /// builds what the volume is sealed to, and is never pooled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_root: Option<VolumeId>,
}

const MB: u64 = 1_000_000;
const ROOT_CAPABILITIES: &[Capability] = &[
    Capability::Chown,
    Capability::DacOverride,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::Kill,
    Capability::Setgid,
    Capability::Setuid,
    Capability::NetBindService,
];

impl Profile {
    /// The names of the profiles that ship.
    pub const BUILTIN: &[&str] = &["default", "tools", "root", "build"];

    /// A profile that ships, by name.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Self> {
        let default = Self {
            name: name.into(),
            isolation: Isolation::Builtin,
            image: ImageName::host(),
            uid: 1000,
            gid: 1000,
            root: RootMode::ReadOnly,
            storage: Storage::Volume,
            mounts: Vec::new(),
            seccomp: Seccomp::Default,
            capabilities: Vec::new(),
            volumes: Vec::new(),
            paths: PathRules::default(),
            build_root: None,
        };
        let root = Self {
            uid: 0,
            gid: 0,
            root: RootMode::Writable,
            capabilities: ROOT_CAPABILITIES.to_vec(),
            ..default.clone()
        };
        let sizes = TmpfsSizes { workspace_bytes: 200 * MB, tmp_bytes: 200 * MB, home_bytes: 200 * MB };
        match name {
            "default" => Some(default),
            "tools" => Some(Self { uid: 65532, gid: 65532, storage: Storage::Tmpfs(sizes), ..default }),
            "root" => Some(root),
            "build" => {
                let more = [Capability::SysChroot, Capability::Setfcap];
                let capabilities = root.capabilities.iter().copied().chain(more).collect();
                Some(Self { seccomp: Seccomp::Build, capabilities, ..root })
            }
            _ => None,
        }
    }

    /// The home directory of the profile's user.
    #[must_use]
    pub fn home(&self) -> &'static str {
        match self.uid {
            0 => "/root",
            65532 => "/home/sandbox",
            _ => "/home/user",
        }
    }

    /// Refuses a profile that could not be started or would not be safe.
    pub fn validate(&self) -> Result<()> {
        let fail = |field: &str, message: &str| Err(Error::invalid(field, message));
        if !is_name(&self.name) {
            return fail("profile.name", &NameError.to_string());
        }
        if self.uid > 65533 || self.gid > 65533 {
            return fail("profile.uid", "uid and gid must be at most 65533");
        }
        if self.uid != 0 && !self.capabilities.is_empty() {
            return fail("profile.capabilities", "only a profile whose user is root may hold capabilities");
        }
        if let Isolation::Runtime(name) = &self.isolation
            && !is_name(name)
        {
            return fail("profile.isolation", "the runtime must be a name, not a path");
        }
        if self.root == RootMode::Writable && self.storage != Storage::Volume {
            return fail("profile.root", "a writable root needs a volume");
        }
        if let Storage::Tmpfs(sizes) = self.storage {
            let TmpfsSizes { workspace_bytes, tmp_bytes, home_bytes } = sizes;
            if [workspace_bytes, tmp_bytes, home_bytes].iter().any(|n| !(4096..=1 << 40).contains(n)) {
                return fail("profile.storage", "a tmpfs must have between 4 KiB and 1 TiB");
            }
        }
        if let Some(volume) = self.build_root {
            if self.root != RootMode::Writable {
                return fail(
                    "profile.build_root",
                    "only a profile whose root can be written builds an image",
                );
            }
            if self.volumes.iter().any(|mount| mount.volume == volume) {
                return fail("profile.build_root", "the volume of the root cannot be attached a second time");
            }
        }
        self.mounts.iter().try_for_each(ShareMount::validate)?;
        // These would hide earlier mounts.
        let in_memory = ["/workspace", "/tmp", self.home()];
        let hidden =
            |mount: &ShareMount| in_memory.iter().any(|folder| Path::new(&mount.at).starts_with(folder));
        if self.storage != Storage::Volume && self.mounts.iter().any(hidden) {
            let message = format!(
                "with the profile {}, whose files are in memory, nothing can be mounted in {}",
                self.name,
                in_memory.join(", ")
            );
            return fail("profile.mounts.at", &message);
        }
        let own = OwnFolders { all: in_memory, in_memory: self.storage != Storage::Volume };
        attachment::check(&self.volumes, &self.paths, &own)
    }

    /// Whether it has volumes beside its own, or paths with a rule.
    #[must_use]
    pub fn has_attachments(&self) -> bool {
        !self.volumes.is_empty() || !self.paths.is_empty()
    }

    /// The same without both: a container of it has the sandbox's own folders, and all that is in them.
    #[must_use]
    pub fn without_attachments(&self) -> Self {
        Self { volumes: Vec::new(), paths: PathRules::default(), ..self.clone() }
    }
}

impl ShareMount {
    fn validate(&self) -> Result<()> {
        if !is_name(&self.share) {
            return Err(Error::invalid("profile.mounts.share", NameError.to_string()));
        }
        match self.at.as_str() {
            "/etc" => Err(Error::invalid("profile.mounts.at", "nothing can be mounted on /etc")),
            at => attachment::check_place("profile.mounts.at", at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_profiles_are_told_by_name() {
        assert_eq!(Profiles::PLAIN.names(), ["default", "tools"]);
        assert_eq!(Profiles::ALL.names(), Profile::BUILTIN);
        assert_eq!(Profiles::named(["root", "default"]).unwrap().names(), ["default", "root"]);
        assert_eq!(Profiles::named(["default", "god"]), None);
        assert!(Profiles::ALL.has("build") && !Profiles::PLAIN.has("root") && !Profiles::ALL.has(""));
    }

    #[test]
    fn every_profile_that_ships_is_valid() {
        for name in Profile::BUILTIN {
            let profile = Profile::builtin(name).unwrap();
            assert_eq!(profile.validate(), Ok(()), "{name}");
            assert_eq!(profile.name, *name);
        }
        assert_eq!(Profile::builtin("nosuch"), None);
    }

    #[test]
    fn the_name_of_a_sealed_image_says_which() {
        let id = ImageId::random();
        let name = ImageName::of(id);
        assert_eq!(name.as_str(), format!("img-{id}"));
        assert_eq!((name.as_str().parse(), name.id()), (Ok(name.clone()), Some(id)));
        assert_eq!(ImageName::host().id(), None);
        assert_eq!("img-..".parse::<ImageName>().unwrap().id(), None);
    }

    #[test]
    fn unsafe_profiles_are_refused_by_field() {
        let base = Profile::builtin("default").unwrap();
        let mount = |at: &str| Profile {
            mounts: vec![ShareMount { share: "data".into(), at: at.into(), writable: false }],
            ..base.clone()
        };
        let cases = [
            (Profile { uid: 65534, ..base.clone() }, "profile.uid"),
            (Profile { capabilities: vec![Capability::Setuid], ..base.clone() }, "profile.capabilities"),
            (
                Profile { isolation: Isolation::Runtime("/bin/sh".into()), ..base.clone() },
                "profile.isolation",
            ),
            (Profile { root: RootMode::Writable, ..Profile::builtin("tools").unwrap() }, "profile.root"),
            (Profile { build_root: Some(VolumeId::random()), ..base.clone() }, "profile.build_root"),
            (mount("/"), "profile.mounts.at"),
            (mount("/etc"), "profile.mounts.at"),
            (mount("/etc/atoll/x"), "profile.mounts.at"),
            (mount("/proc"), "profile.mounts.at"),
            (mount("/sys/fs"), "profile.mounts.at"),
            (mount("/dev/shm"), "profile.mounts.at"),
            (mount("/run/x"), "profile.mounts.at"),
            (mount("/mnt/../etc"), "profile.mounts.at"),
            (mount("/mnt/"), "profile.mounts.at"),
            (mount("mnt/x"), "profile.mounts.at"),
            (
                Profile { mounts: mount("/tmp/x").mounts, ..Profile::builtin("tools").unwrap() },
                "profile.mounts.at",
            ),
        ];
        for (profile, field) in cases {
            assert_eq!(profile.validate().unwrap_err().field.as_deref(), Some(field), "{profile:?}");
        }
        for at in ["/mnt/data", "/workspace", "/workspace/x", "/data", "/process"] {
            assert_eq!(mount(at).validate(), Ok(()), "{at}");
        }
    }
}
