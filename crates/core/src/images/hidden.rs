//! What an image holds where its sandboxes do not see it: in folders that every sandbox has of its own. Nothing of it is refused, since
//! most images have something there; the log of the build says it.

use super::build_log::BuildLog;
use atoll_provider::Container;
use std::sync::Arc;

/// The folders, but those that every image has for its own programs, such as /tmp and /run.
const HIDDEN: [&str; 3] = ["/workspace", "/home/user", "/home/sandbox"];

fn notice(folder: &str, first: &str) -> String {
    format!(
        "note: {folder} of the image holds files ({}): no sandbox of it sees them, because every sandbox has its own {folder}; \
         put them elsewhere, such as in /opt or /srv",
        first.escape_debug()
    )
}

/// Names such folders in the log. The image is at `root` of the container.
pub(super) async fn name_hidden(container: &Arc<dyn Container>, log: &BuildLog, root: &str) {
    for folder in HIDDEN {
        // One that cannot be listed is none.
        let listed = container.guest().list_page(&format!("{root}{folder}"), None, 1).await;
        if let Ok((entries, _)) = listed
            && let Some(first) = entries.first()
        {
            log.line(notice(folder, &first.name));
        }
    }
}
