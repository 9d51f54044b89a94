//! A registry that lies, stops midway, and leads elsewhere.

use crate::support::*;
use atoll_oci::{Blobs, Credentials, Digest, ImageConfig, media};
use atoll_types::ErrorCode;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

/// A request, as it came.
#[derive(Debug, Clone)]
struct Asked {
    path: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }
}

/// An answer, of which only the first `sent` bytes of the body are sent.
struct Reply {
    head: String,
    body: Vec<u8>,
    sent: usize,
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Reply {
    Reply { head: format!("HTTP/1.1 {status}\r\n{headers}"), body: body.to_vec(), sent: body.len() }
}

/// A server on loopback whose answers a test writes.
struct Server {
    host: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start(answer: impl Fn(&Asked, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream.unwrap(), &log, &*answer));
            }
        });
        Self { host, asked }
    }

    /// The requests whose path has this in it.
    fn asked(&self, part: &str) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.path.contains(part)).cloned().collect()
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked, usize) -> Reply) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap().to_owned();
    let mut headers = Vec::new();
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ").unwrap();
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let asked = Asked { path, headers };
    let before = {
        let mut log = log.lock().unwrap();
        let before = log.iter().filter(|other| other.path == asked.path).count();
        log.push(asked.clone());
        before
    };
    let Reply { head, body, sent } = answer(&asked, before);
    let mut stream = stream;
    let head = format!("{head}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body[..sent.min(body.len())]));
}

/// An image with one layer, which need not be one for a registry.
#[derive(Clone)]
struct Image {
    manifest: Vec<u8>,
    config: Vec<u8>,
    layer: Vec<u8>,
}

impl Image {
    fn new() -> Self {
        let layer: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let config = ImageConfig { diff_ids: vec![Digest::of(&layer)], ..ImageConfig::default() }
            .to_document()
            .unwrap();
        let described = |kind: &str, bytes: &[u8]| serde_json::json!({"mediaType": kind, "digest": Digest::of(bytes), "size": bytes.len()});
        let manifest = serde_json::json!({"schemaVersion": 2, "config": described(media::CONFIG, &config),
            "layers": [described(media::LAYER, &layer)]});
        Self { manifest: manifest.to_string().into_bytes(), config, layer }
    }

    /// The answers of an honest registry, but for the layer.
    fn answer(&self, asked: &Asked, layer: impl FnOnce() -> Reply) -> Reply {
        let Self { manifest, config, layer: bytes } = self;
        match asked.path.rsplit('/').next().unwrap() {
            name if name == Digest::of(config).as_str() => reply("200 OK", "", config),
            name if name == Digest::of(bytes).as_str() => layer(),
            _ => reply("200 OK", "", manifest),
        }
    }

    /// The layer, or what is asked for of it.
    fn part(&self, asked: &Asked) -> Reply {
        let Some(range) = asked.header("range") else { return reply("200 OK", "", &self.layer) };
        let at: usize = range.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
        let length = self.layer.len();
        let range = format!("content-range: bytes {at}-{}/{length}\r\n", length - 1);
        reply("206 Partial Content", &range, &self.layer[at..])
    }
}

struct Here {
    top: tempfile::TempDir,
    blobs: Blobs,
}

impl Here {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(top.path()).unwrap();
        Self { top, blobs }
    }

    /// Whether the layer became a blob, and the bytes that wait for the next pull.
    fn layer(&self, image: &Image) -> (bool, Option<u64>) {
        let digest = Digest::of(&image.layer);
        let partial = fs::metadata(self.top.path().join("partial").join(digest.hex())).ok();
        (self.blobs.path(&digest).exists(), partial.map(|about| about.len()))
    }
}

async fn pulled(here: &Here, server: &Server) -> Result<atoll_oci::PulledImage, atoll_types::Error> {
    let name = format!("{}/image:1", server.host);
    pull(&registries(&[&server.host]), &here.blobs, &name, &Credentials::Anonymous).await.0
}

#[tokio::test]
async fn other_bytes_than_the_manifest_says_leave_no_blob() {
    let image = Image::new();
    let here = Here::new();
    let own = image.clone();
    let lies =
        Server::start(move |asked, _| own.answer(asked, || reply("200 OK", "", &vec![9; own.layer.len()])));
    let error = pulled(&here, &lies).await.unwrap_err();
    assert!(error.message.contains("other bytes"), "{error}");
    assert_eq!(here.layer(&image), (false, None));
    let own = image.clone();
    let more = Server::start(move |asked, _| {
        own.answer(asked, || reply("200 OK", "", &[&own.layer[..], b"x"].concat()))
    });
    let error = pulled(&here, &more).await.unwrap_err();
    assert!(error.message.contains("its manifest says 3000000"), "{error}");
    assert!(!here.layer(&image).0);
    let own = image.clone();
    let config =
        Server::start(move |asked, _| match asked.path.ends_with(Digest::of(&own.config).as_str()) {
            true => reply("200 OK", "", &own.config[1..]),
            false => own.answer(asked, || reply("200 OK", "", &own.layer)),
        });
    assert!(pulled(&here, &config).await.unwrap_err().message.contains("other bytes"));
    let vast = Server::start(|_, _| reply("200 OK", "", &vec![b' '; 2 << 20]));
    assert!(pulled(&here, &vast).await.unwrap_err().message.contains("more than 1048576 bytes"));
}

