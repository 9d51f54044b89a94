//! Listing and controlling kernels.

use super::args::{
    KernelCheckpoint, KernelCommand, KernelFork, KernelOptions, KernelRollback, KernelStart, Kernels,
    OneKernel,
};
use crate::{Failure, resolve, server::Server, table, terminal, when};
use atoll_client::{Checkpoint, Client, Kernel, StartKernel, Uuid};

fn rendered(kernels: &[Kernel]) -> String {
    let rows: Vec<[String; 7]> = kernels
        .iter()
        .map(|kernel| {
            let status = match &kernel.death {
                Some(death) => format!("{} ({death})", kernel.status),
                None => kernel.status.clone(),
            };
            [
                resolve::short(kernel.kernel_id),
                kernel.interpreter.clone(),
                if kernel.default { "yes".into() } else { String::new() },
                status,
                kernel.execution_count.to_string(),
                kernel.checkpoints.len().to_string(),
                when::since(&kernel.last_activity_at),
            ]
        })
        .collect();
    table::render(["KERNEL", "INTERPRETER", "DEFAULT", "STATUS", "CELLS", "CHECKPOINTS", "ACTIVE"], &rows)
}

/// `kernels`.
pub(crate) async fn list(options: Kernels) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let id = resolve::sandbox(&client, &options.id).await?;
    let kernels = client.kernels(id).await.map_err(|e| Failure::from(e).about(&options.id))?;
    match options.server.json {
        true => terminal::print_json(&kernels.json)?,
        false => terminal::print(&rendered(&kernels))?,
    }
    Ok(0)
}

/// The kernel that the text means.
pub(super) async fn kernel(client: &Client, sandbox: Uuid, text: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let all = client.kernels(sandbox).await?;
    resolve::kernel(&all, text)
}

/// The default kernel of a language, where there is one.
pub(super) fn default_of(kernels: &[Kernel], language: &str) -> Option<Uuid> {
    let named = |kernel: &&Kernel| kernel.default && kernel.language == language;
    kernels.iter().find(named).map(|kernel| kernel.kernel_id)
}

/// A sandbox and a kernel in it, as they were typed.
async fn found(server: &Server, id: &str, text: &str) -> Result<(Client, Uuid, Uuid), Failure> {
    let client = server.client()?;
    let sandbox = resolve::sandbox(&client, id).await?;
    let kernel = kernel(&client, sandbox, text).await.map_err(|e| e.about(id))?;
    Ok((client, sandbox, kernel))
}

/// The checkpoint that the text means: its id, the start of it, or its name.
async fn checkpoint(client: &Client, sandbox: Uuid, kernel: Uuid, text: &str) -> Result<Uuid, Failure> {
    if let Ok(id) = Uuid::try_parse(text) {
        return Ok(id);
    }
    let all = client.kernels(sandbox).await?.value;
    let of = all.into_iter().find(|one| one.kernel_id == kernel);
    let checkpoints: Vec<Checkpoint> = of.map(|one| one.checkpoints).unwrap_or_default();
    resolve::checkpoint(&checkpoints, text)
}

fn print_id(json: bool, reply: &str, id: Uuid) -> Result<u8, Failure> {
    match json {
        true => terminal::print_json(reply)?,
        // The whole id, because scripts keep it.
        false => terminal::print(&format!("{}\n", id.simple()))?,
    }
    Ok(0)
}

fn done(json: bool, id: Uuid) -> Result<u8, Failure> {
    // The server's response is empty.
    if !json {
        terminal::print(&format!("{}\n", resolve::short(id)))?;
    }
    Ok(0)
}

