//! The vocabulary that every part of Atoll shares: ids, profiles, limits, errors.
//!
//! Nothing here does I/O, knows HTTP or gRPC, or starts a runtime. A type that comes from outside
//! validates itself when it is parsed, so that holding one means that it is well formed.

mod bucket;
mod death;
pub mod egress_address;
mod error;
mod exit_code;
mod id;
mod limits;
pub mod lines;
#[cfg(feature = "mac")]
mod mac;
mod operation;
mod profile;
mod refusal;
pub mod sse;
mod tier;
pub mod time;
mod usage;

pub use bucket::{Rate, TokenBucket};
pub use death::{Death, DeathKind};
pub use error::{Error, ErrorCode, Result};
pub use exit_code::ExitCode;
pub use id::{
    CellId, CheckpointId, ContainerId, ExecId, IdError, KernelId, KeyId, OperationId, SandboxId, VolumeId,
};
pub use limits::Limits;
#[cfg(feature = "mac")]
pub use mac::MacKey;
pub use operation::{Effect, Operation, Permission, Target};
pub use profile::{
    Capability, ImageName, Isolation, NameError, Profile, Profiles, RootMode, Seccomp, ShareMount, Storage,
    TmpfsSizes,
};
pub use refusal::Refusal;
pub use tier::{Ceiling, Network, Tier, TierError, Tiers};
pub use usage::Usage;
