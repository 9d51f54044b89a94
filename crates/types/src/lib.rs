//! The vocabulary that every part of Atoll shares: ids, profiles, limits, errors, and the records that the
//! core hands to its fronts. A record is never what a front sends: fronts have their own types.
//!
//! Nothing here does I/O, knows HTTP or gRPC, or starts a runtime. A type that comes from outside validates
//! itself when it is parsed, so that holding one means that it is well formed.

mod activity;
pub mod attachment;
pub mod audit;
mod bucket;
pub mod conversation;
mod death;
pub mod egress_address;
mod error;
mod event;
mod exec;
mod exit_code;
pub mod files;
mod id;
mod image;
mod image_record;
mod image_start;
mod key;
pub mod limits;
pub mod lines;
mod list;
#[cfg(feature = "mac")]
mod mac;
mod mcp;
mod names;
mod object;
mod operation;
pub mod packages;
pub mod passwd;
mod preview;
mod profile;
mod refusal;
mod reply;
mod sandbox;
mod sealed;
mod skill;
mod snapshot;
pub mod sse;
pub mod text;
mod text_decoder;
mod tier;
pub mod time;
mod usage;

pub use activity::{Activity, ActivityEntry, ActivityKind, Counted, DETAIL_BYTES};
pub use attachment::{PathRule, PathRules, TENANT_PATH, VolumeMount, VolumeRecord};
pub use bucket::{Rate, TokenBucket};
pub use conversation::ThreadId;
pub use death::{Death, DeathKind};
pub use error::{Error, ErrorCode, Result, with_field};
pub use event::{EventKind, EventPage, EventQuery, EventRow, NewEvent};
pub use exec::{
    ExecReport, LONGEST_USER, OutputStream, StartFailure, StartStage, TerminalSize, USER_PATTERN,
};
pub use exit_code::ExitCode;
pub use id::{
    AssistantId, BuildId, CellId, CheckpointId, ContainerId, ExecId, ID_PATTERN, IdError, ImageId, KernelId,
    KeyId, OperationId, PreviewTokenId, RunId, SandboxId, SkillId, SnapshotId, ThreadCheckpointId, VolumeId,
};
pub use image::ImageUsage;
pub use image_record::{
    BuildProgress, BuildRecord, BuildState, BuildStepRecord, IMAGE_NAME_PATTERN, ImageConfig, ImageDefaults,
    ImageOrigin, ImageRecord, ImageTag, InstalledPackage, LONGEST_IMAGE_NAME, LONGEST_TAG, TAG_PATTERN,
    is_image_name, is_tag,
};
pub use image_start::{ImageStart, READY_INTERVAL_MS, READY_TIMEOUT_SECONDS, ReadyCheck};
pub use key::{ApiKey, ConsoleSession, KeyHash, Scope};
pub use limits::Limits;
pub use list::{ListQuery, Page, SortBy};
#[cfg(feature = "mac")]
pub use mac::MacKey;
pub use mcp::McpSession;
pub use operation::{Effect, LegalStates, Operation, Permission, Target};
pub use preview::PreviewTokenRecord;
pub use profile::{
    Capability, ImageName, Isolation, NameError, Profile, Profiles, ProviderName, RootMode, Seccomp,
    ShareMount, Storage, TmpfsSizes, VolumeName,
};
pub use refusal::Refusal;
pub use reply::{REPLY_BYTES, ReplyState, StoredReply, Ticket};
pub use sandbox::{SandboxRecord, Status};
pub use sealed::Sealed;
pub use skill::{
    InstalledSkill, SKILL_NAME_PATTERN, SkillName, SkillNameError, SkillPage, SkillQuery, SkillRecord,
    SkillSource,
};
pub use snapshot::{
    AutoSnapshot, KernelCheckpoint, Snapshot, SnapshotKernels, SnapshotKind, SnapshotPage, SnapshotQuery,
    SnapshotRecord,
};
pub use text_decoder::TextDecoder;
pub use tier::{Ceiling, Network, Tier, TierError, Tiers};
pub use usage::Usage;

/// Milliseconds since 1970.
pub type Millis = i64;
