//! The native provider does what every provider must, and the suite that says so notices a provider
//! that does not.

use super::fixture::Instance;
use async_trait::async_trait;
use atoll_provider::{
    Attachments, Capabilities, ChangeReport, Changed, Claimable, Container, ContainerSpec, DiskRoom,
    EgressEndpoint, EgressSockets, FileChange, FileChanges, Guest, Images, Listed, LiveLimits, Pause,
    PortStream, Ports, Provider, Snapshots, State, Trust, Usages, Volumes,
    conformance::{self, Check},
};
use atoll_types::{
    ContainerId, Death, Error, ImageId, ImageUsage, Limits, Result, Snapshot, SnapshotId, Usage, VolumeId,
};
use futures_util::future::BoxFuture;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

#[tokio::test]
async fn the_native_provider_conforms() {
    let instance = Instance::start().await;
    assert_eq!(conformance::run(&instance.provider).await, vec![]);
    assert_eq!(instance.provider.list().await.unwrap(), vec![], "the suite frees what it makes");
}

#[tokio::test]
async fn the_native_provider_conforms_on_plain_folders() {
    let instance = Instance::start_with(&["--storage", "dir"]).await;
    assert_eq!(conformance::run(&instance.provider).await, vec![]);
}

/// A way to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    ForgetsToDestroy,
    ListsNothing,
    ListsTheDestroyed,
    AttachesToAnything,
    SaysDeadAtOnce,
    NeverSaysDead,
    IgnoresLimits,
    IgnoresTheVolume,
    IgnoresTheEnvironment,
    RemovesVolumesInUse,
    GivesEveryoneRoot,
    ReusesTakenIds,
    HidesTheField,
    TellsChangesTwice,
    ConnectsToAnotherPort,
    NeverLetsGo,
    MeasuresNothing,
    MeasuresAnother,
    MeasuresTheDestroyed,
    MixesUpTheGate,
    NeverLetsGoOfTheGate,
    ForgetsCertificates,
    PausesNothing,
    NeverGoesOn,
    HidesThatItIsPaused,
    HandsOverWithItsOldLimits,
    HandsOverWithoutTheEnvironment,
    KeepsDeletedSnapshots,
    TrustsModificationTimes,
    RollsNothingBack,
    RollsBackWhatIsInUse,
    ForksWhatIsNow,
    IgnoresReadOnlyVolumes,
    KeepsNoAttachedVolume,
    IgnoresPathRules,
    KeepsRemovedImages,
    RemovesImagesInUse,
    StartsFromTheHost,
    BuildsAsideOfTheRoot,
}

/// A provider that is right but for one fault.
struct Broken<'a> {
    inner: &'a dyn Provider,
    fault: Fault,
    made: Mutex<Vec<Listed>>,
}

struct BrokenContainer {
    inner: Arc<dyn Container>,
    fault: Fault,
    told: Mutex<Vec<FileChange>>,
    paused: Mutex<bool>,
}

