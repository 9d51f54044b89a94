//! Keys: made once, shown once, kept as a hash. Only the kept answer of a request with an `Idempotency-Key`
//! holds a new key's secret, sealed, until it expires: see [`crate::IdempotentReplies`].

mod sessions;

pub use sessions::{SessionInfo, SignedIn};

use crate::{
    Caller,
    bounds::KEY_NAME,
    idempotency::repeatable,
    operation::{OperationSpec, Operations},
};
use atoll_audit::Ledger;
use atoll_store::{
    Admins, ApiKey, Begin, Clash, Detail, EXPIRES_AFTER_MS, End, KeyHash, KeyId, Millis, Outcome, SandboxId,
    Scope, Store, StoreError,
};
use atoll_types::{Error, ErrorCode, Operation, Result, Tier, text::hex, time::now_ms};
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;
use uuid::Uuid;

/// A request for a new key.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// What its owner calls it.
    pub name: String,
    /// The owner; without one, the creator's.
    pub owner: Option<String>,
    /// What it may do.
    pub scope: Scope,
    /// The name of its tier; without one, standard or the creator's own, whichever is lower.
    pub tier: Option<String>,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<i64>,
}

/// A key that was just made, with its secret, which is never shown again.
#[derive(Debug, Clone)]
pub struct IssuedKey {
    /// The stored key.
    pub key: ApiKey,
    /// What the client sends.
    pub secret: String,
}

const PREFIX: &str = "atoll_";
const SHOWN: usize = 12;
/// The namespace in which owners' names become UUIDs.
const OWNERS: Uuid = Uuid::from_u128(0x6b1f_2f60_9d0f_4a7c_8f52_0d9e_61a7_0001);

/// The id of an owner, from its name: a UUID, as the published clients expect one. An id is its own.
#[must_use]
pub fn owner_id(name: &str) -> String {
    if let Ok(id) = Uuid::try_parse(name) {
        return id.hyphenated().to_string();
    }
    Uuid::new_v5(&OWNERS, name.as_bytes()).hyphenated().to_string()
}

/// Keys of one owner that are usable at a time; of revoked ones as many are kept.
const MOST_KEYS: u64 = 1000;

fn too_many() -> Error {
    let message = format!("an owner has at most {MOST_KEYS} keys that are usable; revoke one first");
    Error::new(ErrorCode::LimitExceeded, message).fact("limit", "keys").fact("allowed", MOST_KEYS)
}

/// How long a key is cached without a lookup in the store. A key that this server revokes is forgotten at
/// once; this bounds how long one revoked elsewhere is accepted.
const BELIEVED: Duration = Duration::from_secs(1);
/// Keys that are cached.
const MOST_KNOWN: usize = 1000;

/// What a caller shows for a key. A secret is of one kind, and is never taken for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Credential {
    /// The key itself.
    Key,
    /// The session of a browser that was signed in with it.
    Session,
}

/// Keys that were used a moment ago.
#[derive(Default)]
pub(crate) struct Known {
    moment: Mutex<Moment>,
    /// Tells those who wait for the end of a session that one may have come.
    forgot: watch::Sender<()>,
}

#[derive(Default)]
struct Moment {
    keys: HashMap<(Credential, KeyHash), (Instant, ApiKey)>,
    /// How often the cache was cleared: what was read before that is not cached after it.
    forgotten: u64,
}

impl Known {
    fn moment(&self) -> MutexGuard<'_, Moment> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key, or the generation to cache it with once it was read.
    fn get(&self, shown: Credential, hash: KeyHash) -> Result<ApiKey, u64> {
        let moment = self.moment();
        let known = moment
            .keys
            .get(&(shown, hash))
            .filter(|(at, key)| at.elapsed() < BELIEVED && key.expires_at.is_none_or(|at| at > now_ms()));
        known.map(|(_, key)| key.clone()).ok_or(moment.forgotten)
    }

    fn keep(&self, shown: Credential, hash: KeyHash, key: &ApiKey, read_after: u64) {
        let mut moment = self.moment();
        if moment.forgotten != read_after {
            return;
        }
        if moment.keys.len() >= MOST_KNOWN {
            moment.keys.clear();
        }
        moment.keys.insert((shown, hash), (Instant::now(), key.clone()));
    }

    pub(crate) fn forget(&self) {
        let mut moment = self.moment();
        moment.keys.clear();
        moment.forgotten += 1;
        drop(moment);
        self.forgot.send_replace(());
    }
}

fn hash(secret: &str) -> KeyHash {
    // Secrets are 256 random bits, so nothing slower is needed to keep them from being guessed.
    KeyHash(Sha256::digest(secret.as_bytes()).into())
}

fn random_digits() -> String {
    let bytes = [*Uuid::new_v4().as_bytes(), *Uuid::new_v4().as_bytes()].concat();
    hex(&bytes)
}

fn random_secret() -> String {
    format!("{PREFIX}{}", random_digits())
}

