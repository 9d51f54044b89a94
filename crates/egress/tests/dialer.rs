//! The server's own fetches obey the same.

use crate::support::*;
use atoll_egress::{Egress, EgressSettings, FetchLimits, Net, Reach};
use atoll_types::ErrorCode;

fn dialer(world: &World, opened: &[&str]) -> atoll_egress::Dialer {
    let net = |text: &&str| text.parse::<Net>().unwrap();
    let reach =
        Reach::new(vec![net(&"127.0.0.0/8"), net(&"169.254.0.0/16")], opened.iter().map(net).collect());
    let settings = EgressSettings {
        reach,
        nameservers: vec![world.nameserver],
        roots: vec![world.root.clone()],
        ..EgressSettings::default()
    };
    Egress::new(settings).unwrap().dialer()
}

#[tokio::test]
async fn pages_are_fetched_over_both() {
    let world = World::new().await;
    let (plain, secure) = (world.web().await, world.secure_web(&["a.test"]).await);
    world.name("a.test", &["127.0.0.1"]);
    let dialer = dialer(&world, &["127.0.0.1"]);
    let limits = FetchLimits::default();
    let page = dialer.get(&format!("http://a.test:{}/chunked?x", plain.port), limits).await.unwrap();
    assert_eq!((page.status, page.body.as_slice()), (200, &b"hello 0 bytes"[..]));
    let page = dialer.get(&format!("https://a.test:{}/chunked", secure.port), limits).await.unwrap();
    assert_eq!(page.body, b"hello world");
    assert!(page.header("transfer-encoding").is_some());
    let page = dialer.get(&format!("http://a.test:{}/close", plain.port), limits).await.unwrap();
    assert_eq!(page.body, b"until the end");
    let wrong = dialer.get(&format!("https://127.0.0.1:{}/", secure.port), limits).await.unwrap_err();
    assert!(wrong.message.contains("certificate"), "{wrong}");
}

#[tokio::test]
async fn what_is_out_of_reach_is_so_for_the_server_too() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let limits = FetchLimits::default();
    let closed = dialer(&world, &[]);
    for url in ["http://a.test", "http://127.1", "http://[::ffff:127.0.0.1]", "http://2130706433"] {
        let error = closed.get(&format!("{url}:{}/", server.port), limits).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{url}: {error}");
    }
    assert_eq!(server.connections(), 0);
    let open = dialer(&world, &["127.0.0.1"]);
    let error = open.get(&format!("http://a.test:{}/redirect", server.port), limits).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied, "a redirect to the metadata address: {error}");
}

#[tokio::test]
async fn fetches_are_bounded() {
    let world = World::new().await;
    let server = world.web().await;
    world.name("a.test", &["127.0.0.1"]);
    let dialer = dialer(&world, &["127.0.0.1"]);
    let small = FetchLimits { bytes: 1000, ..FetchLimits::default() };
    let at = |path: &str| format!("http://a.test:{}{path}", server.port);
    assert_eq!(dialer.get(&at("/big"), small).await.unwrap_err().code, ErrorCode::TooLarge);
    let error = dialer.get(&at("/loop"), FetchLimits::default()).await.unwrap_err();
    assert!(error.message.contains("too many redirects"), "{error}");
    for url in ["ftp://a.test/", "file:///etc/passwd", "http://u:p@a.test/", "not a url"] {
        assert_eq!(dialer.get(url, small).await.unwrap_err().code, ErrorCode::InvalidArgument, "{url}");
    }
}

#[tokio::test]
async fn the_machines_own_configuration_is_enough() {
    let dialer = Egress::new(EgressSettings::default()).unwrap().dialer();
    for host in ["127.0.0.1", "localhost", "169.254.169.254"] {
        let error = dialer.connect(host, 80).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{host}: {error}");
    }
}
