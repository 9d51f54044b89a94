//! Where steps write. Over some folders of an image lie those of each sandbox, so what a step puts there would be missing without a
//! word: a step that names such a folder is refused before the build begins, and what commands leave there is named at the end.

use super::steps::{absolute, configure};
use crate::image_specs::dockerfile::{Step, StepKind};
use atoll_types::{Error, ImageConfig, Result};
use std::path::Path;

/// The folders of every sandbox that lie over those of its image. Homes are those of [`Profile::home`](atoll_types::Profile::home) but
/// root's, whose files the later steps of the build see.
const COVERED: [&str; 8] =
    ["/workspace", "/tmp", "/run", "/dev", "/proc", "/sys", "/home/user", "/home/sandbox"];

/// The folder that covers a path, and whether the path is that folder.
fn covered(path: &str) -> Option<(&'static str, bool)> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let path = format!("/{}", parts.join("/"));
    let is_over = |folder: &&str| Path::new(&path).starts_with(folder);
    COVERED.into_iter().find(is_over).map(|folder| (folder, path == folder))
}

fn refused(line: u32, what: &str, path: &str, folder: &str) -> Error {
    let message = format!(
        "{what} {path:?}: {folder} of an image is not seen, because every sandbox has its own there; choose another folder, \
         such as /opt or /srv"
    );
    match line {
        0 => Error::invalid("files", message),
        line => Error::invalid("dockerfile", format!("line {line}: {message}")),
    }
}

/// Refuses steps whose files the image would not show, and labels that cannot be right, on a base with this configuration.
pub(super) fn check_targets(steps: &[Step], base: &ImageConfig) -> Result<()> {
    let mut config = base.clone();
    for Step { line, kind } in steps {
        let (what, target) = match kind {
            StepKind::Copy { target, unpack, .. } => {
                (if *unpack { "ADD to" } else { "COPY to" }, absolute(&config, target))
            }
            StepKind::File { path, .. } => ("a file at", path.clone()),
            // Commands may begin in such a folder itself.
            StepKind::Workdir(path) => {
                let path = absolute(&config, path);
                let itself = covered(&path).is_some_and(|(_, itself)| itself);
                ("WORKDIR", if itself { "/".to_owned() } else { path })
            }
            StepKind::Label(_) => {
                let of_line = |e: Error| if *line == 0 { e } else { e.context(format!("line {line}")) };
                configure(&mut config, kind).map_err(of_line)?;
                continue;
            }
            _ => continue,
        };
        if let Some((folder, _)) = covered(&target) {
            return Err(refused(*line, what, &target, folder));
        }
        configure(&mut config, kind)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(target: &str) -> StepKind {
        StepKind::Copy {
            sources: vec!["a".into()],
            target: target.into(),
            unpack: false,
            owner: None,
            mode: None,
        }
    }

    #[test]
    fn what_the_image_would_not_show_is_refused_with_its_line() {
        let check = |kinds: Vec<StepKind>| {
            let steps = (1..).zip(kinds).map(|(line, kind)| Step { line, kind }).collect::<Vec<_>>();
            check_targets(&steps, &ImageConfig::default())
        };
        let workdir = |path: &str| StepKind::Workdir(path.into());
        for fine in [
            vec![copy("/opt/x")],
            vec![workdir("/workspace")],
            vec![workdir("/tmp"), workdir("/srv"), copy("./")],
            vec![copy("/tmpfiles/a"), copy("/srv/tmp/a")],
            vec![copy("/root/.profile"), copy("/home/app/a"), copy("/home/users")],
            vec![workdir("/home/user")],
        ] {
            check(fine).unwrap();
        }
        for (wrong, line) in [
            (vec![copy("/workspace")], 1),
            (vec![copy("/workspace/")], 1),
            (vec![copy("//tmp/./a")], 1),
            (vec![copy("/srv/a"), workdir("/workspace"), copy(".")], 3),
            (vec![workdir("/workspace/app")], 1),
            (vec![workdir("/"), copy("tmp/a")], 2),
            (vec![copy("/home/user/.bashrc")], 1),
            (vec![copy("/home/sandbox/")], 1),
            (vec![workdir("/home/./user"), copy("a")], 2),
        ] {
            let refused = check(wrong).unwrap_err();
            assert_eq!(refused.field.as_deref(), Some("dockerfile"));
            assert!(refused.message.starts_with(&format!("line {line}: ")), "{}", refused.message);
        }
        let file = StepKind::File { path: "/tmp/a".into(), content: String::new(), mode: None };
        let refused = check_targets(&[Step { line: 0, kind: file }], &ImageConfig::default()).unwrap_err();
        assert!(refused.field.as_deref() == Some("files") && refused.message.contains("\"/tmp/a\""));
    }
}
