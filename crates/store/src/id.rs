//! Ids of what only the control plane knows. Spelled like those of `atoll-types`: 32 lower-case
//! hexadecimal digits, and no other way.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

pub use atoll_types::IdError;

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
                let id = Self(Uuid::try_parse(text).map_err(|_| IdError)?);
                if id.to_string() == text { Ok(id) } else { Err(IdError) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        let id = SandboxId::from_uuid(Uuid::from_u128(0xabc));
        assert_eq!(id.to_string().parse(), Ok(id));
        for other in [id.uuid().hyphenated().to_string(), id.to_string().to_uppercase(), String::new()] {
            assert_eq!(other.parse::<SandboxId>(), Err(IdError), "{other}");
        }
    }
}
