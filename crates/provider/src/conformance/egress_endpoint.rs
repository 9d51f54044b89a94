//! Egress sockets, and the certificates that containers trust.

use super::{Outcome, ensure, same, says, shell, spec, with};
use crate::{Container, EgressSockets, Provider};
use atoll_types::egress_address::{TRUST_BUNDLE, TRUST_CERTIFICATE};
use std::{os::fd::OwnedFd, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UdpSocket},
};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A certificate without a known key.
const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----
MIIBgzCCASmgAwIBAgIUMl1vH3v+aEFSqKRLr7v60KhH6HkwCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLQ29uZm9ybWFuY2UwIBcNMjYxMTE1MTU0MjIwWhgPMjEyNjEw
MjIxNTQyMjBaMBYxFDASBgNVBAMMC0NvbmZvcm1hbmNlMFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAE6tdNxF/Pfyo8Y4jTbO+El4H/6stPngt1Rql7NR24FxSjMS8L
iKWPK2htgVYzCwPiYalLHbCDOz61zqnd8i+PcKNTMFEwHQYDVR0OBBYEFPw9iwwI
hqvMFrxTcFz1kDObpsXTMB8GA1UdIwQYMBaAFPw9iwwIhqvMFrxTcFz1kDObpsXT
MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIhAIsamIqSCE6VvwHO
urnC0vQ9+yppuovFKrh8Nxhzp+eIAiA9/9DbiY1FhSNelcaJ0Iz1FQ9RA0+Ip+O3
VQFJ50Lp2g==
-----END CERTIFICATE-----
";

fn listener(fd: OwnedFd) -> Result<TcpListener, String> {
    TcpListener::from_std(fd.into()).map_err(|e| format!("a listener of the egress sockets: {e}"))
}

/// Connects from inside and sends a text; the listener outside echoes it, and returns the address that it was
/// reached at.
async fn ask(
    container: &Arc<dyn Container>,
    address: (&str, u16),
    listener: &TcpListener,
) -> Result<String, String> {
    let (host, port) = address;
    let line = format!(
        "python3 -c 'import socket; s=socket.create_connection((\"{host}\",{port}),30); s.sendall(b\"ask\"); \
         s.shutdown(1); print(s.makefile().read())'"
    );
    let serve = async {
        let (mut stream, _) = listener.accept().await?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await?;
        stream.write_all(&said).await?;
        stream.shutdown().await?;
        stream.local_addr()
    };
    let both = async { tokio::join!(says(container, &line), serve) };
    let (said, at) =
        tokio::time::timeout(PATIENCE, both).await.map_err(|_| format!("{host}:{port}: no connection"))?;
    same("answer", said?, "ask".into())?;
    at.map(|at| at.to_string()).map_err(|e| format!("{host}:{port}: {e}"))
}

async fn egress_sockets(container: &Arc<dyn Container>) -> Result<Option<EgressSockets>, String> {
    let Some(power) = container.egress_endpoint() else { return Ok(None) };
    power.egress_sockets().await.map(Some).map_err(|e| format!("egress sockets: {e}"))
}

async fn name_is_answered(container: &Arc<dyn Container>, names: OwnedFd) -> Outcome {
    let names = UdpSocket::from_std(names.into()).map_err(|e| format!("the resolver: {e}"))?;
    let line = "python3 -c 'import socket; s=socket.socket(2,2); s.settimeout(30); \
                s.sendto(b\"who\",(\"127.0.0.53\",53)); print(s.recv(99))'";
    let serve = async {
        let mut question = [0; 16];
        let (length, from) = names.recv_from(&mut question).await?;
        names.send_to(&question[..length], from).await
    };
    let both = async { tokio::join!(says(container, line), serve) };
    let (said, served) = tokio::time::timeout(PATIENCE, both).await.map_err(|_| "no question came")?;
    served.map_err(|e| format!("the resolver: {e}"))?;
    same("answer", said?, "b'who'".into())
}

