//! The presets of a running server. Settings of tools are read once, links of indexes fetched again and again; a
//! policy that is made later uses the newest.

use super::{
    AptSources, Ecosystem, Findings,
    index::{Index, entry},
    links::{self, Fetch},
    list::{Preset, Sources, used},
    remembered::Links,
};
use crate::{Entry, Presets, Reach};
use atoll_types::Result;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// Between two rounds of fetches.
const INTERVAL: Duration = Duration::from_secs(3600);
/// After a round that failed; it doubles each time.
const SOON: Duration = Duration::from_secs(60);
/// Indexes that one round fetches.
const MOST_ASKED: usize = 64;
/// Images whose tools are known.
const MOST_IMAGES: usize = 1024;

struct State {
    /// The ecosystems whose presets some policy has named.
    used: BTreeSet<Ecosystem>,
    images: BTreeMap<String, Arc<Findings>>,
    links: Links,
}

/// The presets.
pub struct PresetRegistry {
    machine: Findings,
    operator: BTreeMap<String, Vec<Entry>>,
    reach: Arc<Reach>,
    file: Option<PathBuf>,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// Wakes the task that fetches from indexes.
    asked_for: Notify,
}

impl PresetRegistry {
    /// `operator` replaces presets or adds some; `file` is where the links of indexes are stored.
    #[must_use]
    pub fn new(
        machine: Findings,
        operator: BTreeMap<String, Vec<Entry>>,
        reach: Arc<Reach>,
        file: Option<PathBuf>,
    ) -> Self {
        let links = file.as_deref().map(Links::load).unwrap_or_default();
        let state = Mutex::new(State { used: BTreeSet::new(), images: BTreeMap::new(), links });
        Self {
            machine,
            operator,
            reach,
            file,
            state,
            changes: watch::Sender::new(0),
            asked_for: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The archives of the machine's own release.
    #[must_use]
    pub fn apt_sources(&self) -> Option<&AptSources> {
        self.machine.apt.as_ref()
    }

    /// What was found in an image. It counts for sandboxes of that image only.
    pub fn learned(&self, image: &str, findings: Findings) {
        let mut state = self.state();
        if state.images.len() < MOST_IMAGES || state.images.contains_key(image) {
            // Settings that were read from an image are not the operator's.
            state.images.insert(image.to_owned(), Arc::new(Findings { machine: false, ..findings }));
        }
        drop(state);
        self.changes.send_modify(|n| *n += 1);
    }

    /// An image that is no longer there.
    pub fn forget(&self, image: &str) {
        if self.state().images.remove(image).is_some() {
            self.changes.send_modify(|n| *n += 1);
        }
    }

    /// The presets of an image, to be shown; those of the machine where none is named or it is not known.
    #[must_use]
    pub fn list(&self, image: Option<&str>) -> Vec<Preset> {
        let state = self.state();
        let Self { machine, operator, reach, .. } = self;
        let image = image.and_then(|name| state.images.get(name)).map(Arc::as_ref);
        Sources { machine, image, links: &state.links, operator, reach }.list()
    }

    /// The same, for a policy.
    #[must_use]
    pub fn presets(&self, image: Option<&str>) -> Presets {
        let entries = |preset: Preset| preset.entries.into_iter().map(|listed| listed.entry).collect();
        Presets(self.list(image).into_iter().map(|preset| (preset.name.clone(), entries(preset))).collect())
    }

    /// Records which presets a policy names: from then on their indexes are fetched. A server whose sandboxes use
    /// none fetches no index.
    pub fn note_use<'a>(&self, names: impl IntoIterator<Item = &'a String>) {
        let named: BTreeSet<&String> = names.into_iter().collect();
        let used = Ecosystem::ALL.into_iter().filter(|e| named.iter().any(|name| *name == e.as_str()));
        let mut state = self.state();
        let before = state.used.len();
        state.used.extend(used);
        let more = state.used.len() > before;
        drop(state);
        if more {
            self.asked_for.notify_one();
        }
    }

    /// A receiver for changes of the presets.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The indexes that have links to fetch, of the machine and of every image.
    fn to_ask(&self) -> Vec<Index> {
        let (images, used_now): (Vec<Arc<Findings>>, _) = {
            let state = self.state();
            (state.images.values().cloned().collect(), state.used.clone())
        };
        let connection_limit: Vec<Option<&Findings>> =
            [None].into_iter().chain(images.iter().map(|i| Some(&**i))).collect();
        let mut asked: Vec<Index> = Vec::new();
        for ecosystem in Ecosystem::ALL {
            // Learned hosts are not used where the operator wrote the list.
            if self.operator.contains_key(ecosystem.as_str()) || !used_now.contains(&ecosystem) {
                continue;
            }
            for image in &connection_limit {
                for (index, operator) in used(ecosystem, &self.machine, *image) {
                    let known = asked.iter().any(|other| other.url == index.url);
                    // An image must not direct the server to an address.
                    let open = entry(&index.url, operator.then_some(&*self.reach)).is_some();
                    if open && links::has_links(index) && !known && asked.len() < MOST_ASKED {
                        asked.push(index.clone());
                    }
                }
            }
        }
        asked
    }

    /// Fetches the links of every index. A failure keeps what is known and is noted. Returns whether all
    /// answered; the error is about the file.
    pub async fn refresh(&self, fetch: &dyn Fetch) -> Result<bool> {
        let indexes = self.to_ask();
        let mut changed = false;
        let mut all = true;
        for index in &indexes {
            let answer = links::ask(fetch, index).await;
            all &= answer.is_ok();
            changed |= self.state().links.note(&index.url, answer);
        }
        let links = {
            let mut state = self.state();
            state.links.make_room(|url| indexes.iter().any(|index| index.url == *url));
            state.links.clone()
        };
        if changed {
            self.changes.send_modify(|n| *n += 1);
        }
        match &self.file {
            Some(file) => links.save(file).map(|()| all),
            None => Ok(all),
        }
    }

    /// Whether an index of a preset that is in use has not answered yet, in this run or one before it.
    fn lacks_answers(&self) -> bool {
        let indexes = self.to_ask();
        let state = self.state();
        indexes.iter().any(|index| !state.links.knows(&index.url))
    }

    /// Fetches the indexes of presets that are in use: at once where one has never answered, else every hour, and
    /// sooner after a failure. It never ends; drop it.
    pub async fn keep_fresh(&self, fetch: &dyn Fetch, mut failed: impl FnMut(atoll_types::Error)) {
        let mut changes = self.changes();
        let (mut soon, mut pause) = (SOON, INTERVAL);
        loop {
            let images = self.state().images.len();
            if !self.lacks_answers() || pause < INTERVAL {
                let added =
                    async { while changes.changed().await.is_ok() && self.state().images.len() <= images {} };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = added => if !self.lacks_answers() { continue },
                    () = self.asked_for.notified() => if !self.lacks_answers() { continue },
                }
            }
            let all = self.refresh(fetch).await.unwrap_or_else(|error| {
                failed(error);
                true
            });
            pause = if all { INTERVAL } else { soon };
            soon = if all { SOON } else { (soon * 2).min(INTERVAL) };
        }
    }
}
