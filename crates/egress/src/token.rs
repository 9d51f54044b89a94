//! Tokens for sandboxes that reach the proxy over a network, where no socket identifies the sandbox. A JSON Web
//! Token (HS256), sent as the password of `sandbox:jwt_<token>`. Anything that is not exactly such a token,
//! signed with the server's key and not expired, is refused: there is no list to fall back to.

use atoll_types::{Error, ErrorCode, MacKey, Result, time::now_s};
use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize, de};
use std::time::Duration;

/// The issuer, in every token.
pub(crate) const ISSUER: &str = "sandbox-egress-control";
/// How long a token is valid by default.
pub const LIFETIME: Duration = Duration::from_secs(4 * 60 * 60);

const MOST_BYTES: usize = 32 * 1024;
const USER: &str = "sandbox:jwt_";

/// The claims of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Always [`ISSUER`].
    pub iss: String,
    /// The session whose connections these are.
    pub session_id: String,
    /// For which tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The hosts that it is valid for, in the form of entries. A single `*` leaves all to the policy; an empty
    /// list allows nothing.
    #[serde(serialize_with = "joined", deserialize_with = "one_or_many")]
    pub allowed_hosts: Vec<String>,
    /// When it ends, in seconds since 1970.
    pub exp: u64,
}

#[derive(Debug, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default)]
    crit: Option<de::IgnoredAny>,
}

fn joined<S: serde::Serializer>(hosts: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hosts.join(","))
}

fn one_or_many<'de, D: de::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Hosts {
        Joined(String),
        List(Vec<String>),
    }
    let hosts = match Hosts::deserialize(deserializer)? {
        Hosts::Joined(text) => text.split(',').map(str::to_owned).collect(),
        Hosts::List(list) => list,
    };
    Ok(hosts.iter().map(|h| h.trim().to_owned()).filter(|h| !h.is_empty()).collect())
}

/// Why a client is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// It sent no token.
    #[error("a token is required")]
    Missing,
    /// The token is not one of this server's.
    #[error("the token is not valid")]
    Forged,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
}

/// Signs and verifies with one key.
#[derive(Debug, Clone)]
pub struct Tokens(MacKey);

impl Tokens {
    /// With a secret of at least 32 bytes.
    pub fn new(secret: &[u8]) -> Result<Self> {
        if secret.len() < 32 {
            return Err(Error::invalid("egress.token_secret", "the secret must have at least 32 bytes"));
        }
        Ok(Self(MacKey::new(secret)))
    }

    /// A token for a session.
    pub fn sign(
        &self,
        session: &str,
        tenant: Option<&str>,
        hosts: &[String],
        lifetime: Duration,
    ) -> Result<String> {
        if let Some(odd) = hosts.iter().find(|host| host.contains(',') || host.trim().is_empty()) {
            return Err(Error::invalid("allowed_hosts", format!("{odd:?} is not a host")));
        }
        let claims = Claims {
            iss: ISSUER.to_owned(),
            session_id: session.to_owned(),
            tenant_id: tenant.map(str::to_owned),
            allowed_hosts: hosts.to_vec(),
            exp: now_s().saturating_add(lifetime.as_secs()),
        };
        let claims = serde_json::to_vec(&claims)
            .map_err(|e| Error::new(ErrorCode::Internal, format!("cannot write a token: {e}")))?;
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", encode(br#"{"alg":"HS256","typ":"JWT"}"#), encode(&claims));
        Ok(format!("{signed}.{}", encode(&self.0.sign(&[signed.as_bytes()]))))
    }

