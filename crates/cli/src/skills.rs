//! `atoll skill`: packages of instructions and files for agents.

use crate::{Failure, failure::each, resolve, server::Server, table, terminal, when};
use atoll_client::{InstalledSkills, ListSkills, Skill};
use atoll_types::Error;
use clap::{Args, Subcommand};
use std::{
    fs,
    io::{Cursor, Write},
    path::{Path, PathBuf},
};
use zip::{ZipWriter, write::SimpleFileOptions};

/// `skill`.
#[derive(Debug, Args)]
pub struct SkillOptions {
    #[command(subcommand)]
    pub(crate) command: SkillCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SkillCommand {
    /// Lists skills
    Ls(Ls),
    /// Uploads a skill and prints its id
    Add(Add),
    /// Shows all about a skill, with its instructions
    Show(One),
    /// Installs skills in a sandbox, in /workspace/skills
    Install(Install),
    /// Deletes skills; what was installed of them stays
    Rm(Several),
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Those with this text in their name or description
    pub(crate) search: Option<String>,
    /// Those of this owner; for admins
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// A folder with a SKILL.md, a ZIP archive of one, or a SKILL.md alone
    pub(crate) path: PathBuf,
    /// Replace your skill of the same name
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// The skill: its name, its id, or the start of it
    pub(crate) skill: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The sandbox
    pub(crate) sandbox: String,
    /// The skills
    #[arg(required = true)]
    pub(crate) skills: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

#[derive(Debug, Args)]
pub(crate) struct Several {
    /// The skills
    #[arg(required = true)]
    pub(crate) skills: Vec<String>,
    #[command(flatten)]
    pub(crate) server: Server,
}

impl SkillOptions {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            SkillCommand::Ls(Ls { server, .. })
            | SkillCommand::Add(Add { server, .. })
            | SkillCommand::Show(One { server, .. })
            | SkillCommand::Install(Install { server, .. })
            | SkillCommand::Rm(Several { server, .. }) => server.json,
        }
    }
}

/// Files that a folder is packed with; a server takes fewer.
const MOST_FILES: usize = 1000;

fn unread(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Error::invalid("path", format!("{} cannot be read: {error}", path.display())).into()
}

/// The files below a folder, without what git keeps there.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).map_err(unread(&at))? {
            let entry = entry.map_err(unread(&at))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(unread(&at))?);
            if kind.is_dir() && entry.file_name() != ".git" {
                folders.push(path);
            } else if kind.is_file() {
                found.push(path);
            } else if !kind.is_dir() {
                let message = format!("{} is neither a file nor a folder", path.display());
                return Err(Error::invalid("path", message).into());
            }
            if found.len() > MOST_FILES {
                let message = format!("{} has more than {MOST_FILES} files", folder.display());
                return Err(Error::invalid("path", message).into());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A ZIP archive of files below a folder.
fn packed(folder: &Path, files: &[PathBuf]) -> Result<Vec<u8>, Failure> {
    let failed = |error: zip::result::ZipError| Failure::from(Error::internal(error.to_string()));
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for file in files {
        let name = file.strip_prefix(folder).unwrap_or(file).to_string_lossy().into_owned();
        let about = fs::metadata(file).map_err(unread(file))?;
        let mode = std::os::unix::fs::PermissionsExt::mode(&about.permissions());
        let options = SimpleFileOptions::default().unix_permissions(mode);
        writer.start_file(name, options).map_err(failed)?;
        writer.write_all(&fs::read(file).map_err(unread(file))?).map_err(unread(file))?;
    }
    Ok(writer.finish().map_err(failed)?.into_inner())
}

/// What a path is uploaded as.
fn package(path: &Path) -> Result<Vec<u8>, Failure> {
    let about = fs::metadata(path).map_err(unread(path))?;
    if about.is_dir() {
        return packed(path, &files_below(path)?);
    }
    match path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md")) {
        true => packed(path.parent().unwrap_or(path), &[path.to_owned()]),
        false => fs::read(path).map_err(unread(path)),
    }
}

fn listed(skills: &[Skill]) -> String {
    let row = |skill: &Skill| {
        [
            resolve::short(skill.id),
            skill.name.clone(),
            skill.files.to_string(),
            skill.user_name.clone(),
            when::since(&skill.updated_at),
            skill.description.clone(),
        ]
    };
    let rows: Vec<_> = skills.iter().map(row).collect();
    table::render(["ID", "NAME", "FILES", "OWNER", "CHANGED", "DESCRIPTION"], &rows)
}

fn shown(skill: &Skill) -> String {
    let metadata = (!skill.skill_metadata.is_empty())
        .then(|| serde_json::Value::Object(skill.skill_metadata.clone()).to_string());
    let rows = [
        ("Id", Some(skill.id.to_string())),
        ("Name", Some(skill.name.clone())),
        ("Description", Some(skill.description.clone())),
        ("Owner", Some(skill.user_name.clone())),
        ("Source", Some(skill.source_type.clone())),
        ("Created", Some(format!("{} ({})", skill.created_at, when::since(&skill.created_at)))),
        ("Changed", Some(format!("{} ({})", skill.updated_at, when::since(&skill.updated_at)))),
        ("Package", Some(format!("{} files, {} bytes", skill.files, skill.package_size_bytes))),
        ("Digest", Some(format!("sha256:{}", skill.digest))),
        ("Metadata", metadata),
    ];
    let rows: Vec<_> = rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let lines = skill.skill_md_content.iter().flat_map(|text| text.lines());
    let text: String = lines.map(|line| format!("{}\n", terminal::plain(line))).collect();
    format!("{}\n{text}", table::fields(&rows))
}

