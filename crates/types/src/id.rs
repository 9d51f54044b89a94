//! Ids. Each is a UUID in its 32-digit form, so that it is safe as a file name, a cgroup name and a
//! socket name; nothing longer, shorter or differently spelled is accepted.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an id: expected 32 lower-case hexadecimal digits")]
pub struct IdError;

/// An id as a regular expression.
pub const ID_PATTERN: &str = "^[0-9a-f]{32}$";

fn parse(text: &str) -> Result<Uuid, IdError> {
    let plain = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !plain {
        return Err(IdError);
    }
    Uuid::try_parse(text).map_err(|_| IdError)
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Uuid);

        impl $name {
            /// A new random id.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }

            /// The id that belongs to this UUID.
            #[must_use]
            pub fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID behind the id.
            #[must_use]
            pub fn uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                parse(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.to_string()
            }
        }
    };
}

id!(
    /// The durable record and its volume.
    SandboxId
);
id!(
    /// One API key; never the key itself.
    KeyId
);
id!(
    /// One running incarnation of a sandbox.
    ContainerId
);
id!(
    /// What survives stop and restart: /workspace and home.
    VolumeId
);
id!(
    /// A volume as it was. The caller chooses it, so that a request can be repeated safely.
    SnapshotId
);
id!(
    /// A preview token; never the token itself.
    PreviewTokenId
);
id!(
    /// A skill: a package of instructions and files for agents.
    SkillId
);
id!(
    /// A read-only root filesystem: a volume that was sealed. The caller chooses it, so that a seal can be repeated safely.
    ImageId
);
id!(
    /// One command. The caller chooses it, so that a start can be repeated safely.
    ExecId
);
id!(
    /// One live interpreter.
    KernelId
);
id!(
    /// One piece of code that an interpreter runs. The caller chooses it, as that of a command.
    CellId
);
id!(
    /// An interpreter as it was.
    CheckpointId
);
id!(
    /// The making of one image.
    BuildId
);
id!(
    /// A configuration of the agent.
    AssistantId
);
id!(
    /// The agent at work in a thread, from an input to an answer.
    RunId
);
id!(
    /// A thread's state after a step.
    ThreadCheckpointId
);
id!(
    /// One operation of a caller, from its first audit row to its last.
    OperationId
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn round_trips_and_refuses_other_spellings() {
        let id = ContainerId::random();
        assert_eq!(id.to_string().parse::<ContainerId>(), Ok(id));
        for bad in ["", "..", "/", &id.to_string().to_uppercase(), &id.uuid().hyphenated().to_string()] {
            // An id without a letter has no other upper case.
            if bad != id.to_string() {
                assert_eq!(bad.parse::<ContainerId>(), Err(IdError), "{bad:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn anything_accepted_is_a_plain_file_name(text in ".{0,40}") {
            if let Ok(id) = text.parse::<VolumeId>() {
                prop_assert_eq!(id.to_string(), text.clone());
                prop_assert!(text.bytes().all(|b| b.is_ascii_hexdigit()));
            }
        }
    }
}
