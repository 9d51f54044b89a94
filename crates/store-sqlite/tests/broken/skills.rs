//! Faults of skills.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{Result, SandboxId, Sha256, Skills};
use atoll_types::{InstalledSkill, SkillId, SkillPage, SkillQuery, SkillRecord};

#[async_trait]
impl Skills for Broken {
    async fn insert_skill(&self, new: SkillRecord) -> Result<Option<SkillRecord>> {
        self.inner.insert_skill(new).await
    }

    async fn skill(&self, id: SkillId) -> Result<Option<SkillRecord>> {
        self.inner.skill(id).await
    }

    async fn skills(&self, query: &SkillQuery) -> Result<SkillPage> {
        let page = self.inner.skills(query).await?;
        let total = if self.is(Fault::CountsASkillPage) { page.items.len() as u64 } else { page.total };
        Ok(SkillPage { total, ..page })
    }

    async fn skill_usage(&self, owner: &str) -> Result<(u64, u64)> {
        self.inner.skill_usage(owner).await
    }

    async fn update_skill(&self, record: SkillRecord) -> Result<Option<SkillRecord>> {
        self.inner.update_skill(record).await
    }

    async fn delete_skill(&self, id: SkillId) -> Result<bool> {
        self.inner.delete_skill(id).await
    }

    async fn has_package(&self, digest: Sha256) -> Result<bool> {
        Ok(self.is(Fault::KeepsEveryPackage) || self.inner.has_package(digest).await?)
    }

    async fn install_skill(&self, sandbox: SandboxId, skill: InstalledSkill) -> Result<()> {
        self.inner.install_skill(sandbox, skill).await
    }

    async fn set_skills(&self, sandbox: SandboxId, skills: Vec<InstalledSkill>) -> Result<()> {
        if self.is(Fault::KeepsLaterSkills) {
            return Ok(());
        }
        self.inner.set_skills(sandbox, skills).await
    }
}