#[tokio::test]
async fn a_layer_that_breaks_off_is_continued_where_it_was() {
    let (image, here) = (Image::new(), Here::new());
    let own = image.clone();
    // A body that ends early, an error, and then the rest.
    let server = Server::start(move |asked, before| {
        own.answer(asked, || match before {
            0 => Reply { sent: 1_000_000, ..own.part(asked) },
            1 => reply("500 Internal Server Error", "", b"{}"),
            _ => own.part(asked),
        })
    });
    pulled(&here, &server).await.unwrap();
    assert_eq!(here.layer(&image), (true, None));
    assert_eq!(fs::read(here.blobs.path(&Digest::of(&image.layer))).unwrap(), image.layer);
    let asked = server.asked(Digest::of(&image.layer).hex());
    let ranges: Vec<Option<&str>> = asked.iter().map(|asked| asked.header("range")).collect();
    assert_eq!((ranges.len(), ranges[0]), (3, None));
    let at: u64 = ranges[2].unwrap().strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
    assert!((1..=1_000_000).contains(&at) && ranges[1] == ranges[2], "{ranges:?}");
    // Pulled again, the layer is not asked for.
    pulled(&here, &server).await.unwrap();
    assert_eq!(server.asked(Digest::of(&image.layer).hex()).len(), 3);
}

#[tokio::test]
async fn a_cancelled_pull_leaves_no_blob_and_the_next_one_continues_it() {
    let (image, here) = (Image::new(), Here::new());
    let own = image.clone();
    let silent = Server::start(move |asked, _| {
        own.answer(asked, || {
            // The head and a part, and then nothing: the thread sleeps with the connection open.
            let mut part = own.part(asked);
            part.sent = 500_000;
            part
        })
    });
    let name = format!("{}/image:1", silent.host);
    let registries_of_silent = registries(&[&silent.host]);
    let (reference, anonymous) = (name.parse().unwrap(), Credentials::Anonymous);
    let limits = atoll_oci::PullLimits::default();
    {
        let mut cancelled =
            Box::pin(registries_of_silent.pull(&here.blobs, &reference, &anonymous, &limits, &|_| {}));
        // Until something of the layer is there; it is polled no more after that.
        loop {
            let _ = tokio::time::timeout(Duration::from_millis(20), &mut cancelled).await;
            if here.layer(&image).1.is_some_and(|bytes| bytes > 0) {
                break;
            }
        }
    }
    let (whole, part) = here.layer(&image);
    assert!(!whole && part.is_some_and(|bytes| bytes > 0 && bytes < image.layer.len() as u64), "{part:?}");
    let own = image.clone();
    let good = Server::start(move |asked, _| own.answer(asked, || own.part(asked)));
    pulled(&here, &good).await.unwrap();
    assert!(good.asked(Digest::of(&image.layer).hex())[0].header("range").is_some());
    assert_eq!(fs::read(here.blobs.path(&Digest::of(&image.layer))).unwrap(), image.layer);
}

#[tokio::test]
async fn no_redirect_and_no_token_service_leads_into_a_private_network() {
    let (image, here) = (Image::new(), Here::new());
    // A service on loopback that the operator did not name.
    let inner = Server::start(|_, _| reply("200 OK", "", b"private"));
    let places = [
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "https://169.254.169.254/".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "https://[::ffff:127.0.0.1]:1/".to_owned(),
        "https://localhost:1/".to_owned(),
        format!("http://{}/", inner.host),
        format!("https://{}/", inner.host),
        "file:///etc/passwd".to_owned(),
    ];
    for place in places {
        let (own, to) = (image.clone(), place.clone());
        let redirects = Server::start(move |asked, _| {
            own.answer(asked, || reply("307 Temporary Redirect", &format!("location: {to}\r\n"), b""))
        });
        let error = pulled(&here, &redirects).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{place}: {error}");
        let to = place.clone();
        let token = Server::start(move |_, _| {
            reply(
                "401 Unauthorized",
                &format!("www-authenticate: Bearer realm=\"{to}\",service=\"x\"\r\n"),
                b"",
            )
        });
        let error = pulled(&here, &token).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{place}: {error}");
    }
    assert_eq!(inner.asked("").len(), 0);
    assert!(!here.layer(&image).0);
    let forever =
        Server::start(|asked, _| reply("302 Found", &format!("location: {}x\r\n", asked.path), b""));
    assert!(pulled(&here, &forever).await.unwrap_err().message.contains("too many redirects"));
}

