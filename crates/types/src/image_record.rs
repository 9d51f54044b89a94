//! What is known of an image beside its files: the name that a request uses, where it comes from, and what containers of
//! it start with. The launcher knows an image by its id alone.

use crate::{
    BuildId, ImageId, ImageStart, Limits, Millis, ProviderName, SandboxId, VolumeName, audit::Sha256, names,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The tag of a reference that has none.
const USUAL_TAG: &str = "latest";
/// The longest name of an image.
pub const LONGEST_IMAGE_NAME: usize = 200;
/// The longest tag.
pub const LONGEST_TAG: usize = 128;
/// A name of an image, as a regular expression: a registry's host and port, and a path.
pub const IMAGE_NAME_PATTERN: &str =
    r"^(?:[a-z0-9][a-z0-9.-]*(?::[0-9]{1,5})?/)?[a-z0-9][a-z0-9._-]*(?:/[a-z0-9][a-z0-9._-]*)*$";
/// A tag, as a regular expression.
pub const TAG_PATTERN: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$";

fn is_part(text: &str, more: &[char]) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || more.contains(&c))
}

fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let digits = |port: &str| (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    is_part(host, &['.', '-']) && port.is_none_or(digits)
}

/// Whether a text is the name of an image: [`IMAGE_NAME_PATTERN`], and its length.
#[must_use]
pub fn is_image_name(text: &str) -> bool {
    let path = |path: &str| path.split('/').all(|part| is_part(part, &['.', '_', '-']));
    let whole = match text.split_once('/') {
        Some((first, rest)) => (is_host(first) && path(rest)) || path(text),
        None => path(text),
    };
    whole && text.len() <= LONGEST_IMAGE_NAME
}

/// Whether a text is a tag: [`TAG_PATTERN`], and its length.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.len() <= LONGEST_TAG
        && text.chars().all(plain)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

/// A name and a tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageTag {
    pub name: String,
    pub tag: String,
}

impl ImageTag {
    /// NAME or NAME:TAG; none where the text is neither.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, tag) = match text.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, tag),
            _ => (text, USUAL_TAG),
        };
        (is_image_name(name) && is_tag(tag)).then(|| Self { name: name.into(), tag: tag.into() })
    }
}

impl fmt::Display for ImageTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.tag)
    }
}

names!(
    /// Where an image comes from.
    ImageOrigin {
        /// An archive that a caller sent.
        Import = "import",
        /// A registry.
        Pull = "pull",
        /// A template's steps.
        Template = "template",
    }
);

/// What containers of an image start with. A sandbox's own settings take precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// The variables of every command.
    pub environment: BTreeMap<String, String>,
    /// The user as the image names it.
    pub user: Option<String>,
    /// The ids of that user, where it is not root and the image has it: the user of sandboxes with the default profile.
    pub ids: Option<(u32, u32)>,
    /// Where commands run that name no directory.
    pub working_directory: Option<String>,
    /// What the image itself would start.
    pub entrypoint: Vec<String>,
    /// Its arguments, or the whole command where there is no entrypoint.
    pub command: Vec<String>,
    /// Labels of the image's author.
    pub labels: BTreeMap<String, String>,
    /// Ports that the image's author names, such as 80/tcp.
    pub ports: Vec<String>,
}

impl ImageConfig {
    /// What sandboxes of it start by themselves; none where its labels say nothing that can be right.
    #[must_use]
    pub fn start(&self) -> Option<ImageStart> {
        ImageStart::read(&self.labels).ok().flatten()
    }
}

/// The limits of sandboxes that name none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageDefaults {
    pub memory_mb: Option<u64>,
    pub cpu_millis: Option<u32>,
    pub disk_mb: Option<u64>,
}

impl ImageDefaults {
    /// These limits, with those that the image has.
    #[must_use]
    pub fn over(self, limits: Limits) -> Limits {
        let bytes = |mb: u64| mb.saturating_mul(1 << 20);
        Limits {
            memory_bytes: self.memory_mb.map_or(limits.memory_bytes, bytes),
            cpu_millis: self.cpu_millis.unwrap_or(limits.cpu_millis),
            disk_bytes: self.disk_mb.map_or(limits.disk_bytes, bytes),
            ..limits
        }
    }
}

/// A package that an image holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstalledPackage {
    /// debian, pip or npm.
    pub manager: String,
    /// Its name there.
    pub name: String,
    /// Exactly.
    pub version: String,
}

