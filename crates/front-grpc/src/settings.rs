//! What the operator decides for sessions over gRPC.

use atoll_types::Limits;

/// What the operator decides for sessions over gRPC.
#[derive(Debug, Clone, PartialEq)]
pub struct GrpcSettings {
    /// The image of sessions; the server's default image where none is named.
    pub image: Option<String>,
    /// The profile of sessions. Only that of a profile whose user is root makes commands root.
    pub profile: String,
    /// The OCI runtime of sessions; the built-in isolation where none is named.
    pub runtime: Option<String>,
    /// How long a session may be idle.
    pub idle_seconds: u32,
    /// The limits of sessions, as far as the caller's tier allows them.
    pub limits: Limits,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        Self {
            image: None,
            profile: "default".into(),
            runtime: None,
            idle_seconds: 1800,
            limits: Limits { memory_bytes: 4 << 30, cpu_millis: 4000, ..Limits::default() },
        }
    }
}
