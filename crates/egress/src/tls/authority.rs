//! The authority that signs for inspected hosts. Its key never leaves this machine, and sandboxes trust no other
//! for this. Certificates are made when they are needed and cached for a while.

use super::provider;
use crate::Host;
use atoll_types::{Error, ErrorCode, Result, text::hex};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    RootCertStore, ServerConfig,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject},
};
use std::{
    collections::HashMap,
    fmt, fs, io,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use time::OffsetDateTime;

const CERTIFICATE: &str = "egress-ca.pem";
const KEY: &str = "egress-ca.key";
/// Certificates kept at one time.
const MOST_KEPT: usize = 512;
/// How long one is used. It is valid for longer, so that no client sees it expire.
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Signs for hosts.
#[derive(Clone)]
pub struct Authority(Arc<Inner>);

struct Inner {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    /// One key for every host: all of them are held by this process anyway.
    leaf: KeyPair,
    kept: Mutex<HashMap<Host, (Instant, Arc<ServerConfig>)>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

fn failed(what: &str) -> impl Fn(rcgen::Error) -> Error {
    move |e| Error::new(ErrorCode::Internal, format!("cannot make {what}: {e}"))
}

/// The same for the same key, so that the certificate need not be read to sign in its name.
fn params(key: &KeyPair) -> CertificateParams {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
    let id = hex(&digest.as_ref()[..6]);
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Atoll");
    name.push(DnType::CommonName, format!("Atoll egress authority {id}"));
    let mut params = CertificateParams::default();
    params.distinguished_name = name;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Authority {
    /// Reads the authority of a folder, or makes one there. The key is readable by its owner alone.
    pub fn load_or_create(folder: &Path) -> Result<Self> {
        let cannot =
            |e: io::Error| Error::new(ErrorCode::Internal, format!("cannot keep the egress authority: {e}"));
        let (key, certificate) = (folder.join(KEY), folder.join(CERTIFICATE));
        match fs::read_to_string(&key) {
            Ok(key) => Self::new(&key, fs::read_to_string(&certificate).map_err(cannot)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let pair = KeyPair::generate().map_err(failed("a key"))?;
                let mut params = params(&pair);
                let now = OffsetDateTime::now_utc();
                params.not_before = now - time::Duration::days(1);
                params.not_after = now + time::Duration::days(3650);
                let made = params.self_signed(&pair).map_err(failed("an authority"))?;
                // The key last: a folder that has it is complete.
                write(&certificate, &made.pem(), 0o644).map_err(cannot)?;
                write(&key, &pair.serialize_pem(), 0o600).map_err(cannot)?;
                Self::new(&pair.serialize_pem(), made.pem())
            }
            Err(e) => Err(cannot(e)),
        }
    }

    fn new(key: &str, certificate: String) -> Result<Self> {
        let key = KeyPair::from_pem(key).map_err(failed("use of the egress authority's key"))?;
        let issuer = Issuer::new(params(&key), key);
        let leaf = KeyPair::generate().map_err(failed("a key"))?;
        let authority = Self(Arc::new(Inner { certificate, issuer, leaf, kept: Mutex::default() }));
        authority.check()?;
        Ok(authority)
    }

    /// Whether a client that trusts the certificate accepts what the key signs.
    fn check(&self) -> Result<()> {
        let odd = || {
            let message = "the egress authority's certificate does not belong to its key, or has ended; \
                           move both away to get new ones";
            Error::new(ErrorCode::Internal, message)
        };
        let root = CertificateDer::from_pem_slice(self.0.certificate.as_bytes()).map_err(|_| odd())?;
        let mut roots = RootCertStore::empty();
        roots.add(root).map_err(|_| odd())?;
        let leaf = self.sign(&Host::Name("check.invalid".to_owned()))?;
        let name = ServerName::try_from("check.invalid").map_err(|_| odd())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        let verifier = verifier.map_err(|_| odd())?;
        verifier.verify_server_cert(&leaf, &[], &name, &[], UnixTime::now()).map(|_| ()).map_err(|_| odd())
    }

    /// The certificate that sandboxes trust.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.0.certificate
    }

    fn sign(&self, host: &Host) -> Result<CertificateDer<'static>> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into().map_err(failed("a certificate"))?),
            Host::Address(address) => SanType::IpAddress(*address),
        }];
        let now = OffsetDateTime::now_utc();
        params.not_before = now - time::Duration::days(1);
        params.not_after = now + time::Duration::days(7);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let made = params.signed_by(&self.0.leaf, &self.0.issuer).map_err(failed("a certificate"))?;
        Ok(made.der().clone())
    }

    /// The server's side of TLS for a host.
    pub(crate) fn config(&self, host: &Host) -> Result<Arc<ServerConfig>> {
        let kept = || self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, config)) = kept().get(host)
            && made.elapsed() < KEPT_FOR
        {
            return Ok(Arc::clone(config));
        }
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.0.leaf.serialize_der()));
        let failed = |e: rustls::Error| Error::new(ErrorCode::Internal, format!("cannot set up TLS: {e}"));
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_single_cert(vec![self.sign(host)?], key)
            .map_err(failed)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config = Arc::new(config);
        let mut kept = kept();
        if kept.len() >= MOST_KEPT
            && let Some(oldest) = kept.iter().min_by_key(|(_, (made, _))| *made).map(|(host, _)| host.clone())
        {
            kept.remove(&oldest);
        }
        kept.insert(host.clone(), (Instant::now(), Arc::clone(&config)));
        Ok(config)
    }
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let _ = fs::remove_file(&temporary);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_authority_is_made_once_and_its_key_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let made = Authority::load_or_create(folder.path()).unwrap();
        let again = Authority::load_or_create(folder.path()).unwrap();
        assert_eq!(made.certificate_pem(), again.certificate_pem());
        let mode = fs::metadata(folder.path().join(KEY)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_key_that_does_not_fit_its_certificate_is_refused() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Authority::load_or_create(one.path()).unwrap();
        Authority::load_or_create(two.path()).unwrap();
        fs::copy(two.path().join(KEY), one.path().join(KEY)).unwrap();
        assert!(Authority::load_or_create(one.path()).unwrap_err().message.contains("does not belong"));
    }

    #[test]
    fn certificates_are_kept_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_create(folder.path()).unwrap();
        let host = |n: usize| Host::Name(format!("h{n}.example"));
        let first = authority.config(&host(0)).unwrap();
        assert!(Arc::ptr_eq(&first, &authority.config(&host(0)).unwrap()));
        for n in 1..=MOST_KEPT {
            authority.config(&host(n)).unwrap();
        }
        assert_eq!(authority.0.kept.lock().unwrap().len(), MOST_KEPT);
        assert!(authority.config(&Host::from(std::net::Ipv4Addr::LOCALHOST)).is_ok());
    }
}
