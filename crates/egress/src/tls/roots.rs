//! The certificates that the proxy trusts when it speaks TLS itself.

use super::provider;
use atoll_types::{Error, ErrorCode, Result};
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer, pki_types::pem::PemObject};
use std::sync::Arc;

/// The client's side of TLS: the machine's own store, and more of the operator's. HTTP/1.1 only, because
/// that is what the proxy reads.
pub(crate) fn upstream(extra: &[String]) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some of the machine's certificates cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    for pem in extra {
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let added = certificate.ok().and_then(|c| roots.add(c).ok());
            added.ok_or_else(|| Error::invalid("egress.roots", "not a certificate in PEM"))?;
        }
    }
    let failed = |e: rustls::Error| Error::new(ErrorCode::Internal, format!("cannot set up TLS: {e}"));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