    /// The claims of a token, if this server signed it and it has not expired.
    pub fn verify(&self, token: &str) -> Result<Claims, BadToken> {
        let (signed, tag) =
            token.rsplit_once('.').filter(|_| token.len() <= MOST_BYTES).ok_or(BadToken::Forged)?;
        let (header, claims) = signed.split_once('.').ok_or(BadToken::Forged)?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| BadToken::Forged);
        // The signature comes first: no byte of an unauthenticated client is parsed.
        if !self.0.verify(&[signed.as_bytes()], &decode(tag)?) {
            return Err(BadToken::Forged);
        }
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| BadToken::Forged)?;
        let Header { alg, typ, crit } = header;
        if alg != "HS256" || typ.is_some_and(|typ| typ != "JWT") || crit.is_some() {
            return Err(BadToken::Forged);
        }
        let claims: Claims = serde_json::from_slice(&decode(claims)?).map_err(|_| BadToken::Forged)?;
        match () {
            () if claims.iss != ISSUER || claims.session_id.is_empty() => Err(BadToken::Forged),
            () if claims.exp <= now_s() => Err(BadToken::Expired),
            () => Ok(claims),
        }
    }

    /// The claims of a request's `Proxy-Authorization` header.
    pub fn verify_header(&self, value: Option<&str>) -> Result<Claims, BadToken> {
        let value = value.ok_or(BadToken::Missing)?;
        let (scheme, credentials) = value.split_once(' ').ok_or(BadToken::Forged)?;
        if !scheme.eq_ignore_ascii_case("basic") || credentials.len() > 2 * MOST_BYTES {
            return Err(BadToken::Forged);
        }
        let bytes = BASE64_STANDARD.decode(credentials.trim()).map_err(|_| BadToken::Forged)?;
        let text = String::from_utf8(bytes).map_err(|_| BadToken::Forged)?;
        self.verify(text.strip_prefix(USER).ok_or(BadToken::Forged)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn tokens() -> Tokens {
        Tokens::new(SECRET).unwrap()
    }

    /// A token with any header and claims, correctly signed.
    fn with(header: &str, claims: &str) -> String {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        format!("{signed}.{}", encode(&MacKey::new(SECRET).sign(&[signed.as_bytes()])))
    }

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    #[test]
    fn a_token_says_what_was_signed() {
        let hosts = ["a.example".to_owned(), "*.b.example".to_owned()];
        let token = tokens().sign("s1", Some("t1"), &hosts, LIFETIME).unwrap();
        let claims = tokens().verify(&token).unwrap();
        assert_eq!((claims.session_id.as_str(), claims.tenant_id.as_deref()), ("s1", Some("t1")));
        assert_eq!(claims.allowed_hosts, hosts);
        assert!(claims.exp > now_s() + 4 * 60 * 60 - 60);
        let middle = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&middle).unwrap();
        assert_eq!(json["allowed_hosts"], "a.example,*.b.example", "a joined text, as the reference has it");
        assert_eq!(json["iss"], ISSUER);
    }

    #[test]
    fn hosts_may_be_a_list() {
        let claims =
            format!(r#"{{"iss":"{ISSUER}","session_id":"s","allowed_hosts":["a"," b "],"exp":9999999999}}"#);
        assert_eq!(tokens().verify(&with(HEADER, &claims)).unwrap().allowed_hosts, ["a", "b"]);
    }

    #[test]
    fn whatever_is_not_ours_is_refused() {
        let good = format!(r#"{{"iss":"{ISSUER}","session_id":"s","allowed_hosts":"a","exp":9999999999}}"#);
        assert!(tokens().verify(&with(HEADER, &good)).is_ok());
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"None","typ":"JWT"}"#,
            r#"{"alg":"HS512"}"#,
            r#"{"alg":"RS256"}"#,
            "{}",
            "[]",
            "",
            r#"{"alg":"HS256","crit":["x"]}"#,
        ] {
            assert_eq!(tokens().verify(&with(header, &good)), Err(BadToken::Forged), "{header}");
        }
        for claims in [
            good.replace(ISSUER, "somebody"),
            good.replace("\"s\"", "\"\""),
            good.replace("9999999999", "-1"),
            good.replace("9999999999", "\"9999999999\""),
            r#"{"session_id":"s","allowed_hosts":"a","exp":9999999999}"#.to_owned(),
            format!(r#"{{"iss":"{ISSUER}","session_id":"s","allowed_hosts":"a"}}"#),
        ] {
            assert_eq!(tokens().verify(&with(HEADER, &claims)), Err(BadToken::Forged), "{claims}");
        }
        let past = with(HEADER, &good.replace("9999999999", "1"));
        assert_eq!(tokens().verify(&past), Err(BadToken::Expired));
    }

    #[test]
    fn a_changed_or_foreign_signature_is_refused() {
        let token = tokens().sign("s", None, &[], LIFETIME).unwrap();
        let (signed, tag) = token.rsplit_once('.').unwrap();
        let other = Tokens::new(&[7; 32]).unwrap();
        assert_eq!(other.verify(&token), Err(BadToken::Forged));
        let unsigned = format!("{}.{}.", BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), "e30");
        for odd in
            ["", ".", "..", "a.b.c", signed, &format!("{signed}."), &format!("x{signed}.{tag}"), &unsigned]
        {
            assert_eq!(tokens().verify(odd), Err(BadToken::Forged), "{odd}");
        }
        assert!(Tokens::new(b"short").is_err());
    }

    #[test]
    fn credentials_are_those_of_the_reference() {
        let token = tokens().sign("s", None, &[], LIFETIME).unwrap();
        let header = |text: String| format!("Basic {}", BASE64_STANDARD.encode(text));
        assert!(tokens().verify_header(Some(&header(format!("sandbox:jwt_{token}")))).is_ok());
        assert_eq!(tokens().verify_header(None), Err(BadToken::Missing));
        for odd in [
            header(format!("sandbox:{token}")),
            header(format!("other:jwt_{token}")),
            format!("Bearer {token}"),
            "Basic".to_owned(),
            "Basic ???".to_owned(),
        ] {
            assert_eq!(tokens().verify_header(Some(&odd)), Err(BadToken::Forged), "{odd}");
        }
    }
}
