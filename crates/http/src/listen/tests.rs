//! Connections of HTTP/2 whose client answers pings and does nothing else.

use super::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    task::JoinHandle,
};

const RESET_FRAME: u8 = 3;
const PING_FRAME: u8 = 6;
const ACK: u8 = 1;
/// How a connection of HTTP/2 begins, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The same with no window for any stream.
const NO_WINDOW: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0";
/// GET http://a/, whose headers end the stream.
const GET: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a";

/// A connection of HTTP/2 to this app, after a request on it.
async fn asked(app: Router, write_timeout: Duration, begin: &[u8]) -> (DuplexStream, JoinHandle<()>) {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let peer = SocketAddr::from(([192, 0, 2, 1], 1));
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let place = Arc::new((room, Peers::default().take(peer, 1).unwrap()));
    let life = Life { _place: place, ending: Ending(CancellationToken::new()), tls: false };
    let limits = ConnectionLimits { write_timeout, head_timeout: PONG, per_peer: 1 };
    let served = tokio::spawn(speak(true, server, peer, app, life, limits));
    client.write_all(&[begin, GET].concat()).await.unwrap();
    (client, served)
}

/// The kind of the next frame and its stream; a ping is answered. None at the end.
async fn frame(client: &mut DuplexStream) -> Option<(u8, u8)> {
    let mut head = [0; 9];
    client.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    client.read_exact(&mut payload).await.unwrap();
    let (kind, stream) = (head[3], head[8]);
    if kind == PING_FRAME && head[4] & ACK == 0 {
        head[4] = ACK;
        client.write_all(&[&head[..], &payload].concat()).await.unwrap();
    }
    Some((kind, stream))
}

/// A client that answers pings, and so is there, and asks once.
#[tokio::test(start_paused = true)]
async fn a_connection_of_http2_without_requests_is_closed() {
    let (mut client, served) = asked(Router::new(), IDLE, PREFACE).await;
    let mut pings = 0;
    while let Some((kind, _)) = frame(&mut client).await {
        pings += usize::from(kind == PING_FRAME);
        assert!(pings < 10, "the connection stays open");
    }
    served.await.unwrap();
    assert!(pings >= 2, "it was closed for being idle, and not for being silent");
}

/// A client that answers pings and gives an answer no window: its stream ends, and what the answer holds with it.
#[tokio::test(start_paused = true)]
async fn a_stream_of_http2_that_is_not_read_is_reset() {
    for size in [1, 1 << 20] {
        let room = Arc::new(Semaphore::new(1));
        let places = Arc::clone(&room);
        let answer = move || {
            let held = Arc::clone(&places).try_acquire_owned().unwrap();
            async move { holding(Body::from(vec![b'x'; size]).into_response(), held) }
        };
        let app = Router::new().route("/", axum::routing::get(answer));
        let (mut client, _served) = asked(app, Duration::from_secs(60), NO_WINDOW).await;
        let mut pings = 0;
        loop {
            let (kind, stream) = frame(&mut client).await.expect("the connection goes on");
            if (kind, stream) == (RESET_FRAME, 1) {
                break;
            }
            pings += usize::from(kind == PING_FRAME);
            assert!(pings < 10, "the stream stays");
        }
        assert_eq!(room.available_permits(), 1, "the answer of {size} bytes is still held");
    }
}
