//! The minimum of isolation that every provider must have; the native one's own tests demand far more.

use super::{Outcome, ensure, same, says, shell, spec, with};
use crate::Provider;

pub(super) async fn the_user_is_the_profiles_and_has_no_power(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        same("user", says(&container, "id -u; id -g").await?, "1000\n1000".into())?;
        let status = says(&container, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status").await?;
        for line in status.lines().filter(|l| l.starts_with("Cap")) {
            ensure(line.ends_with("0000000000000000"), || format!("a capability is left: {line}"))?;
        }
        ensure(status.contains("NoNewPrivs:\t1"), || "privileges could be gained".into())
    })
    .await
}

pub(super) async fn the_root_is_read_only(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        for place in ["/", "/usr", "/etc", "/var"] {
            let tried = shell(&container, &format!("touch {place}/x")).await?;
            ensure(tried.report.exit_code != Some(0), || format!("{place} can be written"))?;
        }
        same("writable", says(&container, "touch /workspace/x /tmp/x ~/x && echo yes").await?, "yes".into())
    })
    .await
}

pub(super) async fn containers_see_nothing_of_each_other(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |first| {
        with(provider, spec(), async |second| {
            says(&first, "echo secret | tee /workspace/s /tmp/s ~/s; (setsid sleep 7654 &)").await?;
            let files = says(&second, "ls /workspace /tmp/s ~/s 2>/dev/null | grep -v :").await?;
            same("files", files, String::new())?;
            same("processes", says(&second, "pgrep -fc '[s]leep 7654'").await?, "0".into())
        })
        .await
    })
    .await
}

pub(super) async fn there_is_no_network(provider: &dyn Provider) -> Outcome {
    with(provider, spec(), async |container| {
        let devices = says(&container, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").await?;
        same("devices", devices, "lo".into())?;
        let routes = says(&container, "tail -n +2 /proc/net/route | wc -l").await?;
        same("routes", routes, "0".into())
    })
    .await
}
