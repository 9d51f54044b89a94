//! Whom a sandbox trusts: its image's certificates, and those that the server adds.

use super::fixture::{Instance, python, shell};
use atoll_provider::Provider;
use atoll_types::ErrorCode;

/// A certificate whose key nobody has.
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

const COUNT: &str = "import ssl; c=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.load_verify_locations('/etc/atoll/ca-bundle.pem'); \
    i=ssl.create_default_context(); print(len(c.get_ca_certs())-len(i.get_ca_certs()), len(i.get_ca_certs()) > 10)";

#[tokio::test]
async fn the_images_certificates_and_the_servers_are_trusted() {
    let instance = Instance::start().await;
    let trust = instance.provider.trust().unwrap();
    let before = instance.container("default").await;
    assert_eq!(python(&before, COUNT).await, "0 True");
    assert_ne!(shell(&before, "test -e /etc/atoll/ca.pem").await.report.exit_code, Some(0));
    trust.trust(CERTIFICATE).await.unwrap();
    for profile in ["default", "tools", "root"] {
        let c = instance.container(profile).await;
        assert_eq!(python(&c, COUNT).await, "1 True", "{profile}");
        assert_eq!(
            python(&c, "print(open('/etc/atoll/ca.pem').read(), end='')").await,
            CERTIFICATE.trim_end()
        );
        for denied in [
            "echo x > /etc/atoll/ca.pem",
            "rm /etc/atoll/ca.pem",
            "touch /etc/atoll/x",
            "mv /etc/atoll /etc/x",
        ] {
            assert_ne!(shell(&c, denied).await.report.exit_code, Some(0), "{profile}: {denied}");
        }
    }
    // The last word counts, and those that are there already hear it too.
    assert_eq!(python(&before, COUNT).await, "1 True");
    trust.trust(&CERTIFICATE.repeat(2)).await.unwrap();
    let text = python(&before, "print(open('/etc/atoll/ca.pem').read().count('BEGIN'))").await;
    assert_eq!(text, "2");
}

#[tokio::test]
async fn nothing_but_certificates_goes_into_a_sandbox() {
    let instance = Instance::start().await;
    let trust = instance.provider.trust().unwrap();
    let key = CERTIFICATE.replace("CERTIFICATE", "EC PRIVATE KEY");
    let long = CERTIFICATE.repeat(33 * 1024 / CERTIFICATE.len() + 1);
    let wrong = [
        (String::new(), ErrorCode::InvalidArgument),
        (key.clone(), ErrorCode::InvalidArgument),
        (format!("{CERTIFICATE}{key}"), ErrorCode::InvalidArgument),
        (CERTIFICATE.replace("MII", "MIJ"), ErrorCode::InvalidArgument),
        (long, ErrorCode::TooLarge),
    ];
    for (text, code) in wrong {
        let error = trust.trust(&text).await.unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (code, Some("certificate_pem")), "{text}");
    }
    let c = instance.container("default").await;
    assert_eq!(python(&c, COUNT).await, "0 True", "what was refused changed nothing");
}