/// An image as it is recorded. It belongs to no owner: admins make and remove images, and every key may use them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    /// Which.
    pub id: ImageId,
    /// The name that a request uses; one image has one name.
    pub name: String,
    /// Its tags: a name and a tag are one image's. None where another image took the last.
    pub tags: Vec<String>,
    /// A name for people.
    pub display_name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What identifies its content: `sha256:` and 64 digits.
    pub digest: String,
    /// What its files hold.
    pub size_bytes: u64,
    /// Where it comes from.
    pub origin: ImageOrigin,
    /// The reference that it was pulled from, or the kind of archive that it was in.
    pub source: String,
    /// The provider that keeps it.
    pub provider: ProviderName,
    /// What its containers start with.
    pub config: ImageConfig,
    /// The limits of sandboxes that name none.
    pub defaults: ImageDefaults,
    /// What is installed in it, as far as that is known: a lock for a build of the same.
    pub packages: Vec<InstalledPackage>,
    /// The indexes that its package managers use, as the egress proxy writes them; none before they were looked for.
    pub package_indexes: Option<String>,
    /// Whether an admin approved it.
    pub approved: bool,
    /// When it was made.
    pub created_at: Millis,
    /// When a sandbox was last made of it, or the last one was destroyed.
    pub last_used_at: Option<Millis>,
    /// Its end has begun; no sandbox is made of it any more.
    pub deleting: bool,
}

impl ImageRecord {
    /// Its name with its first tag; its id where it has none.
    #[must_use]
    pub fn reference(&self) -> String {
        match self.tags.first() {
            Some(tag) => format!("{}:{tag}", self.name),
            None => self.id.to_string(),
        }
    }

    /// The name for people.
    #[must_use]
    pub fn shown_name(&self) -> String {
        self.display_name.clone().unwrap_or_else(|| self.reference())
    }
}

names!(
    /// How a build stands.
    BuildState {
        /// It is at work.
        Running = "running",
        /// Its image is there.
        Done = "done",
        /// It failed.
        Failed = "failed",
        /// A request ended it.
        Cancelled = "cancelled",
    }
);

/// The making of an image, with everything that it leaves behind where the server dies in the middle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRecord {
    /// Which.
    pub id: BuildId,
    /// The image that is made.
    pub image: ImageId,
    /// What it is to be called.
    pub tag: ImageTag,
    /// From what.
    pub origin: ImageOrigin,
    /// The reference that is pulled, or the kind of archive or template.
    pub source: String,
    /// The owner of its sandbox and its volume: no key's.
    pub owner: String,
    /// The owner of the key that asked for it.
    pub asked_by: String,
    /// The sandbox that it runs in.
    pub sandbox: SandboxId,
    /// The owner's volume that becomes the image.
    pub volume: VolumeName,
    /// How it stands.
    pub state: BuildState,
    /// Why it failed.
    pub error: Option<String>,
    /// When it began.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
}

/// How far a build is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildProgress {
    /// Bytes that were fetched or unpacked in this step.
    pub done_bytes: u64,
    /// Those that there are; 0 where that is not known.
    pub total_bytes: u64,
    /// Which step, from 1.
    pub step: u32,
    /// Steps in all; 0 where that is not known.
    pub steps: u32,
}

/// What a step of a template made: an image without a name, from which later builds with the same steps begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStepRecord {
    /// What identifies the step and all before it.
    pub key: Sha256,
    /// The files after it.
    pub image: ImageId,
    /// The provider that keeps them.
    pub provider: ProviderName,
    /// What they hold.
    pub size_bytes: u64,
    /// When it was made.
    pub created_at: Millis,
    /// When a build last began with it.
    pub last_used_at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tags_are_read_as_registries_read_them() {
        let parsed = |text: &str| ImageTag::parse(text).map(|of| (of.name, of.tag));
        let is = |name: &str, tag: &str| Some((name.to_owned(), tag.to_owned()));
        assert_eq!(parsed("python"), is("python", "latest"));
        assert_eq!(parsed("python:3.12-slim"), is("python", "3.12-slim"));
        assert_eq!(parsed("localhost:5000/team/app"), is("localhost:5000/team/app", "latest"));
        assert_eq!(parsed("localhost:5000/team/app:V_1"), is("localhost:5000/team/app", "V_1"));
        for wrong in
            ["", ":", "a:", ":a", "A", "a//b", "/a", "a/", "a b", "a:b c", "../a", "a@sha256:0", "a:5/b:c:d"]
        {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
        assert_eq!(parsed(&"a".repeat(LONGEST_IMAGE_NAME + 1)), None);
        assert_eq!(parsed(&format!("a:{}", "t".repeat(LONGEST_TAG + 1))), None);
    }
}
