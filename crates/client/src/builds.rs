//! Pulls of images, and the builds that make them.

use crate::{
    Client, Result, ServerReply,
    client::{collect, empty},
    images::ROOT,
    sse::{Events, wrong},
};
use hyper::{Method, header::ACCEPT};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Far more than a piece of a log needs.
const LARGEST_EVENT: usize = 1 << 20;

/// An image to pull.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
pub struct PullImage {
    pub reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// As a create does: only where the server lets this key.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_use: bool,
}

/// How far a build is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct BuildProgress {
    #[serde(default)]
    pub done_bytes: u64,
    #[serde(default)]
    pub total_bytes: u64,
    #[serde(default)]
    pub step: u32,
    #[serde(default)]
    pub steps: u32,
}

/// The making of an image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Build {
    pub build_id: Uuid,
    pub image_id: Uuid,
    pub name: String,
    pub tag: String,
    #[serde(default)]
    pub origin: String,
    #[serde(default)]
    pub source: String,
    /// running, done, failed or cancelled.
    pub status: String,
    #[serde(default)]
    pub error: Option<String>,
    #[serde(default)]
    pub progress: Option<BuildProgress>,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub ended_at: Option<String>,
}

/// Builds, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BuildList {
    pub items: Vec<Build>,
}

/// What a build that is followed says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEvent {
    /// Some of its log, and where another stream resumes after it.
    Log {
        text: String,
        next: Option<u64>,
    },
    Progress(BuildProgress),
    /// It has ended; with the build as the server sent it.
    End {
        build: Box<Build>,
        json: String,
    },
}

/// The log of a build as it comes.
#[derive(Debug)]
pub struct BuildEvents(Events);

impl BuildEvents {
    /// What comes next; none where the stream is over.
    pub async fn next(&mut self) -> Result<Option<BuildEvent>> {
        #[derive(Deserialize)]
        struct Text {
            text: String,
        }
        #[derive(Deserialize)]
        struct Failed {
            message: String,
        }
        while let Some(event) = self.0.next().await? {
            let Some(data) = event.data else { continue };
            return Ok(Some(match event.event.as_deref() {
                Some("log") => {
                    let Text { text } = serde_json::from_str(&data).map_err(wrong)?;
                    BuildEvent::Log { text, next: event.id.and_then(|id| id.parse().ok()) }
                }
                Some("progress") => BuildEvent::Progress(serde_json::from_str(&data).map_err(wrong)?),
                Some("end") => {
                    let build = Box::new(serde_json::from_str(&data).map_err(wrong)?);
                    BuildEvent::End { build, json: data }
                }
                Some("error") => {
                    let Failed { message } = serde_json::from_str(&data).map_err(wrong)?;
                    return Err(wrong(message));
                }
                _ => continue,
            }));
        }
        Ok(None)
    }
}

fn at(id: Uuid) -> String {
    format!("{ROOT}/builds/{id}")
}

impl Client {
    /// Pulls an image in the background.
    pub async fn pull_image(&self, pull: &PullImage) -> Result<ServerReply<Build>> {
        self.tell(Method::POST, &format!("{ROOT}/pull"), pull).await
    }

    /// The builds that this key sees.
    pub async fn list_builds(&self) -> Result<ServerReply<BuildList>> {
        self.ask(Method::GET, &format!("{ROOT}/builds")).await
    }

    /// One build.
    pub async fn build(&self, id: Uuid) -> Result<ServerReply<Build>> {
        self.ask(Method::GET, &at(id)).await
    }

    /// Cancels a build that runs; removes the record of one that has ended.
    pub async fn cancel_build(&self, id: Uuid) -> Result<()> {
        self.send(Method::DELETE, &at(id), None, empty()).await.map(drop)
    }

    /// What there is of a build's log.
    pub async fn build_log(&self, id: Uuid) -> Result<String> {
        let response = self.send(Method::GET, &format!("{}/log", at(id)), None, empty()).await?;
        Ok(String::from_utf8_lossy(&collect(response).await?).into_owned())
    }

    /// A build's log to its end; after `resume`, where an earlier stream ended.
    pub async fn follow_build(&self, id: Uuid, resume: Option<u64>) -> Result<BuildEvents> {
        let mut builder = self.request(Method::GET, &format!("{}/log?follow=true", at(id)));
        if let Some(headers) = builder.headers_mut() {
            headers.insert(ACCEPT, hyper::header::HeaderValue::from_static("text/event-stream"));
            if let Some(at) = resume {
                headers.insert("last-event-id", at.into());
            }
        }
        let response = self.answer(builder, empty()).await?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        Ok(BuildEvents(Events::new(response.into_body(), LARGEST_EVENT)))
    }
}
