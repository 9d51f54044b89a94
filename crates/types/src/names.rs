//! Closed sets of names, each with the spelling that databases and wires share. A spelling never
//! changes: old rows carry it.

/// One such set.
#[macro_export]
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// Every one, for tables that must be complete.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// Its spelling.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The one with this spelling.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Self::from_name(&name).ok_or_else(|| serde::de::Error::custom("an unknown name"))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{
        ActivityKind, AutoSnapshot, Scope, SnapshotKind, SortBy, Status,
        audit::{NoteKind, Outcome, Part},
    };

    #[test]
    fn spellings_are_unique_and_lead_back() {
        for status in Status::ALL {
            assert_eq!(Status::from_name(status.as_str()), Some(*status));
        }
        for kind in ActivityKind::ALL {
            assert_eq!(ActivityKind::from_name(kind.as_str()), Some(*kind));
        }
        for scope in Scope::ALL {
            assert_eq!(Scope::from_name(scope.as_str()), Some(*scope));
        }
        for sort in SortBy::ALL {
            assert_eq!(SortBy::from_name(sort.as_str()), Some(*sort));
        }
        for part in Part::ALL {
            assert_eq!(Part::from_name(part.as_str()), Some(*part));
        }
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_name(outcome.as_str()), Some(*outcome));
        }
        for kind in SnapshotKind::ALL {
            assert_eq!(SnapshotKind::from_name(kind.as_str()), Some(*kind));
        }
        for when in AutoSnapshot::ALL {
            assert_eq!(AutoSnapshot::from_name(when.as_str()), Some(*when));
        }
        for kind in NoteKind::ALL {
            assert_eq!(NoteKind::from_name(kind.as_str()), Some(*kind));
        }
        for never_written in ["Ready", "running", "error"] {
            assert_eq!(Status::from_name(never_written), None);
        }
    }
}
