//! The presets of a running server. What tools say is learned once, what indexes say again and again; a
//! policy that is made later sees the newest.

use super::{
    Ecosystem, Findings,
    index::{Index, entry},
    links::{self, Fetch},
    list::{Preset, Sources, used},
    remembered::Links,
};
use crate::{Entry, Presets, Reach};
use atoll_types::Result;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// Between two rounds of questions.
const INTERVAL: Duration = Duration::from_secs(3600);
/// After a round that failed; it doubles each time.
const SOON: Duration = Duration::from_secs(60);
/// Indexes that one round asks.
const MOST_ASKED: usize = 64;
/// Images whose tools are known.
const MOST_IMAGES: usize = 1024;

struct State {
    images: BTreeMap<String, Arc<Findings>>,
    links: Links,
}

/// The presets.
pub struct Book {
    machine: Findings,
    operator: BTreeMap<String, Vec<Entry>>,
    reach: Arc<Reach>,
    file: Option<PathBuf>,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

impl Book {
    /// `operator` replaces presets or adds some; `file` is where the links of indexes are remembered.
    #[must_use]
    pub fn new(
        machine: Findings,
        operator: BTreeMap<String, Vec<Entry>>,
        reach: Arc<Reach>,
        file: Option<PathBuf>,
    ) -> Self {
        let links = file.as_deref().map(Links::load).unwrap_or_default();
        let state = Mutex::new(State { images: BTreeMap::new(), links });
        Self { machine, operator, reach, file, state, changes: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found in an image. It counts for sandboxes of that image only.
    pub fn learned(&self, image: &str, findings: Findings) {
        let mut state = self.state();
        if state.images.len() < MOST_IMAGES || state.images.contains_key(image) {
            // Whatever was read from an image is not the operator's word.
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

    /// Told of each change of the presets.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The indexes that can be asked for links, of the machine and of every image.
    fn to_ask(&self) -> Vec<Index> {
        let images: Vec<Arc<Findings>> = self.state().images.values().cloned().collect();
        let places: Vec<Option<&Findings>> =
            [None].into_iter().chain(images.iter().map(|i| Some(&**i))).collect();
        let mut asked: Vec<Index> = Vec::new();
        for ecosystem in Ecosystem::ALL {
            // Nobody looks at what is learned where the operator wrote the list.
            if self.operator.contains_key(ecosystem.as_str()) {
                continue;
            }
            for image in &places {
                for (index, operator) in used(ecosystem, &self.machine, *image) {
                    let known = asked.iter().any(|other| other.url == index.url);
                    // An image sends nobody to an address.
                    let open = entry(&index.url, operator.then_some(&*self.reach)).is_some();
                    if open && links::has_links(index) && !known && asked.len() < MOST_ASKED {
                        asked.push(index.clone());
                    }
                }
            }
        }
        asked
    }

    /// Asks every index for its links. What fails keeps what is known and is noted. Says whether all
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

    /// Asks at once, every hour, sooner where something failed, and when an image was added. It never ends;
    /// drop it.
    pub async fn keep_fresh(&self, fetch: &dyn Fetch, mut failed: impl FnMut(atoll_types::Error)) {
        let mut changes = self.changes();
        let mut soon = SOON;
        loop {
            let images = self.state().images.len();
            let all = self.refresh(fetch).await.unwrap_or_else(|error| {
                failed(error);
                true
            });
            let pause = if all { INTERVAL } else { soon };
            soon = if all { SOON } else { (soon * 2).min(INTERVAL) };
            let added =
                async { while changes.changed().await.is_ok() && self.state().images.len() <= images {} };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = added => {}
            }
        }
    }
}