fn assemble(new: &NewKey, tier: Tier, owner_name: &str, secret: &str) -> ApiKey {
    ApiKey {
        id: KeyId::random(),
        name: new.name.clone(),
        owner: owner_id(owner_name),
        owner_name: owner_name.to_owned(),
        scope: new.scope,
        tier: tier.as_str().to_owned(),
        prefix: secret.chars().take(SHOWN).collect(),
        hash: hash(secret),
        created_at: now_ms(),
        expires_at: new.expires_at,
        revoked_at: None,
        last_used_at: None,
    }
}

/// The tier of a new key: a caller cannot make one of a higher tier than its own.
fn tier_of(caller: &Caller, asked: Option<&str>) -> Result<Tier> {
    let own = caller.tier.unwrap_or(Tier::Unrestricted);
    let Some(asked) = asked else { return Ok(own.min(Tier::Standard)) };
    let asked: Tier = asked.parse().map_err(|e| Error::invalid("tier", format!("{e}")))?;
    if asked <= own {
        return Ok(asked);
    }
    let message = format!("a key of the tier {own} makes no key of the tier {asked}");
    Err(Error::new(ErrorCode::PermissionDenied, message)
        .at("tier")
        .fact("asked", asked.as_str())
        .fact("allowed", own.as_str())
        .fact("tier", own.as_str()))
}

/// The longest life of a key that a session makes: a leap year, and a minute for clocks.
const OF_SESSION_MS: Millis = (366 * 24 * 60 + 1) * 60 * 1000;

/// When a new key expires: with its creator's key, unless it says earlier. A key never makes one that
/// outlives it, and the session of a browser, which ends, none without an end.
fn expiry_of(caller: &Caller, asked: Option<Millis>) -> Result<Option<Millis>> {
    let Some(at) = asked else {
        if caller.by_session && caller.expires_at.is_none() {
            let message = "a session makes no key that never expires; say when it does with expires_in_seconds, or make \
                           it with a key";
            return Err(Error::new(ErrorCode::PermissionDenied, message).at("expires_in_seconds"));
        }
        return Ok(caller.expires_at);
    };
    if at <= now_ms() {
        return Err(Error::invalid("expires_at", "expires_at must lie in the future"));
    }
    if caller.by_session && at > now_ms() + OF_SESSION_MS {
        let message = "a session makes no key that lasts longer than a year; make it with a key";
        return Err(Error::new(ErrorCode::PermissionDenied, message)
            .at("expires_in_seconds")
            .fact("allowed_until", now_ms() + OF_SESSION_MS));
    }
    if caller.outlives(asked) {
        return Ok(asked);
    }
    let message = "a key makes no key that expires later than itself";
    let refused = Error::new(ErrorCode::PermissionDenied, message).at("expires_in_seconds");
    Err(caller.expires_at.into_iter().fold(refused, |refused, own| refused.fact("allowed_until", own)))
}

/// Makes an admin key where no server runs: for the owner and with the rights of the first key. It is audited
/// with two rows like every other operation.
pub async fn recover_admin(store: &dyn Store, ledger: &Ledger) -> Result<IssuedKey> {
    let (key, secret) = admin_key("recovered key", None);
    let begin = Begin {
        front: "cli".into(),
        key: None,
        owner: key.owner.clone(),
        address: None,
        kind: Operation::KeyRecover.name().into(),
        sandbox: None,
        detail: Detail::new(&key.name),
        directory: None,
        variables: Vec::new(),
        extra: [("key_id".to_owned(), key.id.to_string())].into(),
    };
    let operation = ledger.start(begin).await?;
    let made = store.insert_key(key.clone()).await.map_err(Error::from);
    let mut end = End::new(Outcome::Ok, operation.elapsed_us());
    if let Err(error) = &made {
        end.outcome = Outcome::Failed;
        end = end.because(error);
    }
    operation.end(end, Vec::new(), Vec::new()).await?;
    made.map(|()| IssuedKey { key, secret })
}

/// A key with every right, and its secret.
fn admin_key(name: &str, secret: Option<String>) -> (ApiKey, String) {
    let secret = secret.unwrap_or_else(random_secret);
    let new = NewKey { name: name.into(), owner: None, scope: Scope::Admin, tier: None, expires_at: None };
    (assemble(&new, Tier::Unrestricted, "admin", &secret), secret)
}

/// The keys of callers.
#[derive(Clone)]
pub struct Keys {
    pub(crate) operations: Operations,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) known_keys: Arc<Known>,
}

impl Keys {
    /// The caller that sends this key.
    pub async fn authenticate(&self, secret: &str) -> Result<Caller> {
        Ok(Caller::of(&self.usable(secret).await?))
    }

    /// The key with this secret, if it is usable; its use is noted.
    async fn usable(&self, secret: &str) -> Result<ApiKey> {
        let refused =
            || Error::new(ErrorCode::PermissionDenied, "the key is not known, has expired or was revoked");
        let hash = hash(secret);
        let key = match self.known_keys.get(Credential::Key, hash) {
            Ok(key) => key,
            Err(read_after) => {
                let key = self.store.key_by_hash(hash, now_ms()).await?.ok_or_else(refused)?;
                self.known_keys.keep(Credential::Key, hash, &key, read_after);
                key
            }
        };
        self.touch(&key).await;
        Ok(key)
    }

