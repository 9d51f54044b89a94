//! The host that a request is for, and its head as the host gets it.

use super::{
    body::Framing,
    head::{self, Malformed, RequestHead},
};
use crate::Host;
use std::net::IpAddr;

/// Where a request was read.
#[derive(Debug, Clone)]
pub(crate) enum Front {
    /// By the proxy itself: the target is a whole URL.
    Proxy,
    /// Inside a connection to this host: the target is a path.
    Inside(Host, u16),
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// With its query.
    pub(crate) path: String,
}

impl Destination {
    /// The path without its query, as rules see it and records show it.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// A host and a port, as in CONNECT and in `Host`. Neither a user nor an empty port is allowed.
pub(crate) fn authority(text: &str, port: Option<u16>) -> Result<(Host, u16), Malformed> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) || text.contains(['@', '/', '\\', '%'])
    {
        return Err(Malformed::Host);
    }
    let split = match text.rfind(']') {
        Some(at) => text.get(at + 1..).filter(|rest| !rest.is_empty()).map(|rest| (at + 1, rest)),
        None => text.find(':').and_then(|at| Some((at, text.get(at..)?))),
    };
    let (host, port) = match split {
        None => (text, port.ok_or(Malformed::Host)?),
        Some((at, rest)) => {
            let digits = rest.strip_prefix(':').filter(|d| (1..=5).contains(&d.len()));
            let digits = digits.filter(|d| d.bytes().all(|b| b.is_ascii_digit())).ok_or(Malformed::Host)?;
            let port = digits.parse().ok().filter(|p| *p != 0).ok_or(Malformed::Host)?;
            (text.get(..at).unwrap_or_default(), port)
        }
    };
    Ok((Host::parse(host).map_err(|_| Malformed::Host)?, port))
}

/// The destination of a request. Everything in it that names a host must name the same one.
pub(crate) fn destination(head: &RequestHead, front: &Front) -> Result<Destination, Malformed> {
    let found = match front {
        Front::Proxy => absolute(&head.target)?,
        Front::Inside(host, port) => {
            let plain = head.target.starts_with('/') || head.target == "*" && head.method == "OPTIONS";
            if !plain || head.target.contains('#') {
                return Err(Malformed::Target);
            }
            Destination { host: host.clone(), port: *port, path: head.target.clone() }
        }
    };
    match head.only("host")? {
        Some(text) => {
            // A client inside a connection may leave out the port that it connected to.
            let (host, port) = authority(text, Some(default_port(front, found.port)))?;
            if (host, port) == (found.host.clone(), found.port) { Ok(found) } else { Err(Malformed::Host) }
        }
        None if head.minor == 0 => Ok(found),
        None => Err(Malformed::Host),
    }
}

fn default_port(front: &Front, port: u16) -> u16 {
    match front {
        Front::Proxy => 80,
        Front::Inside(..) => port,
    }
}

fn absolute(target: &str) -> Result<Destination, Malformed> {
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let rest = scheme.and_then(|_| target.get(7..)).ok_or(Malformed::Target)?;
    if rest.contains(['#', '\\']) {
        return Err(Malformed::Target);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let (host, port) = authority(host, Some(80)).map_err(|_| Malformed::Target)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Destination { host, port, path })
}

