//! The plain file server that uploads and downloads are compared with: PUT writes a file, GET streams one,
//! and nothing else. It has a thread of its own, so its calls to the file system may block.

use crate::{
    Result,
    http::{Client, Wire},
};
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    thread,
};
use tokio::net::TcpListener;

/// The size of one read.
const PIECE: usize = 256 << 10;

/// Starts a server for the files of a folder and connects to it. It ends with the connection.
pub(crate) async fn start(folder: &Path) -> Result<Client> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let (address, folder) = (listener.local_addr()?, folder.to_owned());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    thread::spawn(move || {
        // The client sees a closed connection and reports it.
        if let Err(error) = runtime.block_on(serve(listener, &folder)) {
            eprintln!("atoll-bench: the plain file server: {error}");
        }
    });
    Client::connect(address, None).await
}

async fn serve(listener: std::net::TcpListener, folder: &Path) -> Result<()> {
    let (stream, _) = TcpListener::from_std(listener)?.accept().await?;
    let mut wire = Wire::new(stream)?;
    while let Some(head) = wire.head().await? {
        let file = path(folder, head.word(1))?;
        match head.word(0) {
            "PUT" => receive(&mut wire, &file, head.length()?).await?,
            "GET" => give(&mut wire, &file).await?,
            other => return Err(format!("{other} is not for a plain file server").into()),
        }
    }
    Ok(())
}

fn path(folder: &Path, target: &str) -> Result<PathBuf> {
    match target.strip_prefix('/') {
        Some(name) if !name.is_empty() && !name.contains(['/', '%']) && name != ".." => Ok(folder.join(name)),
        _ => Err(format!("{target} is not a file's name").into()),
    }
}

async fn receive(wire: &mut Wire, path: &Path, length: u64) -> Result<()> {
    let mut file = File::create(path)?;
    wire.pass(length, &mut |piece| file.write_all(piece)).await?;
    Ok(wire.send(b"HTTP/1.1 204 No Content\r\n\r\n").await?)
}

async fn give(wire: &mut Wire, path: &Path) -> Result<()> {
    let mut file = File::open(path)?;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.metadata()?.len());
    wire.send(head.as_bytes()).await?;
    let mut buffer = vec![0; PIECE];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            length => wire.send(&buffer[..length]).await?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_there_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = start(folder.path()).await.unwrap();
            client.put("/a", b"0123456789abcdef", 1 << 20).await.unwrap().expect(204).unwrap();
            assert_eq!(client.get("/a").await.unwrap(), 1 << 20);
        });
    }

    #[test]
    fn no_name_leads_out() {
        let folder = Path::new("/f");
        assert_eq!(path(folder, "/a").unwrap(), Path::new("/f/a"));
        for target in ["/", "/..", "/../a", "a", "/%2e%2e"] {
            assert!(path(folder, target).is_err(), "{target}");
        }
    }
}