#[async_trait]
impl Provider for Broken<'_> {
    async fn capabilities(&self) -> Result<Capabilities> {
        self.inner.capabilities().await
    }

    async fn create(&self, mut spec: ContainerSpec) -> Result<Arc<dyn Container>> {
        let listed = Listed {
            id: spec.id,
            state: State::Running,
            volume: spec.volume,
            profile: spec.profile.name.clone(),
            held: false,
        };
        match self.fault {
            Fault::IgnoresTheVolume => spec.volume = None,
            Fault::IgnoresTheEnvironment => spec.environment.clear(),
            Fault::GivesEveryoneRoot if spec.profile.uid == 1000 => {
                let name = spec.profile.name;
                spec.profile = atoll_types::Profile::builtin("root").unwrap();
                spec.profile.name = name;
            }
            Fault::StartsFromTheHost => spec.profile.image = atoll_types::ImageName::host(),
            Fault::BuildsAsideOfTheRoot => spec.profile.build_root = None,
            Fault::IgnoresReadOnlyVolumes => {
                spec.profile.volumes.iter_mut().for_each(|mount| mount.read_only = false);
            }
            Fault::IgnoresPathRules => spec.profile.paths = atoll_types::PathRules::default(),
            Fault::ReusesTakenIds => self.inner.destroy(spec.id).await?,
            _ => {}
        }
        let made = self.inner.create(spec).await.map_err(|e| match self.fault {
            Fault::HidesTheField => Error { field: None, ..e },
            _ => e,
        })?;
        self.made.lock().unwrap().push(listed);
        let (told, paused) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(BrokenContainer { inner: made, fault: self.fault, told, paused }))
    }

    async fn attach(&self, id: ContainerId) -> Result<Arc<dyn Container>> {
        match (self.inner.attach(id).await, self.fault) {
            (Err(_), Fault::AttachesToAnything) => {
                let other = self
                    .inner
                    .create(ContainerSpec::throw_away(atoll_types::Profile::builtin("default").unwrap()));
                other.await
            }
            (result, _) => result,
        }
    }

    async fn list(&self) -> Result<Vec<Listed>> {
        match self.fault {
            Fault::ListsNothing => Ok(Vec::new()),
            Fault::ListsTheDestroyed => Ok(self.made.lock().unwrap().clone()),
            Fault::HidesThatItIsPaused => {
                let all = self.inner.list().await?;
                Ok(all.into_iter().map(|listed| Listed { state: State::Running, ..listed }).collect())
            }
            _ => self.inner.list().await,
        }
    }

    async fn destroy(&self, id: ContainerId) -> Result<()> {
        match self.fault {
            Fault::ForgetsToDestroy => Ok(()),
            _ => self.inner.destroy(id).await,
        }
    }

    fn volumes(&self) -> Option<&dyn Volumes> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }

    fn attachments(&self) -> Option<&dyn Attachments> {
        Some(self)
    }

    fn usage(&self) -> Option<&dyn Usages> {
        Some(self)
    }

    fn trust(&self) -> Option<&dyn Trust> {
        Some(self)
    }
}

#[async_trait]
impl Snapshots for Broken<'_> {
    async fn create_snapshot(&self, volume: VolumeId, id: SnapshotId) -> Result<Snapshot> {
        self.inner.snapshots().unwrap().create_snapshot(volume, id).await
    }

    async fn list_snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>> {
        self.inner.snapshots().unwrap().list_snapshots(volume).await
    }

    async fn delete_snapshot(&self, volume: VolumeId, id: SnapshotId) -> Result<()> {
        match self.fault {
            Fault::KeepsDeletedSnapshots => Ok(()),
            _ => self.inner.snapshots().unwrap().delete_snapshot(volume, id).await,
        }
    }

    async fn diff(&self, volume: VolumeId, from: SnapshotId, to: Option<SnapshotId>) -> Result<Changed> {
        let mut changed = self.inner.snapshots().unwrap().diff(volume, from, to).await?;
        if self.fault == Fault::TrustsModificationTimes {
            changed.files.retain(|change| !change.path.ends_with("hidden"));
        }
        Ok(changed)
    }

    async fn roll_back(&self, volume: VolumeId, to: SnapshotId) -> Result<()> {
        match (self.fault, self.inner.snapshots().unwrap()) {
            (Fault::RollsNothingBack, _) => Ok(()),
            (Fault::RollsBackWhatIsInUse, power) => match power.roll_back(volume, to).await {
                Err(error) if error.code == atoll_types::ErrorCode::Conflict => Ok(()),
                other => other,
            },
            (_, power) => power.roll_back(volume, to).await,
        }
    }

    async fn check_roll_back(&self, volume: VolumeId, to: SnapshotId) -> Result<()> {
        self.inner.snapshots().unwrap().check_roll_back(volume, to).await
    }

    async fn roll_back_in_place(&self, volume: VolumeId, to: SnapshotId) -> Result<()> {
        match self.fault {
            Fault::RollsNothingBack => Ok(()),
            _ => self.inner.snapshots().unwrap().roll_back_in_place(volume, to).await,
        }
    }

    async fn fork(
        &self,
        from: VolumeId,
        snapshot: Option<SnapshotId>,
        into: VolumeId,
        bytes: u64,
    ) -> Result<()> {
        let snapshot = if self.fault == Fault::ForksWhatIsNow { None } else { snapshot };
        self.inner.snapshots().unwrap().fork(from, snapshot, into, bytes).await
    }
}