pub(super) async fn requests_to_the_egress_sockets_reach_the_server(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let Some(EgressSockets { proxy, redirected, names, names_tcp }) = egress_sockets(&container).await?
        else {
            return Ok(());
        };
        let take = "python3 -c 'import socket; socket.create_server((\"127.0.0.1\",3128),reuse_port=True)'";
        let taken = shell(&container, take).await?;
        ensure(taken.report.exit_code != Some(0), || "an egress port can be taken".into())?;
        let proxy = listener(proxy)?;
        same("asked at", ask(&container, ("127.0.0.1", 3128), &proxy).await?, "127.0.0.1:3128".into())?;
        let at = ask(&container, ("127.0.0.53", 53), &listener(names_tcp)?).await?;
        same("asked at", at, "127.0.0.53:53".into())?;
        name_is_answered(&container, names).await?;
        if let Some(redirected) = redirected {
            let at = ask(&container, ("198.18.7.9", 443), &listener(redirected)?).await?;
            same("asked for", at, "198.18.7.9:443".into())?;
        }
        // Another container's sockets are others, and a second call gives the same.
        with(provider, spec(), async |other| {
            let Some(theirs) = egress_sockets(&other).await? else { return Ok(()) };
            let theirs = listener(theirs.proxy)?;
            ask(&container, ("127.0.0.1", 3128), &proxy).await?;
            let heard = tokio::time::timeout(Duration::from_millis(50), theirs.accept()).await;
            ensure(heard.is_err(), || "another container heard it".into())
        })
        .await?;
        let Some(again) = egress_sockets(&container).await? else { return Err("they are gone".into()) };
        drop(proxy);
        ask(&container, ("127.0.0.1", 3128), &listener(again.proxy)?).await.map(|_| ())
    })
    .await
}

pub(super) async fn the_server_of_egress_sockets_is_told_of_their_end(provider: &dyn Provider) -> Outcome {
    let mut told = None;
    with(provider, spec(), async |container| {
        let Some(power) = container.egress_endpoint() else { return Ok(()) };
        power.egress_sockets().await.map_err(|e| format!("egress sockets: {e}"))?;
        told = Some(power.closed());
        let early = tokio::time::timeout(Duration::from_millis(50), power.closed()).await;
        ensure(early.is_err(), || "it was closed while it lived".into())
    })
    .await?;
    let Some(told) = told else { return Ok(()) };
    let told = tokio::time::timeout(PATIENCE, told).await;
    ensure(told.is_ok(), || "`closed` of the egress sockets did not complete".into())
}

pub(super) async fn added_certificates_are_found_inside(provider: &dyn Provider) -> Outcome {
    let Some(power) = provider.trust() else { return Ok(()) };
    let key = CERTIFICATE.replace("CERTIFICATE", "PRIVATE KEY");
    for wrong in ["", "x", &key, &format!("{CERTIFICATE}{key}")] {
        let refused = power.trust(wrong).await.err().and_then(|e| e.field);
        same("what is no certificate", refused.as_deref(), Some("certificate_pem"))?;
    }
    power.trust(CERTIFICATE).await.map_err(|e| format!("trust: {e}"))?;
    with(provider, spec(), async |container| {
        let alone = says(&container, &format!("cat {TRUST_CERTIFICATE}")).await?;
        same("alone", alone.trim_end(), CERTIFICATE.trim_end())?;
        let length = CERTIFICATE.len();
        let last = says(&container, &format!("tail -c {length} {TRUST_BUNDLE}")).await?;
        same("in the bundle", last.trim_end(), CERTIFICATE.trim_end())?;
        for file in [TRUST_CERTIFICATE, TRUST_BUNDLE] {
            let tried = shell(&container, &format!("echo x >> {file}")).await?;
            ensure(tried.report.exit_code != Some(0), || format!("{file} can be written"))?;
        }
        Ok(())
    })
    .await
}
