//! Templates of images that owners make through the API at `/api/sandbox`, stored beside their configurations. Nothing here
//! builds: a template becomes a recipe, and the image that is made of it has the template's id as its name.

use crate::{
    Caller, OwnerConfigs, Recipe,
    image_specs::{Template, TemplatePackages, TemplateResources, dockerfile::Dockerfile, templates},
    operation::OperationSpec,
};
use atoll_store::Scope;
use atoll_types::{Error, ErrorCode, ImageOrigin, ImageRecord, Operation, Result, is_image_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most templates of an owner.
const MOST_TEMPLATES: usize = 50;
/// What all templates of an owner may hold together, in bytes.
const LARGEST_TEMPLATES: usize = 1 << 20;
/// The tag of the images that are made of them.
const TAG: &str = "latest";

/// A template of an owner: the lines of a Dockerfile, or an image with packages and lines for the shell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OwnerTemplate {
    pub id: String,
    pub name: String,
    pub description: String,
    /// The image that it begins with.
    pub image: Option<String>,
    pub dockerfile: Option<String>,
    pub setup_commands: Vec<String>,
    pub packages: TemplatePackages,
    pub default_resources: Option<TemplateResources>,
    pub env: BTreeMap<String, String>,
}

impl OwnerTemplate {
    /// Whether it is an image as it is, to which nothing is added.
    #[must_use]
    pub fn is_plain_image(&self) -> bool {
        let Self { dockerfile, setup_commands, packages, env, .. } = self;
        let nothing = setup_commands.is_empty() && env.is_empty() && *packages == TemplatePackages::default();
        self.image.is_some() && dockerfile.is_none() && nothing
    }

    /// What an image is built by.
    #[must_use]
    pub fn recipe(&self) -> Recipe {
        match &self.dockerfile {
            Some(text) => Recipe::Dockerfile { text: text.clone(), arguments: BTreeMap::new() },
            None => Recipe::Template(Box::new(self.template())),
        }
    }

    fn template(&self) -> Template {
        let Self { id, name, description, image, dockerfile: _, setup_commands, packages, .. } = self.clone();
        Template {
            id,
            name,
            description,
            base: image,
            packages,
            files: Vec::new(),
            setup_commands,
            env: self.env.clone(),
            start_command: None,
            ready_check: None,
            ready_timeout_seconds: None,
            ready_interval_ms: None,
            default_resources: self.default_resources,
        }
    }

    /// The image that was last made of it.
    pub fn made<'a>(&self, mut images: impl Iterator<Item = &'a ImageRecord>) -> Option<&'a ImageRecord> {
        let ours = |of: &ImageRecord| matches!(of.origin, ImageOrigin::Template | ImageOrigin::Pull);
        images.find(|of| of.name == self.id && of.tags.iter().any(|tag| tag == TAG) && ours(of))
    }

    /// Refuses what no image can be made of.
    fn check(&self) -> Result<()> {
        if !is_image_name(&self.id) || self.id.contains('/') {
            let message =
                "id is the name of the image: lower-case letters, digits, dots, dashes and underscores";
            return Err(Error::invalid("id", message));
        }
        if templates().iter().any(|template| template.id == self.id) {
            let message = format!("the template {} ships with the server; give yours another id", self.id);
            return Err(Error::new(ErrorCode::Conflict, message).at("id"));
        }
        let Some(text) = &self.dockerfile else {
            return self.template().plan(Vec::new()).map(drop);
        };
        let Self { id, name, description, dockerfile, .. } = self.clone();
        if *self != (Self { id, name, description, dockerfile, ..Self::default() }) {
            let message = "a template with a dockerfile has no image, packages, setup_commands, env or default_resources: the Dockerfile says them";
            return Err(Error::invalid("dockerfile", message));
        }
        Dockerfile::parse(text, BTreeMap::new(), BTreeMap::new()).map(drop).map_err(|e| e.at("dockerfile"))
    }
}

/// The name of an owner's entry among the stored settings.
fn entry_of(owner: &str) -> String {
    format!("owner_templates {owner}")
}

impl OwnerConfigs {
    /// The templates of the caller's owner, by id.
    pub async fn templates(&self, caller: &Caller) -> Result<Vec<OwnerTemplate>> {
        self.templates_of(caller, None).await
    }

