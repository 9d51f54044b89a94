//! A resolver and a web server of a test, on loopback: every name is one address, every file of a folder is
//! there.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    thread,
};

/// Answers every question for an IPv4 address with this one. The thread ends with the test's process.
pub(crate) fn names(is: Ipv4Addr) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            if let Some(answer) = answer(&packet[..length], is) {
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    address
}

fn answer(question: &[u8], is: Ipv4Addr) -> Option<Vec<u8>> {
    let labels = question.get(12..)?.iter().position(|b| *b == 0)?;
    let end = 12 + labels + 5;
    let kind = question.get(end - 4..end - 2)?;
    let found = u8::from(kind == [0, 1]);
    let mut answer = question.get(..2)?.to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, found, 0, 0, 0, 0]);
    answer.extend(question.get(12..end)?);
    if found == 1 {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(is.octets());
    }
    Some(answer)
}

/// Serves the files of a folder. The threads end with the test's process.
pub(crate) fn files(folder: &Path, at: Ipv4Addr) -> SocketAddr {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let folder = folder.to_owned();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let folder = folder.clone();
            thread::spawn(move || one(&stream, &folder));
        }
    });
    address
}

/// One request of one connection.
fn one(stream: &TcpStream, folder: &Path) -> Option<()> {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let request = lines.next()?;
    lines.find(String::is_empty)?;
    let path = request.split(' ').nth(1)?.split('?').next()?.trim_start_matches('/');
    let path = if path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    let (status, body) = match std::fs::read(folder.join(path)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let mut stream = stream;
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(&body).ok()
}
