//! A server with two providers, and one that lacks the provider of some of its sandboxes.

use super::config;
use crate::serve::engine::{Engine, Ground};
use atoll_core::{Caller, CreateSandbox, ExecCommand, Providers};
use atoll_provider_process::ProcessProvider;
use atoll_types::{ErrorCode, ProviderName, SandboxId, Status};
use std::{path::Path, sync::Arc};

/// A control plane whose first provider runs new sandboxes.
async fn engine(folder: &Path, all: &[(&ProviderName, &Arc<ProcessProvider>)]) -> Engine {
    let config = config(folder, "", &[]);
    let (name, first) = all[0];
    let mut providers = Providers::new(name.clone(), Arc::clone(first) as _);
    for (name, provider) in &all[1..] {
        providers = providers.with((*name).clone(), Arc::clone(provider) as _);
    }
    let ground = Ground::open(&config.data_dir, &config.database).await.unwrap();
    ground.build_with(&config, providers, &**first, config.listen).await.unwrap()
}

async fn create(engine: &Engine) -> SandboxId {
    let made = engine.core.sandboxes.create(&Caller::local(), CreateSandbox::default()).await.unwrap();
    made.record.id
}

async fn says(engine: &Engine, sandbox: SandboxId, line: &str) -> atoll_types::Result<Vec<u8>> {
    let command = ExecCommand { command: Some(line.to_owned()), ..ExecCommand::default() };
    engine.core.execs.run(&Caller::local(), sandbox, &command).await.map(|outcome| outcome.stdout)
}

#[test]
fn each_sandbox_stays_with_its_provider_and_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (native, other): (_, ProviderName) = (ProviderName::native(), "other".parse().unwrap());
    let (first, second) = (ProcessProvider::new().unwrap(), ProcessProvider::new().unwrap());
    let (first, second) = (Arc::new(first), Arc::new(second));
    runtime.block_on(async {
        let alone = engine(folder.path(), &[(&other, &second)]).await;
        let old = create(&alone).await;
        alone.end().await;

        let both = engine(folder.path(), &[(&native, &first), (&other, &second)]).await;
        let new = create(&both).await;
        for (sandbox, name) in [(old, &other), (new, &native)] {
            let record = both.core.sandboxes.get(&Caller::local(), sandbox).await.unwrap();
            assert_eq!((&record.provider, record.status), (name, Status::Ready));
            assert_eq!(says(&both, sandbox, "echo kept > a; cat a").await.unwrap(), b"kept\n");
        }
        both.end().await;

        // Without its provider a sandbox is neither called dead nor removed, and says what is missing.
        let lacks = engine(folder.path(), &[(&native, &first)]).await;
        let caller = Caller::local();
        let record = lacks.core.sandboxes.get(&caller, old).await.unwrap();
        assert_eq!(record.status, Status::Ready);
        let refusals = [
            says(&lacks, old, "true").await.map(drop),
            lacks.core.sandboxes.stop(&caller, old).await.map(drop),
            lacks.core.sandboxes.destroy(&caller, old).await,
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert_eq!(error.code, ErrorCode::Unavailable, "{error}");
            assert!(error.message.contains("other"), "{error}");
        }
        assert_eq!(says(&lacks, new, "cat a").await.unwrap(), b"kept\n", "the others go on");
        lacks.end().await;
    });
}
