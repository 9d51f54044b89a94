//! Volumes that belong to an owner, outlive its sandboxes, and are attached to several of them. A tenant's storage is
//! such a volume, found or made by the tenant's id.
//!
//! A volume is recorded before it is made, and marked before it is removed; the record goes last. A start of the server
//! makes what is recorded and missing, and removes what is marked ([`Volumes::repair`]), so a crash between two steps
//! leaves nothing behind. Which sandbox has which volume is written in the sandbox's own transaction.

use crate::{
    Caller, Providers,
    actor::no_disk,
    admission::{Admission, Turn, Turns, VolumeReservation},
    bounds::TENANT_ID,
    ceiling::CallerLimits,
    events::new_event,
    operation::{OperationSpec, Operations},
    run_to_end::run_to_end,
    sandboxes::disk_limit,
};
use atoll_provider::Attachments;
use atoll_store::{NewEvent, SandboxId, Scope, Store};
use atoll_types::{
    Error, ErrorCode, EventKind, ImageId, Operation, ProviderName, Result, TENANT_PATH, VolumeId,
    VolumeMount, VolumeName, VolumeRecord, time::now_ms,
};
use futures_util::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Volumes that are repaired concurrently at a start.
const AT_ONCE: usize = 16;

/// A request for a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewVolume {
    pub name: String,
    /// What it may hold; as much as a sandbox's disk by default.
    pub disk_mb: Option<u64>,
}

/// A volume that a request names for a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachVolume {
    pub name: String,
    pub path: String,
    pub read_only: bool,
}

/// A volume and what is known of it beside its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeView {
    pub record: VolumeRecord,
    /// None where the kernel does not count it, and while the volume is being made or removed.
    pub used_bytes: Option<u64>,
    pub attached: Vec<SandboxId>,
}

/// Volumes.
#[derive(Clone)]
pub struct Volumes {
    pub(crate) operations: Operations,
    pub(crate) limits: CallerLimits,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) providers: Providers,
    pub(crate) admission: Admission,
    /// One change of a volume at a time.
    pub(crate) turns: Arc<Turns>,
}

/// How long a change waits for the one before it.
const PATIENCE: Duration = Duration::from_secs(30);

fn unknown(name: &str) -> Error {
    Error::new(ErrorCode::NotFound, format!("there is no volume {name:?}"))
}

fn name_of(text: &str, field: &str) -> Result<VolumeName> {
    text.parse().map_err(|e: atoll_types::NameError| Error::invalid(field, e.to_string()))
}

fn event(record: &VolumeRecord, kind: EventKind) -> NewEvent {
    let data = serde_json::json!({
        "name": record.name, "disk_mb": record.disk_bytes >> 20, "tenant_id": record.tenant,
    });
    new_event(&record.owner, None, kind, None, &data)
}

impl Volumes {
    fn attachments(&self, provider: &ProviderName) -> Result<&dyn Attachments> {
        self.providers.get(provider)?.attachments().ok_or_else(|| {
            Error::new(ErrorCode::Unsupported, format!("the provider {provider} has no volumes to attach"))
        })
    }

    /// The owner that a request is about. Only an admin may name another one.
    fn owner(caller: &Caller, owner: Option<&str>, name: &str) -> Result<String> {
        let owner = owner.map_or_else(|| caller.owner.clone(), crate::owner_id);
        if caller.may_see(&owner) { Ok(owner) } else { Err(unknown(name)) }
    }

    async fn find(&self, caller: &Caller, owner: Option<&str>, name: &str) -> Result<VolumeRecord> {
        let owner = Self::owner(caller, owner, name)?;
        self.store.volume(&owner, name).await?.ok_or_else(|| unknown(name))
    }

    /// A volume, and the turn to change it. The record is read after the change before it has ended.
    async fn find_alone(
        &self,
        caller: &Caller,
        owner: Option<&str>,
        name: &str,
    ) -> Result<(VolumeRecord, Turn)> {
        let owner = Self::owner(caller, owner, name)?;
        let turn = self.turn(&owner, name).await?;
        let record = self.store.volume(&owner, name).await?.ok_or_else(|| unknown(name))?;
        Ok((record, turn))
    }

    /// Changes of one volume are made one at a time.
    async fn turn(&self, owner: &str, name: &str) -> Result<Turn> {
        let late = || {
            let message = format!("the volume {name:?} is being changed; try again");
            Error::new(ErrorCode::Conflict, message)
        };
        self.turns.take(&format!("{owner}/{name}"), Instant::now() + PATIENCE, late).await
    }

