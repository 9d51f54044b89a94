//! tinyproxy, where it is installed: the baseline of a plain proxy.

use crate::Result;
use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const PROGRAM: &str = "/usr/bin/tinyproxy";
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running tinyproxy. It is killed when the value is dropped.
pub(crate) struct Tinyproxy {
    child: Child,
    pub(crate) port: u16,
    _folder: tempfile::TempDir,
}

impl Tinyproxy {
    pub(crate) fn is_there() -> bool {
        Path::new(PROGRAM).exists()
    }

    /// Starts one; none where it is not installed.
    pub(crate) fn start() -> Result<Option<Self>> {
        if !Self::is_there() {
            return Ok(None);
        }
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let file = folder.path().join("tinyproxy.conf");
        let text = format!(
            "Port {port}\nListen 127.0.0.1\nAllow 127.0.0.1\nMaxClients 4096\nTimeout 600\nLogLevel Critical\n\
             LogFile \"{}\"\n",
            folder.path().join("log").display()
        );
        fs::write(&file, text)?;
        let mut command = Command::new(PROGRAM);
        command
            .arg("-d")
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let proxy = Self { child: command.spawn()?, port, _folder: folder };
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if began.elapsed() > PATIENCE {
                return Err("tinyproxy does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(proxy))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Tinyproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
