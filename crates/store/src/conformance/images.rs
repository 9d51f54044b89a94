//! Images, the sandboxes that use them, and their builds.

use super::{NOW, Outcome, Shared, add, ensure, same, sandbox};
use crate::{BUILDS_KEPT, Change, NewSandbox, SandboxId, Status, StoreError, Thing};
use atoll_types::{
    BuildId, BuildRecord, BuildState, ImageConfig, ImageDefaults, ImageId, ImageName, ImageOrigin,
    ImageRecord, ImageTag, InstalledPackage, ProviderName,
};

fn image(name: &str, tags: &[&str]) -> ImageRecord {
    ImageRecord {
        id: ImageId::random(),
        name: name.into(),
        tags: tags.iter().map(ToString::to_string).collect(),
        display_name: Some("Python".into()),
        description: None,
        digest: format!("sha256:{}", "0".repeat(64)),
        size_bytes: 1 << 40,
        origin: ImageOrigin::Import,
        source: "oci".into(),
        provider: ProviderName::native(),
        config: ImageConfig {
            environment: [("PATH".into(), "/bin".into())].into(),
            ids: Some((1001, 1002)),
            entrypoint: vec!["python3".into()],
            ..ImageConfig::default()
        },
        defaults: ImageDefaults { memory_mb: Some(64), ..ImageDefaults::default() },
        packages: vec![InstalledPackage { manager: "pip".into(), name: "six".into(), version: "1".into() }],
        package_indexes: None,
        approved: false,
        created_at: NOW,
        last_used_at: None,
        deleting: false,
    }
}

fn build() -> BuildRecord {
    BuildRecord {
        id: BuildId::random(),
        image: ImageId::random(),
        tag: ImageTag { name: "python".into(), tag: "3".into() },
        origin: ImageOrigin::Import,
        source: String::new(),
        owner: "owner".into(),
        asked_by: "asker".into(),
        sandbox: SandboxId::random(),
        volume: "build-1".parse().unwrap_or_else(|_| unreachable!("a name")),
        state: BuildState::Running,
        error: None,
        created_at: NOW,
        ended_at: None,
    }
}

fn of(image: &ImageRecord) -> NewSandbox {
    let mut new = sandbox();
    new.profile.image = ImageName::of(image.id);
    new
}

fn missing<T: std::fmt::Debug>(what: &str, got: crate::Result<T>) -> Outcome {
    let right = matches!(got, Err(StoreError::NotFound(Thing::Image)));
    ensure(right, || format!("{what}: got {got:?}"))
}

pub(super) async fn a_name_and_a_tag_are_one_images(store: Shared) -> Outcome {
    let (first, other) = (image("python", &["3", "latest"]), image("node", &["3"]));
    for one in [&first, &other] {
        same("inserted", store.insert_image(one.clone(), BuildId::random(), false).await?, None)?;
        same("it", store.image(one.id).await?, Some(one.clone()))?;
    }
    same("by name", store.images().await?, vec![other.clone(), first.clone()])?;
    let second = ImageRecord { created_at: NOW + 1, ..image("python", &["latest", "4"]) };
    let refused = store.insert_image(second.clone(), BuildId::random(), false).await?;
    same("a tag is taken", refused, Some(first.clone()))?;
    same("nothing is left", store.image(second.id).await?, None)?;
    same("replaced", store.insert_image(second.clone(), BuildId::random(), true).await?, None)?;
    let first = ImageRecord { tags: vec!["3".into()], ..first };
    same("the rest", store.images().await?, vec![other, first.clone(), second.clone()])?;
    let change = ImageRecord { tags: vec!["4".into(), "3".into()], ..first.clone() };
    same("a change takes none", store.update_image(change).await?, Some(second))?;
    same("as it was", store.image(first.id).await?, Some(first.clone()))?;
    let mut change =
        ImageRecord { name: "py".into(), tags: vec!["b".into(), "a".into()], approved: true, ..first };
    change.defaults.disk_mb = Some(9);
    same("changed", store.update_image(change.clone()).await?, None)?;
    same("in its order", store.image(change.id).await?, Some(change))?;
    missing("a change of none", store.update_image(image("x", &[])).await)
}