#[async_trait]
impl Images for Broken<'_> {
    async fn seal(&self, volume: VolumeId, image: ImageId) -> Result<()> {
        self.inner.images().unwrap().seal(volume, image).await
    }

    async fn volume_from_image(&self, image: ImageId, volume: VolumeId, bytes: u64) -> Result<()> {
        self.inner.images().unwrap().volume_from_image(image, volume, bytes).await
    }

    async fn remove_image(&self, image: ImageId) -> Result<()> {
        match (self.fault, self.inner.images().unwrap()) {
            (Fault::KeepsRemovedImages, _) => Ok(()),
            (Fault::RemovesImagesInUse, power) => match power.remove_image(image).await {
                Err(error) if error.code == atoll_types::ErrorCode::Conflict => Ok(()),
                other => other,
            },
            (_, power) => power.remove_image(image).await,
        }
    }

    async fn list_images(&self) -> Result<Vec<ImageUsage>> {
        self.inner.images().unwrap().list_images().await
    }
}

#[async_trait]
impl Trust for Broken<'_> {
    async fn trust(&self, certificate_pem: &str) -> Result<()> {
        match self.fault {
            Fault::ForgetsCertificates => Ok(()),
            _ => self.inner.trust().unwrap().trust(certificate_pem).await,
        }
    }
}

#[async_trait]
impl Usages for Broken<'_> {
    async fn all(&self) -> Result<Vec<(ContainerId, Usage)>> {
        let mut all = self.inner.usage().unwrap().all().await?;
        if self.fault == Fault::MeasuresTheDestroyed {
            all.extend(self.made.lock().unwrap().iter().map(|listed| (listed.id, Usage::default())));
        }
        Ok(all)
    }

    async fn one(&self, id: ContainerId) -> Result<Usage> {
        let first = self.made.lock().unwrap().first().map(|listed| listed.id);
        match self.fault {
            Fault::MeasuresNothing => Ok(Usage::default()),
            Fault::MeasuresAnother => self.inner.usage().unwrap().one(first.unwrap_or(id)).await,
            _ => self.inner.usage().unwrap().one(id).await,
        }
    }
}

#[async_trait]
impl Attachments for Broken<'_> {
    async fn put_volume(&self, id: VolumeId, bytes: u64) -> Result<()> {
        self.inner.attachments().unwrap().put_volume(id, bytes).await?;
        match self.fault {
            Fault::KeepsNoAttachedVolume => self.inner.volumes().unwrap().remove_volume(id).await,
            _ => Ok(()),
        }
    }

    async fn volume_usage(&self, id: VolumeId) -> Result<Option<u64>> {
        self.inner.attachments().unwrap().volume_usage(id).await
    }
}

#[async_trait]
impl Volumes for Broken<'_> {
    async fn list_volumes(&self) -> Result<Vec<VolumeId>> {
        self.inner.volumes().unwrap().list_volumes().await
    }

    async fn room(&self) -> Result<DiskRoom> {
        self.inner.volumes().unwrap().room().await
    }

    async fn resize_volume(&self, id: VolumeId, bytes: u64) -> Result<()> {
        self.inner.volumes().unwrap().resize_volume(id, bytes).await
    }

    async fn remove_volume(&self, id: VolumeId) -> Result<()> {
        match (self.inner.volumes().unwrap().remove_volume(id).await, self.fault) {
            (Err(_), Fault::RemovesVolumesInUse) => Ok(()),
            (result, _) => result,
        }
    }
}

#[async_trait]
impl Container for BrokenContainer {
    fn id(&self) -> ContainerId {
        self.inner.id()
    }

    fn guest(&self) -> &Guest {
        self.inner.guest()
    }

    async fn state(&self) -> Result<State> {
        match self.fault {
            // What it says is as it should be; what it does is not.
            Fault::PausesNothing if *self.paused.lock().unwrap() => Ok(State::Paused),
            _ => self.inner.state().await,
        }
    }

    async fn died(&self) -> Result<Death> {
        match self.fault {
            Fault::SaysDeadAtOnce => Ok(Death::lost()),
            Fault::NeverSaysDead => std::future::pending().await,
            _ => self.inner.died().await,
        }
    }

