//! Thirty-two bytes, written as 64 lower-case hexadecimal digits.

use crate::text::hex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, str::FromStr};

/// Why a text is not a hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lower-case hexadecimal digits")]
pub struct HashError;

fn digit(byte: u8) -> Result<u8, HashError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(HashError),
    }
}

fn parse(text: &str) -> Result<[u8; 32], HashError> {
    let digits: &[u8; 64] = text.as_bytes().try_into().map_err(|_| HashError)?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

macro_rules! hash {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; 32]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $name {
            type Err = HashError;
            fn from_str(text: &str) -> Result<Self, HashError> {
                parse(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

hash!(
    /// The MAC of a row and, through the chain, of every row before it.
    Mac
);
hash!(
    /// The hash of something that may not have been stored whole.
    Sha256
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leads_back_and_other_spellings_are_refused() {
        let mac = Mac(std::array::from_fn(|n| n as u8 * 7));
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for bad in ["", "00", &"A".repeat(64), &"é".repeat(32), &format!("{mac}0")] {
            assert_eq!(bad.parse::<Mac>(), Err(HashError), "{bad}");
        }
    }
}
