//! Faults with keys, repeated requests and settings.

use super::{Broken, Fault};
use async_trait::async_trait;
use atoll_store::{
    Admins, ApiKey, Clash, Idempotency, KeyHash, KeyId, Keys, Millis, REPLY_BYTES, ReplyState, Result,
    Settings, Store, StoreError, StoredReply, Ticket,
};
use serde_json::Value;
use std::collections::BTreeMap;

#[async_trait]
impl Keys for Broken {
    async fn insert_key(&self, key: ApiKey) -> Result<()> {
        match (self.inner.insert_key(key).await, self.fault) {
            (Err(_), Fault::AllowsTheSameHash) => Ok(()),
            (result, _) => result,
        }
    }

    async fn insert_key_within(&self, key: ApiKey, most: u64, now: Millis) -> Result<bool> {
        let most = if self.is(Fault::AllowsManyKeys) { u64::MAX } else { most };
        self.inner.insert_key_within(key, most, now).await
    }

    async fn renew_key(
        &self,
        id: KeyId,
        hash: KeyHash,
        prefix: String,
        since: Millis,
    ) -> Result<Option<ApiKey>> {
        let since = if self.is(Fault::RenewsOldKeys) { Millis::MIN } else { since };
        self.inner.renew_key(id, hash, prefix, since).await
    }

    async fn insert_first_key(&self, key: ApiKey) -> Result<bool> {
        let revoked = self.inner.list_keys(None).await?.iter().all(|key| key.revoked_at.is_some());
        if self.is(Fault::AllowsManyFirstKeys) || self.is(Fault::OpensTheDoorAgain) && revoked {
            return self.inner.insert_key(key).await.map(|()| true);
        }
        self.inner.insert_first_key(key).await
    }

    async fn key_by_hash(&self, hash: KeyHash, now: Millis) -> Result<Option<ApiKey>> {
        if self.is(Fault::FindsRevokedKeys) {
            return Ok(self.inner.list_keys(None).await?.into_iter().find(|key| key.hash == hash));
        }
        let now = if self.is(Fault::FindsExpiredKeys) { 0 } else { now };
        let mut found = self.inner.key_by_hash(hash, now).await?;
        if let (Some(key), Fault::TouchesBackwards) = (&mut found, self.fault) {
            key.last_used_at = self.touched.lock().unwrap().get(&key.id).copied();
        }
        Ok(found)
    }

    async fn list_keys(&self, owner: Option<&str>) -> Result<Vec<ApiKey>> {
        self.inner.list_keys(owner.filter(|_| !self.is(Fault::ListsEverybodysKeys))).await
    }

    async fn revoke_key(&self, id: KeyId, now: Millis, admins: Admins) -> Result<ApiKey> {
        let admins = if self.is(Fault::RevokesTheLastAdmin) { Admins::Expire } else { admins };
        let key = self.inner.revoke_key(id, now, admins).await?;
        Ok(if self.is(Fault::RevokesAnew) { ApiKey { revoked_at: Some(now), ..key } } else { key })
    }

    async fn touch_keys(&self, used: &BTreeMap<KeyId, Millis>) -> Result<()> {
        self.touched.lock().unwrap().extend(used);
        self.inner.touch_keys(used).await
    }

    async fn purge_keys(&self, before: Millis) -> Result<u64> {
        let before = if self.is(Fault::PurgesFreshKeys) { Millis::MAX } else { before };
        self.inner.purge_keys(before).await
    }
}

#[async_trait]
impl Idempotency for Broken {
    async fn begin_idempotent(
        &self,
        owner: &str,
        key: &str,
        mut request_hash: [u8; 32],
        mut now: Millis,
    ) -> Result<ReplyState> {
        match self.fault {
            Fault::TakesAnyRequest => request_hash = [0; 32],
            Fault::NeverGivesUp => now = *self.began.lock().unwrap().get_or_insert(now),
            _ => {}
        }
        match (self.inner.begin_idempotent(owner, key, request_hash, now).await?, self.fault) {
            (ReplyState::InProgress, Fault::BeginsForEverybody) => {
                let attempt = KeyId::random().uuid();
                Ok(ReplyState::New(Ticket { owner: owner.into(), key: key.into(), attempt }))
            }
            (begun, _) => Ok(begun),
        }
    }

    async fn finish_idempotent(&self, ticket: &Ticket, mut reply: StoredReply) -> Result<()> {
        match self.fault {
            Fault::KeepsNoAnswer => reply.body = Some(Vec::new()),
            Fault::CutsLargeAnswers => {
                if let Some(body) = &mut reply.body {
                    body.truncate(REPLY_BYTES);
                }
            }
            _ => {}
        }
        match (self.inner.finish_idempotent(ticket, reply).await, self.fault) {
            (Err(StoreError::Conflict(Clash::Overtaken)), Fault::AnyTicketAnswers) => Ok(()),
            (result, _) => result,
        }
    }

    async fn abandon_idempotent(&self, ticket: &Ticket) -> Result<()> {
        if self.is(Fault::AbandonsNothing) {
            return Ok(());
        }
        self.inner.abandon_idempotent(ticket).await
    }

    async fn sweep_idempotent(&self, now: Millis) -> Result<u64> {
        if self.is(Fault::SweepsNothing) {
            return Ok(0);
        }
        self.inner.sweep_idempotent(now).await
    }
}

#[async_trait]
impl Settings for Broken {
    async fn get_setting(&self, name: &str) -> Result<Option<Value>> {
        self.inner.get_setting(name).await
    }

    async fn put_setting(&self, name: &str, value: Value) -> Result<()> {
        if self.is(Fault::PutsOnce) && self.inner.get_setting(name).await?.is_some() {
            return Ok(());
        }
        self.inner.put_setting(name, value).await
    }
}

#[async_trait]
impl Store for Broken {
    async fn schema_version(&self) -> Result<u32> {
        if self.is(Fault::HasNoVersion) { Ok(0) } else { self.inner.schema_version().await }
    }
}
