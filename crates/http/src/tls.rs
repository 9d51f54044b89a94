//! TLS of a listener, by a certificate and its key.

use atoll_types::{Error, Result};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
    server::TlsStream,
};

/// What a listener shows its clients. Cheap to clone.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// From a chain of certificates and the key of the first, both PEM.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self> {
        let wrong = |field: &str, why: &dyn std::fmt::Display| Error::invalid(field, why.to_string());
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
            .collect::<std::result::Result<_, _>>()
            .map_err(|e| wrong("certificate", &e))?;
        if chain.is_empty() {
            return Err(wrong("certificate", &"there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| wrong("key", &e))?;
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong("certificate", &e))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| wrong("key", &e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        self.0.accept(stream).await
    }
}