/// The head as it is sent to the host: origin form, one `Host`, one length.
pub(crate) fn forwarded(head: &RequestHead, to: &Destination, tls: bool) -> Vec<u8> {
    let host = match &to.host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        host => host.to_string(),
    };
    let port = if to.port == if tls { 443 } else { 80 } { String::new() } else { format!(":{}", to.port) };
    let mut out = format!("{} {} HTTP/1.1\r\nHost: {host}{port}\r\n", head.method, to.path).into_bytes();
    for header in head::passed_on(&head.headers) {
        out.extend_from_slice(header.name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(&header.value);
        out.extend_from_slice(b"\r\n");
    }
    match head.framing {
        Framing::Length(length) => out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes()),
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::Close => {}
    }
    if head.is_websocket() {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Destination, Malformed> {
        let (head, _) = head::request(text.as_bytes())?.expect("a whole head");
        destination(&head, &Front::Proxy)
    }

    #[test]
    fn hosts_and_ports_are_read_in_one_way() {
        let text = |t: &str| authority(t, None).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(text("Example.com:443").unwrap(), "example.com 443");
        assert_eq!(text("[2001:db8::1]:443").unwrap(), "2001:db8::1 443");
        assert_eq!(text("0x7f.1:80").unwrap(), "127.0.0.1 80");
        assert_eq!(text("[::ffff:169.254.169.254]:80").unwrap(), "169.254.169.254 80");
        for odd in [
            "",
            ":80",
            "a",
            "a:",
            "a:0",
            "a:65536",
            "a:+80",
            "a:80:80",
            "a:8 0",
            "u@a:80",
            "a/b:80",
            "a%2e:80",
            "2001:db8::1:443",
            "[::1]80",
            "[::1]:",
            "[::1",
            "a:080000",
            "a\\b:80",
            "a..b:80",
        ] {
            assert_eq!(text(odd), Err(Malformed::Host), "{odd}");
        }
    }

    #[test]
    fn a_request_names_one_host() {
        let get = |url: &str, host: &str| read(&format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let found = get("http://a.example/x?y=1", "A.example").unwrap();
        assert_eq!(
            (found.host.to_string().as_str(), found.port, found.path.as_str()),
            ("a.example", 80, "/x?y=1")
        );
        assert_eq!(found.bare_path(), "/x");
        assert_eq!(get("HTTP://a.example:8080?q", "a.example:8080").unwrap().path, "/?q");
        for (url, host) in [
            ("http://a.example/", "b.example"),
            ("http://a.example/", "a.example:8080"),
            ("http://a.example/", ""),
            ("http://a.example/", "a.example, b.example"),
            ("http://u@a.example/", "a.example"),
            ("http://a.example@b.example/", "a.example"),
            ("http://a.example#@b.example/", "a.example"),
            ("http://a.example\\@b.example/", "a.example"),
            ("https://a.example/", "a.example"),
            ("//a.example/", "a.example"),
            ("/", "a.example"),
            ("ftp://a.example/", "a.example"),
            ("http:a.example/", "a.example"),
            ("http:///x", "a.example"),
            ("a.example:80", "a.example"),
        ] {
            assert!(get(url, host).is_err(), "{url} {host}");
        }
        let two = "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n";
        assert_eq!(read(two), Err(Malformed::Host));
        assert_eq!(read("GET http://a.example/ HTTP/1.1\r\n\r\n"), Err(Malformed::Host));
        assert!(read("GET http://a.example/ HTTP/1.0\r\n\r\n").is_ok());
    }

    #[test]
    fn inside_a_connection_the_host_is_the_one_connected_to() {
        let front = Front::Inside(Host::parse("a.example").unwrap(), 8443);
        let read = |text: &str| {
            let (head, _) = head::request(text.as_bytes())?.expect("a whole head");
            destination(&head, &front)
        };
        assert!(read("GET /x HTTP/1.1\r\nHost: a.example:8443\r\n\r\n").is_ok());
        assert!(read("GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n").is_ok());
        assert!(read("GET /x HTTP/1.1\r\nHost: b.example\r\n\r\n").is_err());
        assert!(read("GET /x HTTP/1.1\r\nHost: a.example:443\r\n\r\n").is_err());
        assert!(read("GET http://b.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n").is_err());
    }

    #[test]
    fn what_is_forwarded_is_plain() {
        let text = "POST http://A.example:80/x?q HTTP/1.1\r\nHost: a.EXAMPLE\r\nProxy-Connection: keep-alive\r\n\
                    Content-Length: 2\r\nX: y\r\n\r\n";
        let (head, _) = head::request(text.as_bytes()).unwrap().unwrap();
        let to = destination(&head, &Front::Proxy).unwrap();
        let sent = String::from_utf8(forwarded(&head, &to, false)).unwrap();
        assert_eq!(sent, "POST /x?q HTTP/1.1\r\nHost: a.example\r\nX: y\r\nContent-Length: 2\r\n\r\n");
    }
}
