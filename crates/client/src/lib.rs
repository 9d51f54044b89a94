//! A typed client of Atoll's own REST API. Its wire types are its own and ignore fields that they do not
//! know, so an older client works with a newer server. It never prints, retries or reads the environment;
//! paths go to the server exactly as they were given.

mod audit;
mod builds;
mod client;
mod conversations;
mod egress;
mod encode;
mod error;
mod events;
mod exec;
mod execs;
mod files;
mod folders;
mod image_builds;
mod images;
mod kernels;
mod keys;
mod mcp;
mod pool;
mod ports;
mod reply;
mod sandboxes;
mod settings;
mod skills;
mod snapshots;
mod sse;
mod terminal;
mod transfer;
mod transport;
mod usage;
mod volumes;

pub use atoll_types::TerminalSize;
pub use audit::{
    AuditCleaned, AuditEnd, AuditEntry, AuditError, AuditFault, AuditKept, AuditOutputs, AuditPage,
    AuditSummary, AuditTally, AuditVerdict, ListAudit,
};
pub use builds::{Build, BuildEvent, BuildEvents, BuildList, BuildProgress, PullImage};
pub use client::Client;
pub use conversations::{Conversation, RunAgent, RunEvent, RunEvents, UploadedFile};
pub use egress::{
    EgressDecision, EgressEntry, EgressInfo, EgressLog, EgressPolicy, EgressPreset, EgressRefusals,
    ListEgress,
};
pub use error::{ApiError, Error, Result};
pub use events::{EventItem, EventList, EventStream, HeardEvent, ListEvents};
pub use exec::{ExecRequest, ExecResult};
pub use execs::{Event, Exec, ExecEvent, ExecEvents, ExecFailure, OutputStream};
pub use files::{Download, FileHistory, FileHistoryEntry, FileItem};
pub use folders::{
    FindRequest, FindResult, Found, GrepRequest, GrepResult, Match, Unpacked, WatchEvent, WatchStream,
};
pub use hyper::Method;
pub use image_builds::{BuildImage, BuildImageOfFiles};
pub use images::{Image, ImageList, ImportImage, PackageVersion, PatchImage, PushImage, PushedImage};
pub use kernels::{
    CellError, CellEvent, CellEvents, CellResult, Checkpoint, Completion, Display, Kernel, RunCode,
    StartKernel,
};
pub use keys::{CreateKey, IssuedKey, Key, KeyPage};
pub use mcp::{McpAnswer, McpEvent, McpHeaders};
pub use pool::{Drained, PatchPool, Pool, PoolFailure, PoolKey, PoolSize};
pub use ports::{CreatePreviewToken, Forward, PreviewToken, ValidPreviewToken};
pub use reply::ServerReply;
pub use sandboxes::{Activity, CreateSandbox, ListSandboxes, PatchSandbox, Sandbox, SandboxPage};
pub use skills::{ExtractionError, InstalledSkills, ListSkills, SandboxSkill, Skill, SkillPage};
pub use snapshots::{
    DiffFile, ForkSandbox, NewSnapshot, Rollback, RolledBack, Snapshot, SnapshotDiff, SnapshotKernel,
    SnapshotPage,
};
pub use terminal::{OpenTerminal, Terminal, TerminalEvent, TerminalInput, TerminalOutput};
pub use tokio_tungstenite::tungstenite;
pub use transfer::Imported;
pub use usage::{Metrics, Usage};
pub use uuid::Uuid;
pub use volumes::{AttachedVolume, CreateVolume, Filesystem, Volume, VolumePage};
