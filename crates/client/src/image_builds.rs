//! Images from templates and Dockerfiles.

use crate::{
    Build, Client, EgressPolicy, Result, ServerReply, client::collect, encode, files::streamed, images::ROOT,
};
use bytes::Bytes;
use futures_util::Stream;
use hyper::Method;
use serde::Serialize;
use std::{collections::BTreeMap, io};

/// An image to build of a template that ships, of one that is sent, or of a Dockerfile's text.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct BuildImage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool_min: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_pool_max: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_cache: bool,
    /// Exact versions, as `packages` of an image has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<serde_json::Value>,
}

/// An image to build of files, a Dockerfile or a template among them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildImageOfFiles {
    pub name: Option<String>,
    pub file: Option<String>,
    pub args: BTreeMap<String, String>,
    pub replace: bool,
    pub disk_mb: Option<u64>,
    pub memory_mb: Option<u64>,
    pub cpu_cores: Option<f64>,
    pub egress: Option<EgressPolicy>,
    pub no_cache: bool,
    /// A file among the files with exact versions, as JSON.
    pub lock: Option<String>,
    pub warm_pool_min: Option<u32>,
    pub warm_pool_max: Option<u32>,
}

impl Client {
    /// Builds an image in the background.
    pub async fn build_image(&self, build: &BuildImage) -> Result<ServerReply<Build>> {
        self.tell(Method::POST, ROOT, build).await
    }

    /// The same with files, as a tar archive.
    pub async fn build_image_of_files(
        &self,
        build: &BuildImageOfFiles,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<ServerReply<Build>> {
        let args = (!build.args.is_empty()).then(|| serde_json::to_string(&build.args).unwrap_or_default());
        let egress = build.egress.as_ref().map(|policy| serde_json::to_string(policy).unwrap_or_default());
        let yes = |is: bool| is.then(|| "true".to_owned());
        let query = encode::query(&[
            ("name", build.name.clone()),
            ("file", build.file.clone()),
            ("args", args),
            ("replace", yes(build.replace)),
            ("disk_mb", build.disk_mb.map(|mb| mb.to_string())),
            ("memory_mb", build.memory_mb.map(|mb| mb.to_string())),
            ("cpu_cores", build.cpu_cores.map(|cores| cores.to_string())),
            ("egress", egress),
            ("no_cache", yes(build.no_cache)),
            ("lock", build.lock.clone()),
            ("warm_pool_min", build.warm_pool_min.map(|count| count.to_string())),
            ("warm_pool_max", build.warm_pool_max.map(|count| count.to_string())),
        ]);
        let (path, content) = (format!("{ROOT}/build{query}"), Some("application/x-tar"));
        let response = self.send(Method::POST, &path, content, streamed(body)).await?;
        ServerReply::parse(response.status().as_u16(), collect(response).await?)
    }
}
