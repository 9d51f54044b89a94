//! Kept steps of image templates.

use super::{NOW, Outcome, Shared, same};
use crate::Sha256;
use atoll_types::{BuildStepRecord, ImageId, ProviderName};

fn step(key: u8, used: i64) -> BuildStepRecord {
    BuildStepRecord {
        key: Sha256([key; 32]),
        image: ImageId::random(),
        provider: ProviderName::native(),
        size_bytes: 1 << 40,
        created_at: NOW,
        last_used_at: used,
    }
}

pub(super) async fn a_step_is_kept_by_its_key(store: Shared) -> Outcome {
    let (first, second) = (step(1, NOW), step(2, NOW + 1));
    for one in [&first, &second] {
        same("kept", store.insert_build_step(one.clone()).await?, None)?;
    }
    let again = store.insert_build_step(step(1, NOW + 9)).await?;
    same("the first of two stays", again, Some(first.clone()))?;
    same("the last used first", store.build_steps().await?, vec![second.clone(), first.clone()])?;
    let used = BuildStepRecord { last_used_at: NOW + 2, ..first.clone() };
    same("used", store.use_build_step(first.key, NOW + 2).await?, Some(used.clone()))?;
    same("used then", store.build_steps().await?, vec![used.clone(), second.clone()])?;
    same("no other", store.use_build_step(Sha256([3; 32]), NOW).await?, None)?;
    for _ in 0..2 {
        store.remove_build_step(first.key).await?;
    }
    same("the rest", store.build_steps().await?, vec![second])
}