    fn live_limits(&self) -> Option<&dyn LiveLimits> {
        Some(self)
    }

    fn claimable(&self) -> Option<&dyn Claimable> {
        Some(self)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(self)
    }

    fn changes(&self) -> Option<&dyn FileChanges> {
        match self.fault {
            Fault::TellsChangesTwice => Some(self),
            _ => self.inner.changes(),
        }
    }

    fn ports(&self) -> Option<&dyn Ports> {
        Some(self)
    }

    fn egress_endpoint(&self) -> Option<&dyn EgressEndpoint> {
        Some(self)
    }
}

#[async_trait]
impl EgressEndpoint for BrokenContainer {
    async fn egress_sockets(&self) -> Result<EgressSockets> {
        let mut egress_sockets = self.inner.egress_endpoint().unwrap().egress_sockets().await?;
        if self.fault == Fault::MixesUpTheGate {
            std::mem::swap(&mut egress_sockets.proxy, &mut egress_sockets.names_tcp);
        }
        Ok(egress_sockets)
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        match self.fault {
            Fault::NeverLetsGoOfTheGate => Box::pin(std::future::pending()),
            _ => self.inner.egress_endpoint().unwrap().closed(),
        }
    }
}

#[async_trait]
impl Claimable for BrokenContainer {
    async fn current(&self) -> Result<bool> {
        self.inner.claimable().unwrap().current().await
    }

    async fn claim(&self, mut limits: Limits, mut environment: BTreeMap<String, String>) -> Result<()> {
        match self.fault {
            Fault::HandsOverWithItsOldLimits => limits.disk_bytes = 16 << 20,
            Fault::HandsOverWithoutTheEnvironment => environment.clear(),
            _ => {}
        }
        self.inner.claimable().unwrap().claim(limits, environment).await
    }
}

#[async_trait]
impl Pause for BrokenContainer {
    async fn pause(&self) -> Result<()> {
        match self.fault {
            Fault::PausesNothing => *self.paused.lock().unwrap() = true,
            _ => self.inner.pause().unwrap().pause().await?,
        }
        Ok(())
    }

    async fn resume(&self) -> Result<()> {
        match self.fault {
            Fault::PausesNothing => *self.paused.lock().unwrap() = false,
            Fault::NeverGoesOn => {}
            _ => self.inner.pause().unwrap().resume().await?,
        }
        Ok(())
    }
}

#[async_trait]
impl Ports for BrokenContainer {
    async fn connect(&self, port: u16) -> Result<PortStream> {
        let port = if self.fault == Fault::ConnectsToAnotherPort { port ^ 2 } else { port };
        self.inner.ports().unwrap().connect(port).await
    }

    fn closed(&self) -> BoxFuture<'static, ()> {
        match self.fault {
            Fault::NeverLetsGo => Box::pin(std::future::pending()),
            _ => self.inner.ports().unwrap().closed(),
        }
    }

    async fn listening(&self) -> Result<Vec<u16>> {
        self.inner.ports().unwrap().listening().await
    }
}

#[async_trait]
impl FileChanges for BrokenContainer {
    async fn take(&self) -> Result<ChangeReport> {
        let mut report = self.inner.changes().unwrap().take().await?;
        let mut before = self.told.lock().unwrap();
        report.changed.files.extend(before.drain(..));
        before.clone_from(&report.changed.files);
        Ok(report)
    }

    fn acknowledge(&self, sequence: u64) {
        self.inner.changes().unwrap().acknowledge(sequence);
    }
}

#[async_trait]
impl LiveLimits for BrokenContainer {
    async fn set_limits(&self, limits: Limits) -> Result<()> {
        match self.fault {
            Fault::IgnoresLimits => Ok(()),
            _ => self.inner.live_limits().unwrap().set_limits(limits).await,
        }
    }
}

