//! Volumes of owners, and the sandboxes that have them.

use super::{NOW, Outcome, Shared, add, clashes, ensure, read, same, sandbox};
use crate::{Change, Clash, NewSandbox, Status, StoreError, Thing};
use atoll_types::{ProviderName, VolumeId, VolumeMount, VolumeRecord};

fn volume(owner: &str, name: &str, tenant: Option<&str>) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId::random(),
        owner: owner.into(),
        owner_name: "Ada".into(),
        name: name.parse().unwrap_or_else(|_| unreachable!("a name")),
        tenant: tenant.map(str::to_owned),
        provider: ProviderName::native(),
        disk_bytes: 1 << 30,
        created_at: NOW,
        deleting: false,
    }
}

fn with(volumes: &[&VolumeRecord]) -> NewSandbox {
    let mut new = sandbox();
    let mount = |of: &&VolumeRecord| VolumeMount {
        name: of.name.clone(),
        volume: of.id,
        path: format!("/mnt/{}", of.name),
        read_only: false,
        whole: false,
    };
    new.profile.volumes = volumes.iter().map(mount).collect();
    new
}

fn missing<T: std::fmt::Debug>(what: &str, got: crate::Result<T>) -> Outcome {
    let right = matches!(got, Err(StoreError::NotFound(Thing::Volume)));
    ensure(right, || format!("{what}: got {got:?}"))
}

pub(super) async fn a_volume_is_its_owners_by_name_and_tenant(store: Shared) -> Outcome {
    let (data, tenants) = (volume("owner", "data", None), volume("owner", "tenant-1", Some("T 1")));
    for one in [&data, &tenants] {
        same("inserted", store.insert_volume(one.clone()).await?, None)?;
        same("it", store.volume("owner", one.name.as_str()).await?, Some(one.clone()))?;
    }
    same("a name is taken", store.insert_volume(volume("owner", "data", None)).await?, Some(data.clone()))?;
    let again = store.insert_volume(volume("owner", "other", Some("T 1"))).await?;
    same("a tenant is taken", again, Some(tenants.clone()))?;
    same("by tenant", store.tenant_volume("owner", "T 1").await?, Some(tenants.clone()))?;
    same("of another", store.volume("another", "data").await?, None)?;
    same("of another's tenant", store.tenant_volume("another", "T 1").await?, None)?;
    let others = volume("another", "data", Some("T 1"));
    same("another's name is free", store.insert_volume(others.clone()).await?, None)?;
    same("an owner's", store.volumes(Some("owner")).await?, vec![data.clone(), tenants.clone()])?;
    same("all", store.volumes(None).await?, vec![others, data.clone(), tenants])?;
    store.set_volume_limit(data.id, 7 << 20).await?;
    let resized = VolumeRecord { disk_bytes: 7 << 20, ..data };
    same("resized", store.volume("owner", "data").await?, Some(resized))
}

pub(super) async fn an_attached_volume_is_not_deleted(store: Shared) -> Outcome {
    let (first, second) = (volume("owner", "first", None), volume("owner", "second", None));
    for one in [&first, &second] {
        store.insert_volume(one.clone()).await?;
    }
    let record = add(&store, with(&[&first, &second])).await?;
    let reader = add(&store, with(&[&first])).await?;
    same("attached", store.attached_to(first.id).await?, vec![record.id, reader.id])?;
    same("refused", store.begin_delete_volume(second.id).await?, vec![record.id])?;
    same("unmarked", store.volume("owner", "second").await?, Some(second.clone()))?;
    store.end_delete_volume(second.id).await?;
    same("not removed", store.volume("owner", "second").await?, Some(second.clone()))?;
    // A change of the profile detaches, and the end of the sandbox does.
    let change = Change { profile: Some(with(&[&first]).profile), ..Change::default() };
    let record = store.update_sandbox(record.id, record.revision, change).await?;
    same("the rest", read(&store, record.id).await?.profile.volumes.len(), 1)?;
    same("marked", store.begin_delete_volume(second.id).await?, vec![])?;
    let marked = store.volume("owner", "second").await?;
    same("shown", marked.map(|one| one.deleting), Some(true))?;
    missing("of one that is being deleted", store.insert_sandbox(with(&[&second])).await)?;
    store.end_delete_volume(second.id).await?;
    same("gone", store.volume("owner", "second").await?, None)?;
    for sandbox in [record, reader] {
        store.update_sandbox(sandbox.id, sandbox.revision, Change::status(Status::Destroyed)).await?;
    }
    same("free", store.begin_delete_volume(first.id).await?, vec![])
}

pub(super) async fn only_an_owners_own_volumes_are_attached(store: Shared) -> Outcome {
    let (own, others) = (volume("owner", "data", None), volume("another", "data", None));
    for one in [&own, &others] {
        store.insert_volume(one.clone()).await?;
    }
    let absent = volume("owner", "absent", None);
    for wrong in [&others, &absent] {
        let new = with(&[&own, wrong]);
        let id = new.id;
        missing("insert", store.insert_sandbox(new).await)?;
        same("nothing is left", store.sandbox(id).await?, None)?;
    }
    let record = add(&store, with(&[&own])).await?;
    let change = Change { profile: Some(with(&[&others]).profile), ..Change::default() };
    missing("change", store.update_sandbox(record.id, record.revision, change).await)?;
    same("as it was", read(&store, record.id).await?, record.clone())?;
    same("attached", store.attached_to(own.id).await?, vec![record.id])?;
    same("another's", store.attached_to(others.id).await?, vec![])?;
    let late = Change { profile: Some(with(&[]).profile), ..Change::default() };
    clashes("an old revision", store.update_sandbox(record.id, 9, late).await, Clash::Revision)
}