    /// The templates of an owner, by id; of the caller's where none is named. Another's only an admin sees, who builds them.
    pub async fn templates_of(&self, caller: &Caller, owner: Option<&str>) -> Result<Vec<OwnerTemplate>> {
        let owner = owner.unwrap_or(&caller.owner);
        if owner != caller.owner && caller.scope != Scope::Admin {
            let message = "only an admin key names another owner";
            return Err(Error::new(ErrorCode::PermissionDenied, message).at("owner"));
        }
        let Some(stored) = self.store.get_setting(&entry_of(owner)).await? else { return Ok(Vec::new()) };
        let unreadable = |e| Error::internal(format!("stored templates cannot be read: {e}"));
        serde_json::from_value(stored).map_err(unreadable)
    }

    /// Adds a template. One of the same id is a conflict.
    pub async fn add_template(&self, caller: &Caller, template: OwnerTemplate) -> Result<()> {
        let id = template.id.clone();
        let add = |all: &mut Vec<OwnerTemplate>| {
            template.check()?;
            if all.iter().any(|there| there.id == template.id) {
                let message = format!("you have a template {}; delete it first", template.id);
                return Err(Error::new(ErrorCode::AlreadyExists, message).at("id"));
            }
            if all.len() >= MOST_TEMPLATES {
                let message = format!("an owner may have {MOST_TEMPLATES} templates; delete one first");
                return Err(Error::invalid("id", message));
            }
            all.push(template);
            all.sort_by(|a, b| a.id.cmp(&b.id));
            Ok(())
        };
        self.change_templates(caller, format!("template {id}"), add).await
    }

    /// Removes a template. Images that were made of it stay.
    pub async fn remove_template(&self, caller: &Caller, id: &str) -> Result<()> {
        let remove = |all: &mut Vec<OwnerTemplate>| {
            let before = all.len();
            all.retain(|template| template.id != id);
            match all.len() < before {
                true => Ok(()),
                false => Err(Error::new(ErrorCode::NotFound, "there is no template with this id")),
            }
        };
        let shown: String = id.chars().take(100).collect();
        self.change_templates(caller, format!("no template {shown}"), remove).await
    }

    async fn change_templates(
        &self,
        caller: &Caller,
        detail: String,
        change: impl FnOnce(&mut Vec<OwnerTemplate>) -> Result<()>,
    ) -> Result<()> {
        let _alone = self.changing.lock().await;
        let audited =
            self.operations.audited(caller, OperationSpec::new(Operation::ConfigSet).with(detail)).await?;
        let result = async {
            let mut all = self.templates(caller).await?;
            change(&mut all)?;
            let value = serde_json::to_value(&all).map_err(|e| Error::internal(e.to_string()))?;
            if value.to_string().len() > LARGEST_TEMPLATES {
                let message =
                    format!("an owner's templates may hold {} KiB together", LARGEST_TEMPLATES >> 10);
                return Err(Error::new(ErrorCode::TooLarge, message));
            }
            Ok(self.store.put_setting(&entry_of(&caller.owner), value).await?)
        }
        .await;
        audited.done(result).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(change: fn(&mut OwnerTemplate)) -> OwnerTemplate {
        let mut template =
            OwnerTemplate { id: "mine".into(), image: Some("base".into()), ..OwnerTemplate::default() };
        change(&mut template);
        template
    }

    #[test]
    fn what_no_image_can_be_made_of_names_its_field() {
        assert_eq!(template(|_| ()).check(), Ok(()));
        let wrong = |change| template(change).check().unwrap_err().field.unwrap();
        assert_eq!(wrong(|t| t.id = "Mine".into()), "id");
        assert_eq!(wrong(|t| t.id = "a/b".into()), "id");
        assert_eq!(wrong(|t| t.id = "base".into()), "id");
        assert_eq!(wrong(|t| t.packages.pip = vec!["--pre".into()]), "packages.pip");
        assert_eq!(wrong(|t| t.dockerfile = Some("FROM base\n".into())), "dockerfile");
        let lines = |t: &mut OwnerTemplate| (t.image, t.dockerfile) = (None, Some("NO such\n".into()));
        assert_eq!(wrong(lines), "dockerfile");
    }

    #[test]
    fn an_image_to_which_nothing_is_added_is_plain() {
        assert!(template(|_| ()).is_plain_image());
        assert!(!template(|t| t.image = None).is_plain_image());
        assert!(!template(|t| t.setup_commands = vec!["true".into()]).is_plain_image());
        let lines = |t: &mut OwnerTemplate| (t.image, t.dockerfile) = (None, Some("FROM base\n".into()));
        assert!(!template(lines).is_plain_image());
        assert_eq!(template(lines).check(), Ok(()));
        assert!(matches!(template(lines).recipe(), Recipe::Dockerfile { .. }));
    }
}