    /// Notes that a key is used.
    async fn touch(&self, key: &ApiKey) {
        let used = [(key.id, now_ms())].into();
        // A minute's resolution is enough, and a write for every request is not.
        if key.last_used_at.is_none_or(|at| now_ms() - at > 60_000)
            && let Err(error) = self.store.touch_keys(&used).await
        {
            tracing::warn!(%error, "cannot note a key's use");
        }
    }

    /// The id of a key whose request may be repeated.
    #[must_use]
    pub fn repeatable_id(caller: &Caller, key: &str, request: &[u8; 32]) -> KeyId {
        KeyId::from_uuid(repeatable("key", caller, SandboxId::from_uuid(Uuid::nil()), key, request))
    }

    /// Makes a key. A user may make keys for itself that allow no more than its own. `id`: of a request that may
    /// be repeated. Where a server that was killed made that key, no caller has its secret, and it gets another.
    pub async fn create(&self, caller: &Caller, id: Option<KeyId>, new: NewKey) -> Result<IssuedKey> {
        let what = OperationSpec::new(Operation::KeyCreate).with(&new.name).and("scope", new.scope);
        let what = new.tier.iter().fold(what, |what, tier| what.and("tier", tier));
        let audited = self.operations.audited(caller, what).await?;
        let result = self.create_as(caller, id, new).await;
        audited.done(result).await
    }

    async fn create_as(&self, caller: &Caller, id: Option<KeyId>, new: NewKey) -> Result<IssuedKey> {
        KEY_NAME.check("name", &new.name)?;
        if let Some(owner) = &new.owner {
            KEY_NAME.check("owner", owner)?;
        }
        let expires_at = expiry_of(caller, new.expires_at)?;
        let owner = new.owner.clone().unwrap_or_else(|| caller.owner_name.clone());
        if new.scope == Scope::Admin || owner != caller.owner_name {
            caller.must_administer()?;
        }
        let tier = tier_of(caller, new.tier.as_deref())?;
        let secret = random_secret();
        let key = assemble(&NewKey { expires_at, ..new }, tier, &owner, &secret);
        let key = self.insert(key, id).await?;
        Ok(IssuedKey { key, secret })
    }

    /// Stores a new key under the id of its request. A key that is there under that id and is older than answers are
    /// kept, or was used, was made by a request before, and stays as it is.
    async fn insert(&self, key: ApiKey, id: Option<KeyId>) -> Result<ApiKey> {
        if let Some(id) = id {
            let repeatable = ApiKey { id, ..key.clone() };
            match self.store.insert_key_within(repeatable.clone(), MOST_KEYS, now_ms()).await {
                Err(StoreError::Conflict(Clash::Taken)) => {}
                result => return if result? { Ok(repeatable) } else { Err(too_many()) },
            }
            let since = now_ms() - EXPIRES_AFTER_MS;
            if let Some(renewed) = self.store.renew_key(id, key.hash, key.prefix.clone(), since).await? {
                return Ok(renewed);
            }
        }
        match self.store.insert_key_within(key.clone(), MOST_KEYS, now_ms()).await? {
            true => Ok(key),
            false => Err(too_many()),
        }
    }

    /// Makes the first key, if there never was one: the given secret, or a new one.
    pub async fn create_first(&self, secret: Option<String>) -> Result<Option<IssuedKey>> {
        if let Some(secret) = &secret
            && (secret.len() < 16 || !secret.bytes().all(|b| b.is_ascii_graphic()))
        {
            let message = "the bootstrap key must be at least 16 printable characters without spaces";
            return Err(Error::invalid("ATOLL_BOOTSTRAP_KEY", message));
        }
        let (key, secret) = admin_key("first key", secret);
        let first = self.store.insert_first_key(key.clone()).await?;
        Ok(first.then_some(IssuedKey { key, secret }))
    }

    /// The keys that the caller may see: its owner's, or all owners' for an admin, and none that is above its
    /// own. The newest first.
    pub async fn list(&self, caller: &Caller) -> Result<Vec<ApiKey>> {
        let owner = (caller.scope != Scope::Admin).then_some(caller.owner.as_str());
        let keys = self.store.list_keys(owner).await?;
        Ok(keys.into_iter().filter(|key| caller.covers(key)).collect())
    }

    /// Revokes a key, unless it is above the caller's own or the last admin's.
    pub async fn revoke(&self, caller: &Caller, id: KeyId) -> Result<ApiKey> {
        let audited = self
            .operations
            .audited(caller, OperationSpec::new(Operation::KeyRevoke).with(id.to_string()))
            .await?;
        let result = async {
            let mine = self.list(caller).await?.into_iter().any(|key| key.id == id);
            if !mine {
                return Err(Error::new(ErrorCode::NotFound, "there is no such key"));
            }
            let revoked = self.store.revoke_key(id, now_ms(), Admins::Keep).await;
            self.known_keys.forget();
            Ok(revoked?)
        }
        .await;
        audited.done(result).await
    }
}
