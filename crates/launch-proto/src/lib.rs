//! The protocol between the server and the root launcher.
//!
//! One connection carries one request and its answer. A request carries ids and names, never a host
//! path and never a descriptor; an answer may have descriptors beside its first byte, as many as it
//! says ([`LauncherReply::descriptors`]). Nothing here does I/O: it turns messages into frames and back, and
//! the launcher's side treats every frame as hostile.

mod frame;
mod layout;
mod message;
mod observer_messages;
mod spool;

pub use frame::{FrameError, HEADER, MAX_ANSWER, MAX_REQUEST, decode, encode, frame_length};
pub use layout::Layout;
pub use message::{
    ContainerState, ContainerStatus, CreateRequest, DiffRequest, Envelope, Family, ForkRequest,
    ImageVolumeRequest, Launcher, LauncherAnswer, LauncherReply, Quota, Report, Request, SealRequest,
    SnapshotRequest, SocketsRequest, TrustRequest, VolumeStatus,
};
pub use observer_messages::{OBSERVER_PROTOCOL, ObserveAnswer, ObserveRequest};
pub use spool::{output_bytes, spool_bytes};

/// The oldest protocol that this release still speaks.
pub const MIN_PROTOCOL: u32 = 1;
/// The newest. The second has snapshots, volumes that containers attach beside their own, and paths with a rule; the third
/// has images that were sealed; the fourth attaches whole volumes; the fifth tells deaths by pidfd.
pub const MAX_PROTOCOL: u32 = 5;

/// The most descriptors that come with one answer.
pub const MAX_DESCRIPTORS: usize = 32;

/// The most containers whose usage is in one answer; they fit into it.
pub const MAX_USAGES: usize = 4096;

/// The longest certificate that the server may add to what containers trust. It fits into a request.
pub const MAX_CERTIFICATE: usize = 32 * 1024;
