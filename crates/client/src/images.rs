//! Images, which sandboxes are made of.

use crate::{
    Client, Download, Result, ServerReply,
    client::{collect, empty},
    encode,
    files::streamed,
};
use bytes::Bytes;
use futures_util::Stream;
use hyper::Method;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io};
use uuid::Uuid;

pub(crate) const ROOT: &str = "/api/v1/sandbox-images";

/// An image.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Image {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub tags: Vec<String>,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub digest: Option<String>,
    #[serde(default)]
    pub size_bytes: Option<u64>,
    #[serde(default)]
    pub origin: String,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    pub approved: bool,
    /// Whether this key may use it.
    #[serde(default)]
    pub active: bool,
    /// Why it may not, as what follows the image's name in a sentence.
    #[serde(default)]
    pub refusal: Option<String>,
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(default)]
    pub env_vars: BTreeMap<String, String>,
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub working_directory: Option<String>,
    #[serde(default)]
    pub entrypoint: Vec<String>,
    #[serde(default)]
    pub command: Vec<String>,
    /// What each sandbox starts.
    #[serde(default)]
    pub start_command: Option<String>,
    /// What succeeds once a sandbox is ready.
    #[serde(default)]
    pub ready_check: Option<String>,
    #[serde(default)]
    pub ready_timeout_seconds: Option<u32>,
    #[serde(default)]
    pub ready_interval_ms: Option<u32>,
    #[serde(default)]
    pub memory_mb: Option<u64>,
    #[serde(default)]
    pub cpu_cores: Option<f64>,
    #[serde(default)]
    pub disk_mb: Option<u64>,
    /// What is installed, as far as that is known; not in lists.
    #[serde(default)]
    pub packages: Option<Vec<PackageVersion>>,
    /// What aliases promise and the image lacks.
    #[serde(default)]
    pub alias_notes: Vec<String>,
    #[serde(default)]
    pub warm_pool_min: u32,
    #[serde(default)]
    pub warm_pool_max: u32,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub last_used_at: Option<String>,
    /// For admins, and not in lists.
    #[serde(default)]
    pub used_by: Option<Vec<Uuid>>,
}

/// A package with its exact version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PackageVersion {
    pub manager: String,
    pub name: String,
    pub version: String,
}

/// All images.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ImageList {
    pub items: Vec<Image>,
}

/// How an archive becomes an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportImage {
    pub name: String,
    pub reference: Option<String>,
    pub replace: bool,
    pub disk_mb: Option<u64>,
}

/// Where an image is pushed to.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct PushImage {
    pub reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// An image that a registry has now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PushedImage {
    pub reference: String,
    pub digest: String,
    #[serde(default)]
    pub size_bytes: u64,
}

/// What to change; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PatchImage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool_min: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool_max: Option<u32>,
}

fn at(image: &str) -> String {
    format!("{ROOT}/{}", encode::path(image).replace('/', "%2F"))
}

impl Client {
    /// Lists images.
    pub async fn list_images(&self) -> Result<ServerReply<ImageList>> {
        self.ask(Method::GET, ROOT).await
    }

    /// One image by its name, its digest, its id or an alias.
    pub async fn image(&self, image: &str) -> Result<ServerReply<Image>> {
        self.ask(Method::GET, &at(image)).await
    }

    /// Makes an image from an archive.
    pub async fn import_image(
        &self,
        import: &ImportImage,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ServerReply<Image>> {
        let query = encode::query(&[
            ("name", Some(import.name.clone())),
            ("reference", import.reference.clone()),
            ("replace", import.replace.then(|| "true".to_owned())),
            ("disk_mb", import.disk_mb.map(|mb| mb.to_string())),
        ]);
        let (path, content) = (format!("{ROOT}/import{query}"), Some("application/x-tar"));
        let response = self.send(Method::POST, &path, content, streamed(body)).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }

    /// Reads an image as an OCI layout in a tar archive.
    pub async fn export_image(&self, image: &str) -> Result<Download> {
        let response = self.send(Method::GET, &format!("{}/export", at(image)), None, empty()).await?;
        Ok(Download { body: response.into_body() })
    }

    /// Pushes an image to a registry.
    pub async fn push_image(&self, image: &str, push: &PushImage) -> Result<ServerReply<PushedImage>> {
        self.tell(Method::POST, &format!("{}/push", at(image)), push).await
    }

    /// Changes what is known of an image.
    pub async fn patch_image(&self, image: &str, patch: &PatchImage) -> Result<ServerReply<Image>> {
        self.tell(Method::PATCH, &at(image), patch).await
    }

    /// Removes an image.
    pub async fn delete_image(&self, image: &str) -> Result<()> {
        self.send(Method::DELETE, &at(image), None, empty()).await.map(drop)
    }
}
