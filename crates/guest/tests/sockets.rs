//! Whose a socket is.

use crate::support::*;
use atoll_guest_proto::v1::{ExecRef, ExecRequest, SocketRef};
use atoll_types::ErrorCode;
use std::fs;

async fn whose(guest: &Guest, port: u16) -> Result<String, tonic::Status> {
    let request = SocketRef { address: vec![127, 0, 0, 1], port: port.into() };
    let found = guest.client.clone().find_socket(request).await?;
    let ExecRef { exec_id } = found.into_inner();
    Ok(exec_id)
}

/// Opens a socket, says its port in a file, and waits.
fn opens(name: &str, before: &str) -> ExecRequest {
    python(&format!(
        "import os,socket,time\n{before}\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
         s.bind(('127.0.0.1',0))\nopen('{name}.new','w').write(str(s.getsockname()[1]))\n\
         os.rename('{name}.new','{name}')\ntime.sleep(1000)"
    ))
}

#[tokio::test]
async fn a_socket_belongs_to_the_command_whose_process_has_it() {
    let guest = Guest::as_pid_1(config()).await;
    let plain = opens("plain", "");
    // It leaves its session and its parent, as a daemon does.
    let daemon = opens("daemon", "if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)");
    let mut found = Vec::new();
    for (name, request) in [("plain", plain), ("daemon", daemon)] {
        let id = request.exec_id.clone();
        guest.client.clone().start_exec(request).await.unwrap();
        let file = guest.path(&format!("/workspace/{name}"));
        eventually("the port", async || file.exists()).await;
        found.push((id, fs::read_to_string(&file).unwrap().parse::<u16>().unwrap()));
    }
    let missing = error(whose(&guest, 1).await);
    assert_eq!(missing.code, ErrorCode::NotFound, "nobody has that port");
    for (id, port) in found {
        assert_eq!(whose(&guest, port).await.unwrap(), id);
    }
}
