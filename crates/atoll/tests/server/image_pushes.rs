//! Images to Debian's registry on loopback, which asks for a password.

use super::{
    fixture::{KEY, Server},
    image_exports::import,
    image_imports::{ROOT, root_filesystem},
    image_pulls::{
        build_layout,
        debian::{Registry, run},
        ended, pull,
    },
};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

#[test]
fn a_pushed_image_is_the_same_for_other_tools() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    let registry = Registry::start(top, true);
    let config = top.join("config.toml");
    fs::write(&config, format!("[images]\ninsecure_registries = [\"{}\"]\n", registry.host)).unwrap();
    let server = Server::start_with(&["--config", config.to_str().unwrap()]);
    fs::write(top.join("root.tar"), root_filesystem("pushed")).unwrap();
    import(&server, "team%2Fbox:1", &top.join("root.tar"));
    let reference = format!("{}/pushed/box:2", registry.host);
    let push = |body: &Value| server.ask("POST", &format!("{ROOT}/team%2Fbox:1/push"), &body.to_string());
    // Without a password, with a wrong one, and by a key that may not.
    for body in [
        json!({"reference": reference}),
        json!({"reference": reference, "username": "user", "password": "not-that-one"}),
    ] {
        let refused = push(&body);
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(refused.status == 403 && !text.contains("not-that-one"), "{} {text}", refused.status);
    }
    let right = json!({"reference": reference, "username": "user", "password": "secret"});
    let ann = server.key_of("ann", "user");
    let path = format!("{ROOT}/team%2Fbox:1/push");
    assert_eq!(server.ask_as(&ann, "POST", &path, &right.to_string()).status, 403);
    let by_digest = json!({"reference": format!("{}/x@sha256:{}", registry.host, "a".repeat(64))});
    assert_eq!(push(&by_digest).status, 422);
    let pushed = push(&right);
    assert_eq!(pushed.status, 200, "{}", String::from_utf8_lossy(&pushed.body));
    let digest = pushed.json()["digest"].clone();
    // What the registry has already is pushed again without its bytes, by the command line.
    let mut again = Command::new(env!("CARGO_BIN_EXE_atoll"))
        .args(["image", "push", "team/box:1", &reference, "--username", "user"])
        .env("ATOLL_URL", format!("http://{}", server.address))
        .env("ATOLL_API_KEY", KEY)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    again.stdin.take().unwrap().write_all(b"secret\n").unwrap();
    let again = again.wait_with_output().unwrap();
    assert!(again.status.success(), "{again:?}");
    assert_eq!(
        String::from_utf8_lossy(&again.stdout).trim(),
        format!("{reference}@{}", digest.as_str().unwrap())
    );
    let source = format!("docker://{reference}");
    let arguments = ["inspect", "--tls-verify=false", "--creds", "user:secret", &source];
    let seen: Value = serde_json::from_str(&run("skopeo", &arguments, top)).unwrap();
    assert_eq!(seen["Digest"], digest);
    let copy = [
        "--insecure-policy",
        "copy",
        "-q",
        "--src-tls-verify=false",
        "--src-creds",
        "user:secret",
        &source,
        "oci:copied:1",
    ];
    run("skopeo", &copy, top);
    run("umoci", &["unpack", "--image", "copied:1", "bundle"], top);
    assert_eq!(fs::read(top.join("bundle/rootfs/usr/share/mark")).unwrap(), b"pushed");
    // Neither the password nor what it became is in the trail.
    let trail = server.ask("GET", "/api/v1/audit?kind=image.push", "").json().to_string();
    assert!(trail.contains(&reference) && !trail.contains("secret"), "{trail}");
}

#[test]
fn a_registry_over_https_is_spoken_to_where_its_certificate_is_trusted() {
    let top = tempfile::tempdir().unwrap();
    let top = top.path();
    // The server that reads the certificate is an ordinary user.
    fs::set_permissions(top, PermissionsExt::from_mode(0o755)).unwrap();
    build_layout(top, 64);
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(top.join("ca.pem"), cert.pem()).unwrap();
    fs::write(top.join("key.pem"), signing_key.serialize_pem()).unwrap();
    let registry = Registry::start_with(top, true, "  tls:\n    certificate: ca.pem\n    key: key.pem\n");
    registry.fill(top, "team/app:1", true);
    let config = top.join("config.toml");
    fs::write(&config, format!("[images]\nprivate_registries = [\"{}\"]\n", registry.host)).unwrap();
    let start = |variables: &[(&str, &str)]| {
        Server::start_in("warn", &["--config", config.to_str().unwrap()], variables)
    };
    let at = |name: &str| json!({"reference": format!("{}/team/{name}", registry.host), "name": "app:1", "username": "user", "password": "secret"});
    let authority = top.join("ca.pem");
    let server = start(&[("SSL_CERT_FILE", authority.to_str().unwrap())]);
    let done = ended(&server, &pull(&server, &at("app:1")));
    assert_eq!(done["status"], "done", "{done}");
    let mut to = at("copy:1");
    to.as_object_mut().unwrap().remove("name");
    let pushed = server.ask("POST", &format!("{ROOT}/app:1/push"), &to.to_string());
    assert_eq!(pushed.status, 200, "{}", String::from_utf8_lossy(&pushed.body));
    let server = start(&[]);
    let failed = ended(&server, &pull(&server, &at("app:1")));
    let why = failed["error"].as_str().unwrap();
    assert!(failed["status"] == "failed" && why.contains("certificate"), "{failed}");
}