    /// Makes a volume of the caller's.
    pub async fn create(&self, caller: &Caller, new: NewVolume) -> Result<VolumeRecord> {
        self.create_from(caller, new, None).await
    }

    /// The same, with the files of an image to begin with.
    pub(crate) async fn create_from(
        &self,
        caller: &Caller,
        new: NewVolume,
        base: Option<ImageId>,
    ) -> Result<VolumeRecord> {
        let NewVolume { name, disk_mb } = new;
        let what = OperationSpec::new(Operation::VolumeCreate).with(&name);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let name = name_of(&name, "name")?;
            match self.make(caller, name, None, disk_mb, base).await? {
                (_, Some(there)) => {
                    let message = format!("you have a volume {}", there.name);
                    Err(Error::new(ErrorCode::AlreadyExists, message).at("name"))
                }
                (made, None) => Ok(made),
            }
        }
        .await;
        if let Ok(made) = &result {
            audited.add_event(event(made, EventKind::VolumeCreated));
        }
        audited.done(result).await
    }

    /// Makes a volume, or returns also the one that has its name or its tenant already.
    async fn make(
        &self,
        caller: &Caller,
        name: VolumeName,
        tenant: Option<String>,
        disk_mb: Option<u64>,
        base: Option<ImageId>,
    ) -> Result<(VolumeRecord, Option<VolumeRecord>)> {
        let record = VolumeRecord {
            id: VolumeId::random(),
            owner: caller.owner.clone(),
            owner_name: caller.owner_name.clone(),
            name,
            tenant,
            provider: self.providers.default_name().clone(),
            disk_bytes: disk_limit(self.limits.ceiling(caller), disk_mb)?,
            created_at: now_ms(),
            deleting: false,
        };
        self.attachments(&record.provider)?;
        // A delete that came between the record and the volume would leave a volume without a record.
        let turn = self.turn(&record.owner, record.name.as_str()).await?;
        let quota = self.limits.quota(caller, &record.owner, &record.owner_name);
        let reservation =
            self.admission.place_volume(record.id, &record.owner, record.disk_bytes, quota.as_ref())?;
        let (volumes, new) = (self.clone(), record.clone());
        let there = run_to_end("the change of the volume", async move {
            let _turn = turn;
            volumes.record_and_make(new, base, reservation).await
        })
        .await?;
        Ok((record, there))
    }

    async fn record_and_make(
        &self,
        new: VolumeRecord,
        base: Option<ImageId>,
        reservation: VolumeReservation,
    ) -> Result<Option<VolumeRecord>> {
        if let Some(there) = self.store.insert_volume(new.clone()).await? {
            return Ok(Some(there));
        }
        let made = match (base, self.providers.get(&new.provider)?.images()) {
            (None, _) => self.attachments(&new.provider)?.put_volume(new.id, new.disk_bytes).await,
            (Some(image), Some(power)) => power.volume_from_image(image, new.id, new.disk_bytes).await,
            (Some(_), None) => {
                let message = format!("the provider {} keeps no images", new.provider);
                Err(Error::new(ErrorCode::Unsupported, message))
            }
        };
        if let Err(error) = made {
            // Where this fails too, the next start makes the volume or removes it.
            if let Err(left) = self.end(&new).await {
                tracing::warn!(volume = %new.name, error = %left, "a volume that was not made is still recorded");
                reservation.keep();
            }
            return Err(if error.code == ErrorCode::DiskFull {
                no_disk(error, new.disk_bytes)
            } else {
                error
            });
        }
        reservation.keep();
        Ok(None)
    }

    /// A volume of the caller's, or of an owner that an admin names.
    pub async fn get(&self, caller: &Caller, owner: Option<&str>, name: &str) -> Result<VolumeView> {
        let record = self.find(caller, owner, name).await?;
        let used_bytes = match self.attachments(&record.provider)?.volume_usage(record.id).await {
            // It is being made, or being removed.
            Err(error) if error.code == ErrorCode::NotFound => None,
            used => used?,
        };
        let attached = self.store.attached_to(record.id).await?;
        Ok(VolumeView { record, used_bytes, attached })
    }

    /// The caller's volumes, by name; those of all owners for an admin that names none.
    pub async fn list(&self, caller: &Caller, owner: Option<&str>) -> Result<Vec<VolumeRecord>> {
        let owner = match owner {
            Some(name) => {
                let other = |_| Error::new(ErrorCode::NotFound, format!("there is no volume of {name}"));
                Some(Self::owner(caller, owner, "").map_err(other)?)
            }
            None => (caller.scope != Scope::Admin).then(|| caller.owner.clone()),
        };
        Ok(self.store.volumes(owner.as_deref()).await?)
    }

    /// Gives a volume another limit, in use or not: within its owner's plan, and never below what it holds.
    pub async fn resize(
        &self,
        caller: &Caller,
        owner: Option<&str>,
        name: &str,
        disk_mb: u64,
    ) -> Result<VolumeRecord> {
        let what = OperationSpec::new(Operation::VolumeResize).with(name).and("disk_mb", disk_mb);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let (record, turn) = self.find_alone(caller, owner, name).await?;
            if record.deleting {
                return Err(unknown(name));
            }
            let bytes = disk_limit(self.limits.ceiling(caller), Some(disk_mb))?;
            let quota = self.limits.quota(caller, &record.owner, &record.owner_name);
            self.admission.resize_volume(record.id, bytes, quota.as_ref())?;
            let volumes = self.clone();
            run_to_end("the change of the volume", async move {
                let _turn = turn;
                volumes.set_limit(record, bytes).await
            })
            .await
        }
        .await;
        if let Ok(resized) = &result {
            audited.add_event(event(resized, EventKind::VolumeResized));
        }
        audited.done(result).await
    }

    async fn set_limit(&self, record: VolumeRecord, disk_bytes: u64) -> Result<VolumeRecord> {
        let provider = self.providers.get(&record.provider)?;
        let power = provider.volumes().ok_or_else(|| unknown(record.name.as_str()))?;
        let resized = async {
            power.resize_volume(record.id, disk_bytes).await?;
            Ok::<_, Error>(self.store.set_volume_limit(record.id, disk_bytes).await?)
        };
        if let Err(error) = resized.await {
            // Should this fail too, the next start applies what the record says.
            let _ = power.resize_volume(record.id, record.disk_bytes).await;
            let _ = self.admission.resize_volume(record.id, record.disk_bytes, None);
            return Err(match error.code {
                ErrorCode::DiskFull => no_disk(error, disk_bytes),
                ErrorCode::Conflict => error.at("disk_mb"),
                _ => error,
            });
        }
        Ok(VolumeRecord { disk_bytes, ..record })
    }

    /// Deletes a volume with all that it holds. Refused while a sandbox has it, running or stopped.
    pub async fn delete(&self, caller: &Caller, owner: Option<&str>, name: &str) -> Result<()> {
        let what = OperationSpec::new(Operation::VolumeDelete).with(name);
        let mut audited = self.operations.audited(caller, what).await?;
        let result = async {
            let (record, turn) = self.find_alone(caller, owner, name).await?;
            let (volumes, gone) = (self.clone(), record.clone());
            run_to_end("the change of the volume", async move {
                let _turn = turn;
                volumes.end(&gone).await
            })
            .await?;
            Ok(record)
        }
        .await;
        if let Ok(deleted) = &result {
            audited.add_event(event(deleted, EventKind::VolumeDeleted));
        }
        audited.done(result.map(drop)).await
    }

    /// Removes a volume and then its record; may be repeated.
    pub(crate) async fn end(&self, record: &VolumeRecord) -> Result<()> {
        let attached = self.store.begin_delete_volume(record.id).await?;
        if !attached.is_empty() {
            let ids: Vec<String> = attached.iter().map(|id| id.uuid().to_string()).collect();
            let message = format!(
                "the volume {} is attached to {} sandboxes; detach it or remove them first",
                record.name,
                ids.len()
            );
            return Err(Error::new(ErrorCode::Conflict, message).fact("attached_to", ids));
        }
        if let Some(volumes) = self.providers.get(&record.provider)?.volumes() {
            volumes.remove_volume(record.id).await?;
        }
        self.store.end_delete_volume(record.id).await?;
        self.admission.volume_gone(record.id);
        Ok(())
    }

    /// The volumes that a request names, as a sandbox of this owner has them.
    pub(crate) async fn mounts(
        &self,
        owner: &str,
        provider: &ProviderName,
        asked: &[AttachVolume],
    ) -> Result<Vec<VolumeMount>> {
        let mut mounts = Vec::new();
        for AttachVolume { name, path, read_only } in asked {
            let name = name_of(name, "volumes")?;
            let found = self.store.volume(owner, name.as_str()).await?.filter(|volume| !volume.deleting);
            let record = found.ok_or_else(|| unknown(name.as_str()).at("volumes"))?;
            if record.provider != *provider {
                let message = format!("the volume {name} belongs to the provider {}", record.provider);
                return Err(Error::new(ErrorCode::Conflict, message).at("volumes"));
            }
            mounts.push(mount(&record, path, *read_only));
        }
        Ok(mounts)
    }

    /// The same for a request that names them in its field `volumes`, where an unknown one is a wrong value.
    pub(crate) async fn mounts_of_request(
        &self,
        owner: &str,
        provider: &ProviderName,
        asked: &[AttachVolume],
    ) -> Result<Vec<VolumeMount>> {
        let wrong = |error: Error| match error.code {
            ErrorCode::NotFound => Error::invalid("volumes", error.message),
            _ => error,
        };
        self.mounts(owner, provider, asked).await.map_err(wrong)
    }

    /// These volumes and a tenant's, which need not exist yet: for a request to be checked.
    pub(crate) fn with_tenant(volumes: &[VolumeMount]) -> Result<Vec<VolumeMount>> {
        let tenant = VolumeMount {
            name: name_of("tenant", "tenant_id")?,
            volume: VolumeId::random(),
            path: TENANT_PATH.to_owned(),
            read_only: false,
            whole: false,
        };
        Ok(volumes.iter().cloned().chain([tenant]).collect())
    }

    /// The mount of a tenant's storage that a sandbox has, unless its new volumes name that storage themselves. A tenant
    /// is named once, at the create, so a change of the other volumes must not detach its storage.
    pub(crate) async fn kept_tenant(
        &self,
        owner: &str,
        has: &[VolumeMount],
        new: &[VolumeMount],
    ) -> Result<Option<VolumeMount>> {
        let Some(mount) = has.iter().find(|mount| mount.path == TENANT_PATH) else { return Ok(None) };
        if new.iter().any(|one| one.volume == mount.volume) {
            return Ok(None);
        }
        let record = self.store.volume(owner, mount.name.as_str()).await?;
        Ok(record.filter(|record| record.tenant.is_some()).map(|_| mount.clone()))
    }

    /// The storage of a tenant, made if there is none.
    pub(crate) async fn tenant(&self, caller: &Caller, tenant: &str) -> Result<VolumeMount> {
        TENANT_ID.check("tenant_id", tenant)?;
        let record = match self.store.tenant_volume(&caller.owner, tenant).await? {
            Some(record) => record,
            None => self.make_tenant(caller, tenant).await?,
        };
        if record.deleting {
            let message = "the storage of this tenant is being deleted; try again";
            return Err(Error::new(ErrorCode::Conflict, message).at("tenant_id"));
        }
        Ok(mount(&record, TENANT_PATH, false))
    }

    async fn make_tenant(&self, caller: &Caller, tenant: &str) -> Result<VolumeRecord> {
        let name = format!("tenant-{}", VolumeId::random());
        let what = OperationSpec::new(Operation::VolumeCreate).with(&name).and("tenant_id", tenant);
        let mut audited = self.operations.audited(caller, what).await?;
        let result =
            async { self.make(caller, name_of(&name, "name")?, Some(tenant.to_owned()), None, None).await }
                .await;
        if let Ok((made, None)) = &result {
            audited.add_event(event(made, EventKind::VolumeCreated));
        }
        let (made, there) = audited.done(result).await?;
        Ok(there.unwrap_or(made))
    }

    /// Finishes what a former server began: volumes that are recorded exist with their limits, and those that are marked
    /// are removed. What fails now is tried at the next start, or by a request.
    pub(crate) async fn repair(&self) -> Result<()> {
        let all = self.store.volumes(None).await?;
        let repair = |record: VolumeRecord| async move {
            self.admission.adopt_volume(record.id, &record.owner, record.disk_bytes);
            let done = match record.deleting {
                true => self.end(&record).await,
                false => match self.attachments(&record.provider) {
                    Ok(power) => power.put_volume(record.id, record.disk_bytes).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = done {
                tracing::warn!(volume = %record.name, owner = record.owner, %error, "a volume is not repaired");
            }
        };
        futures_util::stream::iter(all).for_each_concurrent(AT_ONCE, repair).await;
        Ok(())
    }
}

fn mount(record: &VolumeRecord, path: &str, read_only: bool) -> VolumeMount {
    let (name, path) = (record.name.clone(), path.to_owned());
    VolumeMount { name, volume: record.id, path, read_only, whole: false }
}
