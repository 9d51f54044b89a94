//! Owners, for admins: what each has and uses, beside its plan. Nothing is recorded of an owner itself. It is known by its
//! keys, by its sandboxes and volumes, which the capacity ledger counts, and by the plan that a setting gives to its name.

use crate::{
    Caller, admission::Admission, keys::owner_id, runtime_settings::LiveSettings, sandboxes::LARGEST_PAGE,
};
use atoll_store::{ListQuery, Store};
use atoll_types::{Error, Result, time::now_ms};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

/// Which owners are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerQuery {
    /// Part of a name or an id, in any case.
    pub search: Option<String>,
    pub offset: u64,
    pub limit: u32,
}

/// An owner with what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerView {
    pub id: String,
    pub name: String,
    /// What its plan is called.
    pub plan: String,
    /// Keys that are neither revoked nor expired.
    pub keys: u64,
    /// Sandboxes that are not destroyed.
    pub sandboxes: u32,
    /// Those of them that count as concurrent.
    pub live: u32,
    pub volumes: u32,
    /// The limits of its sandboxes' disks and its volumes together.
    pub disk_bytes: u64,
    pub skills: u64,
    /// Of the packages of its skills.
    pub skills_bytes: u64,
}

/// The owners of this server.
#[derive(Clone)]
pub struct Owners {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) live_settings: Arc<LiveSettings>,
    pub(crate) admission: Admission,
}

impl Owners {
    /// A page of the owners by name, and how many there are.
    pub async fn list(&self, caller: &Caller, query: &OwnerQuery) -> Result<(Vec<OwnerView>, u64)> {
        caller.must_administer()?;
        if !(1..=LARGEST_PAGE).contains(&query.limit) {
            let message = format!("page_size must be between 1 and {LARGEST_PAGE}");
            return Err(Error::invalid("page_size", message));
        }
        let mut known = self.known().await?;
        if let Some(text) = query.search.as_deref().map(str::to_lowercase) {
            known.retain(|(id, name, _)| id.contains(&text) || name.to_lowercase().contains(&text));
        }
        known.sort_by(|(a_id, a, _), (b_id, b, _)| (a, a_id).cmp(&(b, b_id)));
        let total = known.len() as u64;
        let first = usize::try_from(query.offset).unwrap_or(usize::MAX);
        let page = known.into_iter().skip(first).take(query.limit as usize);
        let mut views = Vec::new();
        for (id, name, keys) in page {
            views.push(self.view(id, name, keys).await?);
        }
        Ok((views, total))
    }

    /// The id, the name and the usable keys of each.
    async fn known(&self) -> Result<Vec<(String, String, u64)>> {
        let mut known: HashMap<String, (String, u64)> = HashMap::new();
        let now = now_ms();
        for key in self.store.list_keys(None).await? {
            let usable = key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > now);
            // The newest key is first, and says the owner's name.
            known.entry(key.owner).or_insert((key.owner_name, 0)).1 += u64::from(usable);
        }
        for name in self.live_settings.now().owners.keys() {
            known.entry(owner_id(name)).or_insert_with(|| (name.clone(), 0));
        }
        for id in self.admission.owners() {
            if let Entry::Vacant(unknown) = known.entry(id) {
                let name = self.name_of(unknown.key()).await?;
                unknown.insert((name, 0));
            }
        }
        Ok(known.into_iter().map(|(id, (name, keys))| (id, name, keys)).collect())
    }

    /// What a record of an owner without a key calls it.
    async fn name_of(&self, id: &str) -> Result<String> {
        let newest = ListQuery { owner: Some(id.to_owned()), limit: 1, ..ListQuery::default() };
        if let Some(record) = self.store.list_sandboxes(&newest).await?.items.into_iter().next() {
            return Ok(record.owner_name);
        }
        let volumes = self.store.volumes(Some(id)).await?;
        Ok(volumes.into_iter().next().map_or_else(|| id.to_owned(), |volume| volume.owner_name))
    }

    async fn view(&self, id: String, name: String, keys: u64) -> Result<OwnerView> {
        let used = self.admission.used_by(&id);
        let (skills, skills_bytes) = self.store.skill_usage(&id).await?;
        let plan = self.live_settings.now().quota(&id, &name).plan;
        Ok(OwnerView {
            id,
            name,
            plan,
            keys,
            sandboxes: used.sandboxes,
            live: used.live,
            volumes: used.volumes,
            disk_bytes: used.disk_bytes,
            skills,
            skills_bytes,
        })
    }
}
