//! Skills: packages of instructions and files for agents.

use crate::{
    Client, Error, Result, ServerReply,
    client::{collect, empty},
    encode,
    files::streamed,
    sandboxes::at,
};
use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::{Map, Value};
use uuid::Uuid;

const ROOT: &str = "/api/v1/skills";
/// What parts of a form lie between.
const BOUNDARY: &str = "atoll-5b1a8d4f0e7c4b6f9d3a2c1e";
const FORM: &str = "multipart/form-data; boundary=atoll-5b1a8d4f0e7c4b6f9d3a2c1e";

/// A skill.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Skill {
    pub id: Uuid,
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub user_name: String,
    /// manual or upload.
    #[serde(default)]
    pub source_type: String,
    /// The other fields of its front matter.
    #[serde(default)]
    pub skill_metadata: Map<String, Value>,
    #[serde(default)]
    pub package_size_bytes: u64,
    #[serde(default)]
    pub files: u32,
    #[serde(default)]
    pub digest: String,
    /// Its SKILL.md; not in lists.
    #[serde(default)]
    pub skill_md_content: Option<String>,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub updated_at: String,
}

/// Some skills.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SkillPage {
    pub items: Vec<Skill>,
    #[serde(default)]
    pub total: u64,
}

/// A query for skills; the server's defaults for what is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListSkills {
    pub search: Option<String>,
    /// With an admin key.
    pub owner: Option<String>,
    pub offset: Option<u64>,
    pub limit: Option<u32>,
}

/// A skill in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SandboxSkill {
    pub id: Uuid,
    pub name: String,
    #[serde(default)]
    pub installed_at: String,
}

/// A skill that could not be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExtractionError {
    pub name: String,
    #[serde(default)]
    pub message: String,
}

/// What became of an install.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct InstalledSkills {
    pub installed: Vec<String>,
    pub already_installed: Vec<String>,
    pub not_found: Vec<Uuid>,
    pub extraction_errors: Vec<ExtractionError>,
}

fn one(id: Uuid) -> String {
    format!("{ROOT}/{id}")
}

impl Client {
    /// Lists skills by name.
    pub async fn list_skills(&self, wanted: &ListSkills) -> Result<ServerReply<SkillPage>> {
        let ListSkills { search, owner, offset, limit } = wanted;
        let query = encode::query(&[
            ("search", search.clone()),
            ("owner", owner.clone()),
            ("offset", offset.map(|n| n.to_string())),
            ("limit", limit.map(|n| n.to_string())),
        ]);
        self.ask(Method::GET, &format!("{ROOT}{query}")).await
    }

    /// One skill, with its SKILL.md.
    pub async fn skill(&self, id: Uuid) -> Result<ServerReply<Skill>> {
        self.ask(Method::GET, &one(id)).await
    }

    /// Makes a skill from a ZIP archive, in the place of one with its name or not.
    pub async fn upload_skill(&self, package: Vec<u8>, replace: bool) -> Result<ServerReply<Skill>> {
        if package.windows(BOUNDARY.len()).any(|window| window == BOUNDARY.as_bytes()) {
            let message = "the package holds the boundary of forms";
            return Err(Error::Url(message.to_owned()));
        }
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"skill.zip\"\r\n\
             Content-Type: application/zip\r\n\r\n"
        );
        let pieces = [Bytes::from(head), package.into(), Bytes::from(format!("\r\n--{BOUNDARY}--\r\n"))];
        let body = streamed(futures_util::stream::iter(pieces.map(Ok)));
        let path = format!("{ROOT}/upload?replace={replace}");
        let response = self.send(Method::POST, &path, Some(FORM), body).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }

    /// Deletes a skill; what was installed of it stays.
    pub async fn delete_skill(&self, id: Uuid) -> Result<()> {
        self.send(Method::DELETE, &one(id), None, empty()).await.map(drop)
    }

    /// Installs skills in a sandbox.
    pub async fn install_skills(
        &self,
        sandbox: Uuid,
        skills: &[Uuid],
    ) -> Result<ServerReply<InstalledSkills>> {
        let body = serde_json::json!({ "skill_ids": skills });
        self.tell(Method::POST, &at(sandbox, "/skills"), &body).await
    }
}
