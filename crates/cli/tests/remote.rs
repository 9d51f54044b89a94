//! Whole commands against a server that says what the test wants.

#![allow(clippy::unwrap_used)]

use clap::Parser;
use std::{
    io::{Read, Write},
    net::TcpListener,
    thread::JoinHandle,
};

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: atoll_cli::Remote,
}

const ID: &str = "3f2a11bc-0000-4000-8000-000000000001";

/// Answers one connection after another, and returns the requests' first lines and bodies.
fn serve(answers: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = move |answer: String| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        // The requests of these tests fit into a few reads; a chunked body ends in an empty chunk.
        loop {
            let n = stream.read(&mut piece).unwrap();
            request.extend(&piece[..n]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
            let chunked = head.contains("transfer-encoding: chunked");
            if n == 0
                || (chunked && body.ends_with("0\r\n\r\n"))
                || (!chunked && body.len() >= length.unwrap_or(0))
            {
                stream.write_all(answer.as_bytes()).unwrap();
                return format!("{} {body}", head.lines().next().unwrap_or_default());
            }
        }
    };
    (url, std::thread::spawn(move || answers.into_iter().map(answer).collect()))
}

fn reply(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

async fn atoll(url: &str, words: &[&str]) -> u8 {
    let words = [&["atoll", words[0], "--url", url], &words[1..]].concat();
    atoll_cli::run(Cli::parse_from(words).command).await
}

fn stat(is_directory: bool) -> String {
    let kind = if is_directory { "directory" } else { "file" };
    reply(200, &format!(r#"{{"name":"x","type":"{kind}","size":3,"is_directory":{is_directory}}}"#))
}

const MISSING: &str = r#"{"error":{"code":"not_found","message":"there is no such file","details":{}}}"#;

#[tokio::test]
async fn the_commands_exit_code_becomes_ours() {
    let end = format!(r#"{{"type":"exit","exec_id":"{ID}","status":"ended","exit_code":42,"later":1}}"#);
    let (url, requests) = serve(vec![reply(200, &format!("data: {end}\n\n")), reply(200, &end)]);
    let words = ["exec", ID, "-w", "/tmp", "--", "sh", "-c", "exit 42"];
    assert_eq!(atoll(&url, &words).await, 42);
    assert_eq!(atoll(&url, &[&["exec", "--json"], &words[1..]].concat()).await, 42);
    let body = r#"{"arguments":["sh","-c","exit 42"],"working_directory":"/tmp""#;
    let lines = [r#","lossless":true,"stream":true}"#, "}"]
        .map(|rest| format!("POST /api/v1/sandboxes/{ID}/exec HTTP/1.1 {body}{rest}"));
    assert_eq!(requests.join().unwrap(), lines, "as it comes, or with --json in one piece");
}

#[tokio::test]
async fn exit_codes_tell_no_server_from_a_refusal() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(atoll(&url, &["ls"]).await, 125);
    assert_eq!(atoll(&url, &["rm", ID, ID]).await, 125);
    assert_eq!(atoll("nonsense", &["ls"]).await, 2);
    assert_eq!(atoll(&url, &["cp", "a", "b"]).await, 2);
    let (url, _requests) = serve(vec![reply(404, MISSING), reply(404, MISSING)]);
    assert_eq!(atoll(&url, &["inspect", ID, "--json"]).await, 1);
    assert_eq!(atoll(&url, &["exec", ID, "--json", "--", "true"]).await, 125, "1 would be the command's");
}

#[tokio::test]
async fn one_that_fails_does_not_stop_the_others() {
    let (url, requests) = serve(vec![reply(404, MISSING), reply(204, "")]);
    assert_eq!(atoll(&url, &["rm", ID, &ID.replace("1bc", "2bc")]).await, 1);
    assert_eq!(requests.join().unwrap().len(), 2);
}

#[tokio::test]
async fn the_start_of_an_id_and_a_session_key_are_looked_up() {
    let page = |items: &str| reply(200, &format!(r#"{{"items":[{items}],"total":1}}"#));
    let item = format!(r#"{{"id":"{ID}","status":"running"}}"#);
    let (url, requests) = serve(vec![page(""), page(&item), reply(200, &item)]);
    assert_eq!(atoll(&url, &["stop", "3F2A-11"]).await, 0);
    let requests = requests.join().unwrap();
    assert!(requests[0].contains("session_key=3F2A-11"), "{requests:?}");
    assert!(requests[1].contains("search=3f2a11"), "{requests:?}");
    assert!(requests[2].contains(&format!("{ID}/stop")), "{requests:?}");
}

#[tokio::test]
async fn a_file_goes_into_a_folder_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(&file, "abc").unwrap();
    let file = file.to_str().unwrap();
    for (to, answer, path) in [
        ("sub", stat(true), "sub/notes.txt"),
        ("new.txt", reply(404, MISSING), "new.txt"),
        ("/new/", reply(404, MISSING), "/new/notes.txt"),
        ("", stat(true), "notes.txt"),
    ] {
        let (url, requests) = serve(vec![answer, reply(204, "")]);
        assert_eq!(atoll(&url, &["cp", file, &format!("{ID}:{to}")]).await, 0);
        let put = format!("PUT /api/v1/sandboxes/{ID}/files/{path} HTTP/1.1 3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(requests.join().unwrap()[1], put);
    }
}

#[tokio::test]
async fn a_file_arrives_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    let from = format!("{ID}:/data/x.bin");
    let (url, _requests) = serve(vec![stat(false), reply(200, "abc")]);
    assert_eq!(atoll(&url, &["cp", &from, to]).await, 0);
    assert_eq!(std::fs::read_to_string(folder.path().join("x.bin")).unwrap(), "abc");
    let broken = "HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n3\r\nnew\r\n";
    let (url, _requests) = serve(vec![stat(false), broken.into()]);
    assert_eq!(atoll(&url, &["cp", &from, to]).await, 125);
    assert_eq!(std::fs::read_to_string(folder.path().join("x.bin")).unwrap(), "abc");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
