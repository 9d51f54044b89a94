//! `atoll create`.

use crate::{
    Failure,
    args::Create,
    egress,
    images::{pull_on_use, with_build},
    pairs,
    resources::RequestedResources,
    terminal,
};
use atoll_client::{CreateSandbox, Filesystem};
use std::collections::BTreeMap;

fn request(options: Create) -> Result<CreateSandbox, Failure> {
    let Create {
        image,
        profile,
        resources,
        processes,
        env,
        label,
        dependency,
        auto_snapshot,
        session_key,
        network,
        egress_mode,
        egress: lists,
        volume,
        tenant,
        read_only,
        read_write,
        blocked,
        server: _,
    } = options;
    let mut dependencies: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for pairs::Package { language, name, version } in dependency {
        dependencies.entry(language).or_default().insert(name, version);
    }
    let RequestedResources { memory_mb, cpu_cores, disk_mb, idle_timeout_seconds, max_lifetime_seconds } =
        resources.request()?;
    Ok(CreateSandbox {
        image,
        profile,
        idle_timeout_seconds,
        max_lifetime_seconds,
        memory_mb,
        cpu_cores,
        disk_mb,
        processes,
        env_vars: pairs::map(env),
        network_enabled: network.then_some(true),
        egress: egress::policy(egress_mode, lists),
        session_key,
        labels: pairs::map(label),
        auto_snapshot,
        dependencies,
        volumes: volume,
        tenant_id: tenant,
        filesystem: Filesystem { read_only, read_write, blocked },
    })
}

pub(crate) async fn run(options: Create) -> Result<u8, Failure> {
    let client = options.server.client()?;
    let json = options.server.json;
    let request = request(options)?;
    if let Some(image) = &request.image {
        pull_on_use(&client, image, json).await?;
    }
    let creating = client.create(&request);
    let sandbox = with_build(&client, request.image.as_deref(), json, creating).await?;
    if let Some(complaint) = &sandbox.stderr {
        for line in complaint.lines() {
            terminal::note(line);
        }
    }
    if json {
        terminal::print_json(&sandbox.json)?;
    } else {
        // The whole id, because scripts keep it.
        terminal::print(&format!("{}\n", sandbox.id))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Remote;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Remote,
    }

    fn sent(line: &str) -> serde_json::Value {
        let words = ["atoll", "create"].into_iter().chain(line.split_whitespace());
        let Remote::Create(options) = Cli::parse_from(words).command else { panic!("another command") };
        serde_json::to_value(request(*options).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_said_is_not_sent() {
        assert_eq!(sent(""), serde_json::json!({}));
        let line = "--memory 1g --cpus 0.5 --disk 1.5m --idle-timeout 1500ms --max-lifetime 2h -e A=1 --label k=v --network";
        let wanted = serde_json::json!({
            "memory_mb": 1024, "cpu_cores": 0.5, "disk_mb": 2, "idle_timeout_seconds": 2, "max_lifetime_seconds": 7200,
            "env_vars": { "A": "1" }, "labels": { "k": "v" }, "network_enabled": true,
        });
        assert_eq!(sent(line), wanted);
        let line =
            "--preset python --allow a.example --allow *.b.example:443 --deny c.example --limit bytes=5";
        let wanted = serde_json::json!({ "egress": { "mode": "allowlist", "presets": ["python"],
            "allow": ["a.example", "*.b.example:443"], "deny": ["c.example"], "limits": { "bytes": 5 } } });
        assert_eq!(sent(line), wanted);
        let line = "-d python:pandas==2.2.3 -d python:six -d node:@types/node==^20";
        let wanted = serde_json::json!({ "dependencies": { "python": { "pandas": "2.2.3", "six": "" },
            "node": { "@types/node": "^20" } } });
        assert_eq!(sent(line), wanted);
        let line =
            "--volume data:/mnt/data:ro --tenant t --read-only /workspace/in --blocked /etc --blocked /opt";
        let wanted = serde_json::json!({ "tenant_id": "t",
            "volumes": [{ "name": "data", "path": "/mnt/data", "read_only": true }],
            "filesystem": { "read_only": ["/workspace/in"], "blocked": ["/etc", "/opt"] } });
        assert_eq!(sent(line), wanted);
        assert_eq!(
            sent("--profile root --processes 32"),
            serde_json::json!({ "profile": "root", "processes": 32 })
        );
        assert_eq!(sent("--egress-mode full"), serde_json::json!({ "egress": { "mode": "full" } }));
    }
}
