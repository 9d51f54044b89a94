//! Figures, printed and not judged: `cargo test -p atoll-guest -- --ignored --nocapture measure`.
//! With `ATOLL_INIT_BINARY` they are those of the static build.

use crate::support::*;
use atoll_guest_proto::v1::{
    HelloRequest, ReadFileRequest, StatRequest, WriteChunk, WriteHead, file_chunk, write_chunk::Part,
};
use std::time::{Duration, Instant};

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn memory(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid)).unwrap();
    let smaps = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pid)).unwrap();
    let pick = |text: &str, name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).unwrap_or("?").to_owned();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    let names = ["VmRSS:", "RssAnon:", "RssFile:"].map(|n| format!("{n} {}", pick(&status, n)));
    let names = names.into_iter().chain(["Pss:", "Pss_Anon:"].map(|n| format!("{n} {}", pick(&smaps, n))));
    names.collect::<Vec<_>>().join(", ")
}

#[tokio::test]
#[ignore = "prints figures"]
async fn memory_and_times() {
    let guest = Guest::start().await;
    guest.client.clone().hello(HelloRequest { min_protocol: 1, max_protocol: 1 }).await.unwrap();
    println!("idle: {}", memory(guest.pid()));
    let request = sh("exec sleep 1000");
    let id = request.exec_id.clone();
    let info = guest.client.clone().start_exec(request).await.unwrap().into_inner();
    let status = std::fs::read_to_string(format!("/proc/{}/status", info.pid)).unwrap();
    let shim = status.lines().find_map(|l| l.strip_prefix("PPid:\t")).unwrap();
    println!("one exec: {}; its shim: {}", memory(guest.pid()), memory(shim.parse().unwrap()));
    guest.client.clone().kill_exec(reference(&id)).await.unwrap();
    let (mut bare, mut hello, mut ours, mut started) = (vec![], vec![], vec![], vec![]);
    for _ in 0..300 {
        let start = Instant::now();
        std::process::Command::new("/usr/bin/true").status().unwrap();
        bare.push(start.elapsed());
        let start = Instant::now();
        guest.client.clone().hello(HelloRequest { min_protocol: 1, max_protocol: 1 }).await.unwrap();
        hello.push(start.elapsed());
        let start = Instant::now();
        guest.run(argv(&["/usr/bin/true"])).await;
        ours.push(start.elapsed());
        let start = Instant::now();
        guest.client.clone().start_exec(argv(&["/usr/bin/true"])).await.unwrap();
        started.push(start.elapsed());
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let (bare, hello, ours) = (median(bare), median(hello), median(ours));
    println!("true: bare {bare:?}, hello {hello:?}, exec to its end {ours:?}, start {:?}", median(started));
    println!("after 600 execs: {}", memory(guest.pid()));
    let start = Instant::now();
    let seen = guest.run(sh("head -c 200000000 /dev/zero")).await;
    let kept: usize = seen.outputs.iter().map(|o| o.data.len()).sum();
    println!("output: {kept} bytes kept of 200 MB in {:?}", start.elapsed());
    println!("after output: {}", memory(guest.pid()));
}

#[tokio::test]
#[ignore = "prints figures"]
async fn files() {
    let guest = Guest::start().await;
    let chunk = vec![7u8; 1 << 20];
    let parts = std::iter::once(Part::Head(WriteHead { path: "big".into(), ..WriteHead::default() }))
        .chain((0..256).map(move |_| Part::Data(chunk.clone().into())));
    let start = Instant::now();
    let stream = tokio_stream::iter(parts.map(|part| WriteChunk { part: Some(part) }));
    guest.client.clone().write_file(stream).await.unwrap();
    println!("256 MiB up in {:?}", start.elapsed());
    let start = Instant::now();
    let request = ReadFileRequest { path: "big".into(), ..ReadFileRequest::default() };
    let mut stream = guest.client.clone().read_file(request).await.unwrap().into_inner();
    let mut total = 0;
    while let Some(chunk) = stream.message().await.unwrap() {
        if let Some(file_chunk::Part::Data(data)) = chunk.part {
            total += data.len();
        }
    }
    println!("{} MiB down in {:?}; {}", total >> 20, start.elapsed(), memory(guest.pid()));
    let mut times = vec![];
    for _ in 0..200 {
        let start = Instant::now();
        guest.client.clone().stat(StatRequest { path: "big".into(), follow: false }).await.unwrap();
        times.push(start.elapsed());
    }
    println!("stat {:?}", median(times));
}
