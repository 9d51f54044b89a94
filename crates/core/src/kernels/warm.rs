//! Interpreters of the pool: started before a caller needs them, and given the sandbox's variables when their
//! container is claimed.

use super::{managers::KernelManagers, send::default_kernel, wire::other_answer};
use atoll_kernels::{Answer, KernelStatus, Language, RequestKind};
use atoll_provider::Container;
use atoll_types::{ErrorCode, Result};
use std::{collections::BTreeMap, sync::Arc};

/// Starts the default kernel of each language in this directory. What the image has no interpreter for is left out.
pub(crate) async fn warm_up(
    managers: &KernelManagers,
    container: &Arc<dyn Container>,
    languages: &[Language],
    directory: &str,
) -> Result<Vec<Language>> {
    let mut warm = Vec::new();
    if languages.is_empty() {
        return Ok(warm);
    }
    let link = managers.link(container).await?;
    for language in languages {
        match default_kernel(&link, *language, directory).await {
            Ok(_) => warm.push(*language),
            // The last is of a directory of the image that its user cannot enter.
            Err(error)
                if matches!(
                    error.code,
                    ErrorCode::Unsupported | ErrorCode::ExecFailed | ErrorCode::InvalidArgument
                ) =>
            {
                tracing::warn!(language = language.name(), %error, "the pool has no such kernel");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(warm)
}

/// Whether the default kernels of these languages all live.
pub(crate) async fn is_warm(
    managers: &KernelManagers,
    container: &Arc<dyn Container>,
    languages: &[Language],
) -> Result<bool> {
    if languages.is_empty() {
        return Ok(true);
    }
    let Some(link) = managers.existing(container).await? else { return Ok(false) };
    let Answer::Kernels(all) = link.ask(RequestKind::List).await? else { return other_answer() };
    let lives = |language: &Language| {
        all.iter().any(|k| k.default && k.language == *language && k.status != KernelStatus::Dead)
    };
    Ok(languages.iter().all(lives))
}

/// Gives the kernels of a claimed container the sandbox's variables.
pub(crate) async fn configure(
    managers: &KernelManagers,
    container: &Arc<dyn Container>,
    variables: BTreeMap<String, String>,
) -> Result<()> {
    let Some(link) = managers.existing(container).await? else { return Ok(()) };
    match link.ask(RequestKind::Configure { variables }).await? {
        Answer::Done => Ok(()),
        _ => other_answer(),
    }
}
