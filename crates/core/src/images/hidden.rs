//! What an image holds and its sandboxes do not see: in folders that every sandbox has of its own, and what was not written at all.
//! Nothing of it is refused, since most images have something there; the log of the build says it.

use super::build_log::BuildLog;
use atoll_guest_tools::LeftOut;
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

fn left_out(layers: impl IntoIterator<Item = LeftOut>) -> Option<String> {
    let sum = |(before, more): (u64, u64), of: LeftOut| {
        // What AUFS noted for itself is no part of an image.
        let LeftOut { devices, xattrs, notes: _ } = of;
        (before.saturating_add(devices), more.saturating_add(xattrs))
    };
    let (devices, xattrs) = layers.into_iter().fold((0, 0), sum);
    let parts = [
        (devices, "devices below /dev (every sandbox has its own)"),
        (xattrs, "extended attributes (user.* and security.capability are kept, where the file system can)"),
    ];
    let named = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| format!("note: left out of the image: {}", named.join(", ")))
}

/// Says in the log what layers held that was not written.
pub(super) fn name_left_out(log: &BuildLog, layers: impl IntoIterator<Item = LeftOut>) {
    if let Some(line) = left_out(layers) {
        log.line(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_layers_held_and_was_not_written_is_named_once() {
        let of = |devices, xattrs| LeftOut { devices, xattrs, notes: 1 };
        assert_eq!(left_out([of(0, 0), of(0, 0)]), None);
        let line = left_out([of(2, 0), of(1, 4)]).unwrap();
        assert!(line.contains(" 3 devices ") && line.contains(", 4 extended attributes "), "{line}");
        let line = left_out([of(u64::MAX, 0), of(1, 0)]).unwrap();
        assert!(!line.contains("attributes"), "{line}");
    }
}