/// What became of an install, and the exit code.
fn summary(outcome: &InstalledSkills) -> (String, u8) {
    let mut text = String::new();
    let mut add = |name: &str, what: &str| {
        text.push_str(&format!("{}  {}\n", terminal::plain(name), terminal::plain(what)));
    };
    outcome.installed.iter().for_each(|name| add(name, "installed"));
    outcome.already_installed.iter().for_each(|name| add(name, "already installed"));
    outcome.not_found.iter().for_each(|id| add(&id.to_string(), "not found"));
    outcome.extraction_errors.iter().for_each(|failed| add(&failed.name, &failed.message));
    let failed = !outcome.not_found.is_empty() || !outcome.extraction_errors.is_empty();
    (text, u8::from(failed))
}

pub(crate) async fn run(command: SkillCommand) -> Result<u8, Failure> {
    let (json, text, code, server) = match command {
        SkillCommand::Ls(Ls { search, owner, server }) => {
            let wanted = ListSkills { search, owner, limit: Some(200), ..ListSkills::default() };
            let all = server.client()?.list_skills(&wanted).await?;
            let text = listed(&all.items);
            (all.json, text, 0, server)
        }
        SkillCommand::Add(Add { path, replace, server }) => {
            let added = server.client()?.upload_skill(package(&path)?, replace).await?;
            let text = format!("{}\n", added.id);
            (added.json, text, 0, server)
        }
        SkillCommand::Show(One { skill, server }) => {
            let client = server.client()?;
            let one = client.skill(resolve::skill(&client, &skill).await?).await?;
            let text = shown(&one);
            (one.json, text, 0, server)
        }
        SkillCommand::Install(Install { sandbox, skills, server }) => {
            let client = server.client()?;
            let sandbox = resolve::sandbox(&client, &sandbox).await?;
            let mut ids = Vec::new();
            for skill in &skills {
                ids.push(resolve::skill(&client, skill).await?);
            }
            let outcome = client.install_skills(sandbox, &ids).await?;
            let (text, code) = summary(&outcome);
            (outcome.json, text, code, server)
        }
        SkillCommand::Rm(Several { skills, server }) => {
            let client = server.client()?;
            return each(&skills, server.json, async |skill| {
                let id = resolve::skill(&client, skill).await?;
                client.delete_skill(id).await.map_err(|e| Failure::from(e).about(skill))?;
                terminal::print_done(skill, server.json)
            })
            .await;
        }
    };
    match server.json {
        true => terminal::print_json(&json)?,
        false => terminal::print(&text)?,
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skills_for_people() {
        let skill: Skill = serde_json::from_value(serde_json::json!({
            "id": "3f2a11bc-0000-4000-8000-000000000001", "name": "tables", "description": "Reads\u{1b} tables",
            "user_name": "ann", "source_type": "upload", "skill_metadata": {"license": "MIT"}, "files": 2,
            "package_size_bytes": 700, "digest": "ab", "created_at": "then", "updated_at": "now",
            "skill_md_content": "# Do\n\u{1b}[2J",
        }))
        .unwrap();
        insta::assert_snapshot!(listed(std::slice::from_ref(&skill)), @r"
        ID        NAME    FILES  OWNER  CHANGED  DESCRIPTION
        3f2a11bc  tables  2      ann    now      Reads\u{1b} tables
        ");
        insta::assert_snapshot!(shown(&skill), @r#"
        Id           3f2a11bc-0000-4000-8000-000000000001
        Name         tables
        Description  Reads\u{1b} tables
        Owner        ann
        Source       upload
        Created      then (then)
        Changed      now (now)
        Package      2 files, 700 bytes
        Digest       sha256:ab
        Metadata     {"license":"MIT"}

        # Do
        \u{1b}[2J
        "#);
        let outcome = InstalledSkills { installed: vec!["a".into()], ..InstalledSkills::default() };
        assert_eq!(summary(&outcome), ("a  installed\n".to_owned(), 0));
    }

    #[test]
    fn a_folder_becomes_a_package() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("scripts")).unwrap();
        fs::create_dir_all(folder.path().join(".git")).unwrap();
        for file in ["SKILL.md", "scripts/run.sh", ".git/config"] {
            fs::write(folder.path().join(file), "x").unwrap();
        }
        let names = |bytes: Vec<u8>| -> Vec<String> {
            let archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
            archive.file_names().map(|name| name.unwrap().into_owned()).collect()
        };
        assert_eq!(names(package(folder.path()).unwrap()), ["SKILL.md", "scripts/run.sh"]);
        assert_eq!(names(package(&folder.path().join("SKILL.md")).unwrap()), ["SKILL.md"]);
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
        assert!(package(folder.path()).is_err());
    }
}