/// Each fault, with the check that must notice it.
const CAUGHT_BY: &[(Fault, &str)] = &[
    (Fault::ForgetsToDestroy, "destroy_ends_everything_and_may_be_repeated"),
    (Fault::ListsNothing, "the_list_is_what_there_is"),
    (Fault::ListsTheDestroyed, "the_list_is_what_there_is"),
    (Fault::AttachesToAnything, "attach_finds_what_lives_and_nothing_else"),
    (Fault::SaysDeadAtOnce, "a_death_reaches_every_waiting_caller"),
    (Fault::NeverSaysDead, "a_death_reaches_every_waiting_caller"),
    (Fault::IgnoresLimits, "limits_change_while_it_runs"),
    (Fault::IgnoresTheVolume, "a_volume_outlives_its_container"),
    (Fault::IgnoresTheEnvironment, "the_environment_is_the_specs_and_the_commands"),
    (Fault::RemovesVolumesInUse, "a_volume_in_use_cannot_be_removed_or_shared"),
    (Fault::GivesEveryoneRoot, "the_user_is_the_profiles_and_has_no_power"),
    (Fault::ReusesTakenIds, "a_taken_id_is_refused_and_its_owner_lives"),
    (Fault::HidesTheField, "a_refused_spec_names_its_field_and_leaves_nothing"),
    (Fault::TellsChangesTwice, "changes_are_told_once"),
    (Fault::ConnectsToAnotherPort, "servers_inside_are_reached_and_reach_nothing"),
    (Fault::NeverLetsGo, "connections_end_with_the_container"),
    (Fault::MeasuresNothing, "what_is_used_is_the_containers_own"),
    (Fault::MeasuresAnother, "what_is_used_is_the_containers_own"),
    (Fault::MeasuresTheDestroyed, "what_is_gone_uses_nothing"),
    (Fault::MixesUpTheGate, "requests_to_the_egress_sockets_reach_the_server"),
    (Fault::NeverLetsGoOfTheGate, "the_server_of_egress_sockets_is_told_of_their_end"),
    (Fault::ForgetsCertificates, "added_certificates_are_found_inside"),
    (Fault::PausesNothing, "a_paused_sandbox_runs_nothing_until_it_is_unpaused"),
    (Fault::NeverGoesOn, "a_paused_sandbox_runs_nothing_until_it_is_unpaused"),
    (Fault::HidesThatItIsPaused, "a_paused_sandbox_runs_nothing_until_it_is_unpaused"),
    (Fault::HandsOverWithItsOldLimits, "a_container_made_ahead_is_handed_over"),
    (Fault::HandsOverWithoutTheEnvironment, "a_container_made_ahead_is_handed_over"),
    (Fault::KeepsDeletedSnapshots, "a_snapshot_is_of_one_moment_and_a_rollback_brings_it_back"),
    (Fault::TrustsModificationTimes, "a_diff_names_what_changed"),
    (Fault::RollsNothingBack, "a_snapshot_is_of_one_moment_and_a_rollback_brings_it_back"),
    (Fault::RollsBackWhatIsInUse, "what_is_in_use_is_not_rolled_back_and_what_is_not_there_is_said"),
    (Fault::ForksWhatIsNow, "a_fork_goes_its_own_way"),
    (Fault::IgnoresReadOnlyVolumes, "an_attached_volume_is_shared_and_outlives_its_containers"),
    (Fault::KeepsNoAttachedVolume, "an_attached_volume_is_shared_and_outlives_its_containers"),
    (Fault::IgnoresPathRules, "path_rules_bind_commands"),
    (Fault::KeepsRemovedImages, "an_image_is_what_was_sealed_and_never_changes"),
    (Fault::RemovesImagesInUse, "an_image_is_what_was_sealed_and_never_changes"),
    (Fault::StartsFromTheHost, "an_image_is_what_was_sealed_and_never_changes"),
    (Fault::BuildsAsideOfTheRoot, "a_root_that_is_built_becomes_an_image"),
];

#[tokio::test]
async fn every_fault_is_noticed() {
    let instance = Instance::start().await;
    let checks = conformance::checks();
    for (fault, name) in CAUGHT_BY {
        let check: &Check = checks.iter().find(|c| c.name == *name).unwrap();
        // It is the fault that fails the check, and not something else.
        assert_eq!(check.run(&instance.provider).await, Ok(()), "{name}");
        let broken = Broken { inner: &instance.provider, fault: *fault, made: Mutex::default() };
        // Patience for a check that a fault leaves hanging.
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(90), check.run(&broken)).await;
        assert!(!matches!(outcome, Ok(Ok(()))), "{fault:?} was not noticed by {name}");
    }
}