pub(super) async fn an_image_in_use_is_not_deleted(store: Shared) -> Outcome {
    let used = image("python", &["3"]);
    store.insert_image(used.clone(), BuildId::random(), false).await?;
    let absent = of(&image("absent", &[]));
    let id = absent.id;
    missing("one that is not there", store.insert_sandbox(absent).await)?;
    same("nothing is left", store.sandbox(id).await?, None)?;
    let first = add(&store, of(&used)).await?;
    let second = add(&store, NewSandbox { created_at: NOW - 9, ..of(&used) }).await?;
    let last_used =
        async || Ok::<_, StoreError>(store.image(used.id).await?.and_then(|image| image.last_used_at));
    same("used", last_used().await?, Some(NOW))?;
    same("by both", store.image_users(used.id).await?, vec![first.id, second.id])?;
    same("refused", store.begin_delete_image(used.id).await?, vec![first.id, second.id])?;
    store.end_delete_image(used.id).await?;
    same("not removed", store.image(used.id).await?.map(|image| image.deleting), Some(false))?;
    for (at, sandbox) in [(NOW + 5, first), (NOW + 3, second)] {
        let end = Change { destroyed_at: Some(at), ..Change::status(Status::Destroyed) };
        store.update_sandbox(sandbox.id, sandbox.revision, end).await?;
    }
    same("used until", last_used().await?, Some(NOW + 5))?;
    same("free", store.begin_delete_image(used.id).await?, vec![])?;
    same("marked", store.image(used.id).await?.map(|image| image.deleting), Some(true))?;
    missing("one that is being deleted", store.insert_sandbox(of(&used)).await)?;
    store.end_delete_image(used.id).await?;
    same("gone", store.images().await?, vec![])?;
    same(
        "its tag is free",
        store.insert_image(image("python", &["3"]), BuildId::random(), false).await?,
        None,
    )
}

pub(super) async fn a_build_ends_once_and_old_ones_go(store: Shared) -> Outcome {
    let (one, made) = (build(), build());
    store.insert_build(one.clone()).await?;
    store.insert_build(made.clone()).await?;
    same("it", store.build(one.id).await?, Some(one.clone()))?;
    same("both run", store.running_builds().await?, vec![made.clone(), one.clone()])?;
    store.insert_image(image("python", &["3"]), made.id, false).await?;
    same("one is left", store.running_builds().await?, vec![one.clone()])?;
    let done = BuildRecord { state: BuildState::Done, ended_at: Some(NOW), ..made };
    same("the image ended it", store.build(done.id).await?, Some(done.clone()))?;
    store.end_build(done.id, BuildState::Failed, Some("late".into()), NOW + 1).await?;
    same("once", store.build(done.id).await?, Some(done.clone()))?;
    for _ in 0..BUILDS_KEPT {
        let next = build();
        store.insert_build(next.clone()).await?;
        store.end_build(next.id, BuildState::Failed, Some("why".into()), NOW + 2).await?;
    }
    store.insert_build(build()).await?;
    store.remove_build(one.id).await?;
    same("the oldest is gone", store.build(done.id).await?, None)?;
    same("one that runs stays", store.build(one.id).await?, Some(one))?;
    let all = store.builds(u32::MAX).await?;
    same("the rest", all.len(), BUILDS_KEPT as usize + 2)?;
    let ended = all.iter().find(|build| build.state != BuildState::Running).map(|build| build.id);
    if let Some(id) = ended {
        store.remove_build(id).await?;
        same("removed", store.build(id).await?, None)?;
    }
    same("and no other", store.builds(u32::MAX).await?.len(), BUILDS_KEPT as usize + 1)
}
