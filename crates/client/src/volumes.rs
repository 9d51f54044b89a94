//! Volumes, which outlive sandboxes.

use crate::{Client, Result, ServerReply, client::empty, encode};
use hyper::Method;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const ROOT: &str = "/api/v1/volumes";

/// A volume to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CreateVolume {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Volume {
    pub name: String,
    #[serde(default)]
    pub user_name: String,
    /// The tenant whose storage it is.
    #[serde(default)]
    pub tenant_id: Option<String>,
    #[serde(default)]
    pub disk_mb: u64,
    #[serde(default)]
    pub created_at: String,
    #[serde(default)]
    pub deleting: bool,
    /// Not in lists.
    #[serde(default)]
    pub used_bytes: Option<u64>,
    /// The sandboxes that have it; not in lists.
    #[serde(default)]
    pub attached_to: Option<Vec<Uuid>>,
}

/// A volume in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedVolume {
    pub name: String,
    pub path: String,
    #[serde(default)]
    pub read_only: bool,
}

/// Paths inside a sandbox with a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Filesystem {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_write: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
}

/// One page of volumes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumePage {
    pub items: Vec<Volume>,
    pub total: u64,
}

impl Filesystem {
    /// Whether no path has a rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.read_only.is_empty() && self.read_write.is_empty() && self.blocked.is_empty()
    }
}

/// One volume; of another owner with an admin key.
fn at(name: &str, owner: Option<&str>) -> String {
    let query = encode::query(&[("owner", owner.map(str::to_owned))]);
    format!("{ROOT}/{}{query}", encode::path(name))
}

impl Client {
    /// Makes a volume.
    pub async fn create_volume(&self, new: &CreateVolume) -> Result<ServerReply<Volume>> {
        self.tell(Method::POST, ROOT, new).await
    }

    /// A page of volumes by name; of another owner with an admin key.
    pub async fn list_volumes(
        &self,
        owner: Option<&str>,
        page: u64,
        page_size: u32,
    ) -> Result<ServerReply<VolumePage>> {
        let query = encode::query(&[
            ("owner", owner.map(str::to_owned)),
            ("page", Some(page.to_string())),
            ("page_size", Some(page_size.to_string())),
        ]);
        self.ask(Method::GET, &format!("{ROOT}{query}")).await
    }

    /// One volume.
    pub async fn volume(&self, name: &str, owner: Option<&str>) -> Result<ServerReply<Volume>> {
        self.ask(Method::GET, &at(name, owner)).await
    }

    /// Gives a volume another limit.
    pub async fn resize_volume(
        &self,
        name: &str,
        owner: Option<&str>,
        disk_mb: u64,
    ) -> Result<ServerReply<Volume>> {
        self.tell(Method::PATCH, &at(name, owner), &serde_json::json!({ "disk_mb": disk_mb })).await
    }

    /// Deletes a volume with all that it holds.
    pub async fn delete_volume(&self, name: &str, owner: Option<&str>) -> Result<()> {
        self.send(Method::DELETE, &at(name, owner), None, empty()).await.map(drop)
    }
}
