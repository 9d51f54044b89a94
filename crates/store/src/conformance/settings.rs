//! Settings, and what the store says of itself.

use super::{Outcome, Shared, ensure, same};
use serde_json::json;

pub(super) async fn a_setting_is_what_was_put_last(store: Shared) -> Outcome {
    same("before", store.get_setting("pool").await?, None)?;
    let values = [json!({"min": 1, "text": "\"'%_"}), json!(null), json!([1.5, "é", u64::MAX])];
    for value in values {
        store.put_setting("pool", value.clone()).await?;
        same("after", store.get_setting("pool").await?, Some(value))?;
    }
    same("another", store.get_setting("POOL").await?, None)
}

pub(super) async fn the_schema_has_a_version(store: Shared) -> Outcome {
    let version = store.schema_version().await?;
    ensure(version >= 1, || format!("version {version}"))
}
