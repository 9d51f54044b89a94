//! Digests: sha256 in lower case, the one algorithm that registries use.

use atoll_types::{Error, text::hex};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use std::{fmt, str::FromStr};

const PREFIX: &str = "sha256:";

/// The digest of a blob, `sha256:…`. A value of this type is safe as a file's name by its [`Digest::hex`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 64 digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    /// All of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        match text.strip_prefix(PREFIX) {
            Some(hex) if hex.len() == 64 && hex.bytes().all(lower) => Ok(Self(text.into())),
            _ => Err(Error::invalid(
                "digest",
                "a digest must be sha256: and 64 hexadecimal digits in lower case",
            )),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Bytes on their way to a digest.
#[derive(Clone, Default)]
pub struct Hasher(sha2::Sha256);

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all of them.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(format!("{PREFIX}{}", hex(&self.0.finalize())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_in_lower_case_is_a_digest() {
        let empty = Digest::of(b"");
        assert_eq!(empty.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(empty.to_string().parse::<Digest>().unwrap(), empty);
        let upper = format!("sha256:{}", empty.hex().to_uppercase());
        let long = format!("{empty}0");
        let path = format!("sha256:../{}", &empty.hex()[3..]);
        for bad in ["", "sha256:", "sha512:00", &upper, &long, &path] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
