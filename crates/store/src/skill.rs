//! Keeping skills, and which sandbox has which.

use crate::{Result, SandboxId};
use async_trait::async_trait;
use atoll_types::{InstalledSkill, SkillId, SkillPage, SkillQuery, SkillRecord, audit::Sha256};

/// Skills. A package is stored elsewhere; here only its digest is.
#[async_trait]
pub trait Skills: Send + Sync {
    /// Inserts a record. Returns the one that the owner has already with this name, if there is one; then nothing is
    /// inserted.
    async fn insert_skill(&self, new: SkillRecord) -> Result<Option<SkillRecord>>;
    /// One by its id.
    async fn skill(&self, id: SkillId) -> Result<Option<SkillRecord>>;
    /// A page of them, by name and owner.
    async fn skills(&self, query: &SkillQuery) -> Result<SkillPage>;
    /// How many an owner has, and the bytes of their packages.
    async fn skill_usage(&self, owner: &str) -> Result<(u64, u64)>;
    /// Replaces a record, which keeps its id and its owner. Returns the other one that the owner has with the new name,
    /// if there is one; then nothing is changed. `NotFound` where there is none to replace.
    async fn update_skill(&self, record: SkillRecord) -> Result<Option<SkillRecord>>;
    /// Removes a record. Whether there was one.
    async fn delete_skill(&self, id: SkillId) -> Result<bool>;
    /// Whether a skill has this package.
    async fn has_package(&self, digest: Sha256) -> Result<bool>;
    /// Records that a sandbox has a skill, in the place of one with the same name. The sandbox's revision stays.
    async fn install_skill(&self, sandbox: SandboxId, skill: InstalledSkill) -> Result<()>;
    /// Records that a sandbox has these skills and no others, because its files are those of a snapshot. The sandbox's
    /// revision stays; not an error where there is no such sandbox.
    async fn set_skills(&self, sandbox: SandboxId, skills: Vec<InstalledSkill>) -> Result<()>;
}
