//! Skills: packages of instructions and files for agents, and which of them a sandbox has.

use crate::{Millis, SkillId, audit::Sha256, names};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The name of a skill as a regular expression.
pub const SKILL_NAME_PATTERN: &str = "^[a-z0-9]+(?:-[a-z0-9]+)*$";

/// Why a text is not the name of a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a skill's name has 1 to {} lower-case letters, digits and single hyphens between them",
    SkillName::LONGEST
)]
pub struct SkillNameError;

/// The name of a skill: one of its owner's, and a folder's in every sandbox.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SkillName(String);

impl SkillName {
    /// The longest name.
    pub const LONGEST: usize = 64;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SkillName {
    type Err = SkillNameError;
    fn from_str(text: &str) -> Result<Self, SkillNameError> {
        let word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        };
        let fits = text.len() <= Self::LONGEST && text.split('-').all(word);
        if fits { Ok(Self(text.into())) } else { Err(SkillNameError) }
    }
}

impl TryFrom<String> for SkillName {
    type Error = SkillNameError;
    fn try_from(text: String) -> Result<Self, SkillNameError> {
        text.parse()
    }
}

impl From<SkillName> for String {
    fn from(name: SkillName) -> String {
        name.0
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

names!(
    /// Where a skill came from.
    SkillSource {
        /// Its instructions were written in a request.
        Manual = "manual",
        /// A package was uploaded.
        Upload = "upload",
    }
);

/// A skill as it is kept. Its package lies in a file beside the database, named by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRecord {
    /// Which.
    pub id: SkillId,
    /// Whose.
    pub owner: String,
    /// The owner's display name.
    pub owner_name: String,
    /// One of the owner's.
    pub name: SkillName,
    /// What it is for.
    pub description: String,
    /// Where it came from.
    pub source: SkillSource,
    /// The other fields of its front matter: an object, as JSON.
    pub metadata: String,
    /// The digest of its package.
    pub digest: Sha256,
    /// How large its package is.
    pub package_bytes: u64,
    /// How many files its package has.
    pub files: u32,
    /// When it was made.
    pub created_at: Millis,
    /// When it was last changed.
    pub updated_at: Millis,
}

/// Which skills to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillQuery {
    /// Of this owner; of all where there is none.
    pub owner: Option<String>,
    /// That have this text in their name or description, whatever the case of its ASCII letters.
    pub search: Option<String>,
    /// That came from there.
    pub source: Option<SkillSource>,
    /// How many are skipped.
    pub offset: u64,
    /// How many at most.
    pub limit: u32,
}

/// Some skills, by name and owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillPage {
    /// These.
    pub items: Vec<SkillRecord>,
    /// How many there are in all.
    pub total: u64,
}

/// A skill in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledSkill {
    /// Which; it may have been deleted since.
    pub id: SkillId,
    /// The name that it had, and the folder.
    pub name: SkillName,
    /// The package that was installed.
    pub digest: Sha256,
    /// When.
    pub installed_at: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_folders_and_nothing_else() {
        for good in ["a", "data-analyzer", "a1-2b", &"a".repeat(64)] {
            assert_eq!(good.parse::<SkillName>().map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", "-", "a-", "-a", "a--b", "A", "a_b", "a.b", "..", "a/b", "é", &"a".repeat(65)] {
            assert!(bad.parse::<SkillName>().is_err(), "{bad:?}");
        }
    }
}
