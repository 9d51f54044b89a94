//! The client against a server that says what the test wants, and keeps what it was sent.

#![allow(clippy::unwrap_used)]

mod common;

use atoll_client::{Client, Error, ExecRequest, ListSandboxes, Uuid};
use common::whole;
use futures_util::stream;
use std::{
    io::{self, Read, Write},
    net::TcpListener,
    thread::JoinHandle,
};

/// Answers one request with these bytes and returns the request's.
fn serve(answer: impl Into<Vec<u8>>) -> (Client, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let answer = answer.into();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !whole(&request) {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).unwrap_or(0) {
                0 => break,
                n => request.extend(&piece[..n]),
            }
        }
        stream.write_all(&answer).unwrap();
        String::from_utf8_lossy(&request).into_owned()
    });
    (Client::new(&url, Some("atoll_k")).unwrap(), thread)
}

fn reply(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}", body.len())
}

async fn refused(status: &str, headers: &str, body: &str) -> atoll_client::ApiError {
    let (client, _thread) = serve(reply(status, headers, body));
    match client.get(Uuid::nil()).await.unwrap_err() {
        Error::Api(error) => *error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn error_objects_carry_all_they_say() {
    let body = r#"{"error":{"code":"not_running","message":"it is stopped","details":{"field":"id","hint":"h"},"x":1}}"#;
    let error = refused("409 Conflict", "", body).await;
    assert_eq!((error.status, error.code.as_str(), error.field.as_deref()), (409, "not_running", Some("id")));
    assert_eq!(error.to_string(), "id: it is stopped");
    assert_eq!(error.details["hint"], "h");
    assert_eq!(error.json.as_deref(), Some(body));
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let one = r#"{"detail":[{"loc":["body","memory_mb"],"msg":"must be at least 16","type":"value_error"}]}"#;
    let error = refused("422 Unprocessable Entity", "", one).await;
    assert_eq!(error.to_string(), "memory_mb: must be at least 16");
    assert_eq!((error.code.as_str(), error.field.as_deref()), ("invalid_argument", Some("memory_mb")));
    let two =
        r#"{"detail":[{"loc":["body","a",0],"msg":"no","type":"unsupported"},{"loc":[],"msg":"b is bad"}]}"#;
    let error = refused("422 Unprocessable Entity", "", two).await;
    assert_eq!((error.to_string().as_str(), error.code.as_str()), ("a.0: no; b is bad", "unsupported"));
}

#[tokio::test]
async fn other_answers_become_errors_too() {
    let error = refused("502 Bad Gateway", "", "<html>").await;
    assert_eq!((error.code.as_str(), error.json.as_deref()), ("http_error", None));
    assert!(error.to_string().contains("502 Bad Gateway"), "{error}");
    let body = r#"{"error":{"code":"permission_denied","message":"send a key"}}"#;
    assert_eq!(refused("401 Unauthorized", "", body).await.code, "unauthorized");
    let body = r#"{"error":{"code":"limit_exceeded","message":"too many"}}"#;
    let error = refused("429 Too Many Requests", "retry-after: 7\r\n", body).await;
    assert_eq!(error.to_string(), "too many (ask again in 7 seconds)");
    for body in ["{\"error\":\"text\"}", "{\"detail\":[]}", "", "null"] {
        assert_eq!(refused("500 Internal Server Error", "", body).await.code, "http_error", "{body}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_from_one_that_is_broken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::new(&url, None).unwrap().get(Uuid::nil()).await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { url: at, .. } if *at == url), "{error:?}");
    for answer in ["", "nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}"] {
        let (client, _thread) = serve(answer);
        let error = client.get(Uuid::nil()).await.unwrap_err();
        assert!(matches!(error, Error::Unexpected(_)), "{answer:?}: {error:?}");
    }
    let (client, _thread) = serve(reply("200 OK", "", "{\"id\":1}"));
    assert!(matches!(client.get(Uuid::nil()).await, Err(Error::Unexpected(_))));
}

#[tokio::test]
async fn requests_say_what_was_meant() {
    let (client, thread) = serve(reply("200 OK", "", r#"{"items":[],"total":0,"later":true}"#));
    let query = ListSandboxes { search: Some("a b&c".into()), page: Some(2), ..ListSandboxes::default() };
    let page = client.list(&query).await.unwrap();
    assert_eq!((page.total, page.json.as_str()), (0, r#"{"items":[],"total":0,"later":true}"#));
    let request = thread.join().unwrap();
    assert!(request.starts_with("GET /api/v1/sandboxes?page=2&search=a%20b%26c HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer atoll_k\r\n"), "{request}");

    let (client, thread) = serve(reply("200 OK", "", r#"{"exit_code":3,"stdout":"x"}"#));
    let command = ExecRequest { command: Some("exit 3".into()), ..ExecRequest::default() };
    assert_eq!(client.exec(Uuid::nil(), &command).await.unwrap().exit_code, 3);
    assert!(thread.join().unwrap().ends_with("\r\n\r\n{\"command\":\"exit 3\"}"));
}

#[tokio::test]
async fn files_stream_both_ways() {
    let (client, thread) = serve("HTTP/1.1 204 No Content\r\n\r\n");
    let body = stream::iter([Ok("ab".into()), Ok("c".into())]);
    client.upload(Uuid::nil(), "/etc/../a b", body).await.unwrap();
    let request = thread.join().unwrap();
    let path = "PUT /api/v1/sandboxes/00000000-0000-0000-0000-000000000000/files//etc/../a%20b HTTP/1.1\r\n";
    assert!(request.starts_with(path), "{request}");
    assert!(request.ends_with("2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"), "{request}");

    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let (client, _thread) = serve(format!("{head}2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"));
    let mut download = client.download(Uuid::nil(), "f").await.unwrap();
    let mut got = Vec::new();
    while let Some(bytes) = download.next().await.unwrap() {
        got.extend(bytes);
    }
    assert_eq!(got, b"abc");
    // One that breaks off is not one that ends.
    let (client, _thread) = serve(format!("{head}2\r\nab\r\n"));
    let mut download = client.download(Uuid::nil(), "f").await.unwrap();
    assert_eq!(download.next().await.unwrap().unwrap(), "ab");
    assert!(matches!(download.next().await, Err(Error::Unexpected(_))));
}

#[tokio::test]
async fn an_upload_that_cannot_be_read_is_not_finished() {
    let (client, thread) = serve("");
    let body = stream::iter([Ok("ab".into()), Err(io::Error::other("the disk is gone"))]);
    let error = client.upload(Uuid::nil(), "f", body).await.unwrap_err();
    assert!(error.to_string().contains("the disk is gone"), "{error}");
    assert!(!thread.join().unwrap().ends_with("0\r\n\r\n"));
}

#[test]
fn a_key_reaches_no_log() {
    let client = Client::new("http://127.0.0.1:1", Some("atoll_secret")).unwrap();
    assert!(!format!("{client:?}").contains("atoll_secret"));
    let error = Client::new("http://127.0.0.1:1", Some("atoll\nsecret")).unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    assert!(Client::new("https://127.0.0.1:1", None).is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_heard_before_the_upload_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 65536]).unwrap();
        let body = r#"{"error":{"code":"disk_full","message":"the disk is full"}}"#;
        stream.write_all(reply("507 Insufficient Storage", "", body).as_bytes()).unwrap();
        // A server that closes at once may reset the connection and take its answer with it.
        while stream.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {}
    });
    let endless = stream::repeat_with(|| Ok(vec![0; 65536].into()));
    let error = Client::new(&url, None).unwrap().upload(Uuid::nil(), "f", endless).await.unwrap_err();
    assert!(matches!(&error, Error::Api(e) if e.code == "disk_full"), "{error:?}");
}