#[tokio::test]
async fn one_registry_does_not_lead_to_another_that_the_operator_named() {
    let (image, here) = (Image::new(), Here::new());
    let own = image.clone();
    let private = Server::start(move |asked, _| own.answer(asked, || own.part(asked)));
    let to = format!("http://{}/v2/secret/blobs/x", private.host);
    let (own, redirect) = (image.clone(), to.clone());
    let redirects = Server::start(move |asked, _| {
        own.answer(asked, || reply("307 Temporary Redirect", &format!("location: {redirect}\r\n"), b""))
    });
    let token = Server::start(move |_, _| {
        reply("401 Unauthorized", &format!("www-authenticate: Bearer realm=\"{to}\",service=\"x\"\r\n"), b"")
    });
    let registries = registries(&[&private.host, &redirects.host, &token.host]);
    // Named by its request it is reached, and the client keeps the connection.
    let name = format!("{}/image:1", private.host);
    pull(&registries, &Here::new().blobs, &name, &Credentials::Anonymous).await.0.unwrap();
    let before = private.asked("").len();
    for lies in [&redirects, &token] {
        let name = format!("{}/image:1", lies.host);
        let error = pull(&registries, &here.blobs, &name, &password("secret")).await.0.unwrap_err();
        assert_eq!(error.code, ErrorCode::PermissionDenied, "{error}");
        assert!(error.message.contains("for itself alone"), "{error}");
    }
    assert_eq!(private.asked("").len(), before);
    assert!(!here.layer(&image).0);
}

#[tokio::test]
async fn a_token_is_asked_for_with_the_password_and_goes_to_the_registry_alone() {
    let (image, here) = (Image::new(), Here::new());
    let own = image.clone();
    let storage = Server::start(move |asked, _| own.part(asked));
    let (own, storage_host) = (image.clone(), storage.host.clone());
    let server = Server::start(move |asked, _| {
        if asked.path.starts_with("/token") {
            return reply("200 OK", "", br#"{"access_token":"abc","expires_in":300}"#);
        }
        if asked.header("authorization") != Some("Bearer abc") {
            let host = asked.header("host").unwrap();
            let realm = format!("www-authenticate: Bearer realm=\"http://{host}/token\",service=\"a b\"\r\n");
            return reply("401 Unauthorized", &realm, b"");
        }
        own.answer(asked, || {
            reply("307 Temporary Redirect", &format!("location: http://{storage_host}/blob\r\n"), b"")
        })
    });
    let registries = companions(&server.host, &storage.host);
    let name = format!("{}/some/image:1", server.host);
    pull(&registries, &here.blobs, &name, &password("secret")).await.0.unwrap();
    let tokens = server.asked("/token");
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert_eq!(tokens[0].path, "/token?service=a+b&scope=repository%3Asome%2Fimage%3Apull");
    assert_eq!(tokens[0].header("authorization"), Some("Basic dXNlcjpzZWNyZXQ="));
    let blobs = storage.asked("/blob");
    assert!(blobs.len() == 1 && blobs[0].header("authorization").is_none(), "{blobs:?}");
    assert_eq!(here.layer(&image), (true, None));
}

#[tokio::test]
async fn an_index_leads_to_this_machines_image() {
    let (image, here) = (Image::new(), Here::new());
    let platform = atoll_oci::Platform::this();
    let entry = |architecture: &str, bytes: &[u8]| {
        serde_json::json!({"mediaType": media::MANIFEST, "digest": Digest::of(bytes), "size": bytes.len(),
            "platform": {"os": "linux", "architecture": architecture}})
    };
    let manifests = [entry("s390x", b"other"), entry(&platform.architecture, &image.manifest)];
    let index = serde_json::json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    let own = image.clone();
    let server = Server::start(move |asked, _| match asked.path.ends_with("/1") {
        true => reply("200 OK", "", index.as_bytes()),
        false => own.answer(asked, || own.part(asked)),
    });
    let pulled_image = pulled(&here, &server).await.unwrap();
    assert_eq!(pulled_image.manifest_digest, Digest::of(&image.manifest));
    let elsewhere =
        serde_json::json!({"schemaVersion": 2, "manifests": [entry("s390x", b"other")]}).to_string();
    let server = Server::start(move |_, _| reply("200 OK", "", elsewhere.as_bytes()));
    assert!(pulled(&here, &server).await.unwrap_err().message.contains("but for linux/s390x"));
}