/// `kernel`.
pub(crate) async fn run(options: KernelOptions) -> Result<u8, Failure> {
    match options.command {
        KernelCommand::Start(KernelStart { id, language, server }) => {
            let client = server.client()?;
            let sandbox = resolve::sandbox(&client, &id).await?;
            let request = StartKernel { language: Some(language), ..StartKernel::default() };
            let reply = client.start_kernel(sandbox, &request).await;
            let reply = reply.map_err(|e| Failure::from(e).about(&id))?;
            print_id(server.json, &reply.json, reply.kernel_id)
        }
        KernelCommand::Interrupt(OneKernel { id, kernel, server }) => {
            let (client, sandbox, kernel) = found(&server, &id, &kernel).await?;
            client.interrupt_kernel(sandbox, kernel).await.map_err(|e| Failure::from(e).about(&id))?;
            done(server.json, kernel)
        }
        KernelCommand::Restart(OneKernel { id, kernel, server }) => {
            let (client, sandbox, kernel) = found(&server, &id, &kernel).await?;
            let reply = client.restart_kernel(sandbox, kernel).await;
            let reply = reply.map_err(|e| Failure::from(e).about(&id))?;
            print_id(server.json, &reply.json, kernel)
        }
        KernelCommand::Rm(OneKernel { id, kernel, server }) => {
            let (client, sandbox, kernel) = found(&server, &id, &kernel).await?;
            client.delete_kernel(sandbox, kernel).await.map_err(|e| Failure::from(e).about(&id))?;
            done(server.json, kernel)
        }
        KernelCommand::Checkpoint(KernelCheckpoint { id, kernel, name, server }) => {
            let (client, sandbox, kernel) = found(&server, &id, &kernel).await?;
            let reply = client.checkpoint_kernel(sandbox, kernel, &name).await;
            let reply = reply.map_err(|e| Failure::from(e).about(&id))?;
            if reply.threads_lost > 0 && !server.json {
                terminal::note(&format!("{} threads are not in it", reply.threads_lost));
            }
            print_id(server.json, &reply.json, reply.checkpoint_id)
        }
        KernelCommand::Rollback(KernelRollback { id, kernel, checkpoint: text, server }) => {
            let (client, sandbox, kernel) = found(&server, &id, &kernel).await?;
            let about = |failure: Failure| failure.about(&id);
            let to = checkpoint(&client, sandbox, kernel, &text).await.map_err(about)?;
            let reply = client.rollback_kernel(sandbox, kernel, to).await.map_err(|e| about(e.into()))?;
            print_id(server.json, &reply.json, kernel)
        }
        KernelCommand::Fork(KernelFork { id, kernel, checkpoint: text, server }) => {
            let (client, sandbox, kernel) = found(&server, &id, &kernel).await?;
            let about = |failure: Failure| failure.about(&id);
            let from = match &text {
                Some(text) => Some(checkpoint(&client, sandbox, kernel, text).await.map_err(about)?),
                None => None,
            };
            let reply = client.fork_kernel(sandbox, kernel, from).await.map_err(|e| about(e.into()))?;
            print_id(server.json, &reply.json, reply.kernel_id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_kernel() {
        let kernels: Vec<Kernel> = serde_json::from_value(serde_json::json!([
            { "kernel_id": "3f2a11bc000040008000000000000001", "language": "python", "default": true,
              "status": "idle", "interpreter": "Python 3.11.2", "execution_count": 7, "last_activity_at": "then",
              "checkpoints": [{ "checkpoint_id": "00112233000040008000000000000001" }] },
            { "kernel_id": "00112233000040008000000000000001", "language": "r", "status": "dead",
              "interpreter": "R\u{1b}[2J", "death": "out of memory", "last_activity_at": "then" },
        ]))
        .unwrap();
        insta::assert_snapshot!(rendered(&kernels), @r"
        KERNEL    INTERPRETER    DEFAULT  STATUS                CELLS  CHECKPOINTS  ACTIVE
        3f2a11bc  Python 3.11.2  yes      idle                  7      1            then
        00112233  R\u{1b}[2J     -        dead (out of memory)  0      0            then
        ");
        assert_eq!(default_of(&kernels, "python").map(resolve::short).as_deref(), Some("3f2a11bc"));
        assert_eq!(default_of(&kernels, "r"), None);
    }
}
