//! The protocol between the host and atoll-init: the gRPC messages, the configuration that PID 1 is started with,
//! and how an error is carried in a status.
//!
//! `gen/` is written from `proto/guest.proto` by this crate's test (`ATOLL_BLESS=1`), so that no
//! build needs a protocol compiler.

mod config;
mod descriptors;
mod status;

/// The generated messages and services.
#[allow(unreachable_pub, clippy::all)]
#[rustfmt::skip]
pub mod v1 {
    include!("gen/atoll.guest.v1.rs");
}

pub use config::{CONFIG_VARIABLE, FileAreaConfig, GuestConfig, Listen};
pub use descriptors::{
    DESCRIPTOR_MAGIC, FEATURE_DESCRIPTORS, FRAME_HEADER, LARGEST_FRAME, frame_length, from_frame, to_frame,
};
pub use status::{from_failure, from_status, is_spoken, to_failure, to_status};

/// The oldest protocol that this release still speaks.
pub const MIN_PROTOCOL: u32 = 1;
/// The newest.
pub const MAX_PROTOCOL: u32 = 1;

/// Commands can have a terminal.
pub const FEATURE_TERMINAL: &str = "terminal";
/// PID 1 finds the command that owns a socket.
pub const FEATURE_SOCKETS: &str = "sockets";
/// PID 1 has programs of its own.
pub const FEATURE_TOOLS: &str = "tools";
/// One of them keeps live interpreters, and a tool may have the sandbox's variables.
pub const FEATURE_KERNELS: &str = "kernels";

/// The highest protocol that both sides have.
#[must_use]
pub fn negotiate(theirs: std::ops::RangeInclusive<u32>, ours: std::ops::RangeInclusive<u32>) -> Option<u32> {
    let best = *theirs.end().min(ours.end());
    (best >= *theirs.start() && best >= *ours.start()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::negotiate;

    #[test]
    fn the_highest_common_protocol_wins() {
        assert_eq!(negotiate(1..=1, 1..=1), Some(1));
        assert_eq!(negotiate(1..=2, 1..=1), Some(1));
        assert_eq!(negotiate(1..=3, 2..=5), Some(3));
        assert_eq!(negotiate(1..=1, 2..=3), None);
        assert_eq!(negotiate(4..=5, 1..=3), None);
    }
}
