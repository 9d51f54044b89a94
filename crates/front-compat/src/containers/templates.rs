//! Templates: those that ship, and the owner's own. Building and pulling one is an operation on images, which only an admin may
//! carry out; the answer comes when it has ended, and a caller that goes away does not end it.

use super::done;
use crate::{App, at};
use atoll_core::{
    BuildImage, Caller, OwnerTemplate, PoolBounds, PullImage, Recipe,
    image_specs::{Template, TemplatePackages, TemplateResources, templates as shipped},
    owner_id,
};
use atoll_http::{Failure, Params, Raw, Who, required_json};
use atoll_types::{BuildRecord, BuildState, Error, ErrorCode, ImageRecord};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// A template to make.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateBody {
    /// The name in small letters where it is left out.
    #[serde(default)]
    id: Option<String>,
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    dockerfile: Option<String>,
    #[serde(default)]
    setup_commands: Vec<String>,
    #[serde(default)]
    packages: TemplatePackages,
    #[serde(default)]
    default_resources: Option<TemplateResources>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl From<TemplateBody> for OwnerTemplate {
    fn from(body: TemplateBody) -> Self {
        let TemplateBody {
            id,
            name,
            description,
            image,
            dockerfile,
            setup_commands,
            packages,
            default_resources,
            env,
        } = body;
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let id = id.unwrap_or_else(|| name.chars().map(plain).collect());
        Self { id, name, description, image, dockerfile, setup_commands, packages, default_resources, env }
    }
}

/// A template, and the image that was made of it.
fn item(template: &OwnerTemplate, made: Option<&ImageRecord>, is_builtin: bool) -> Value {
    let OwnerTemplate {
        id,
        name,
        description,
        image,
        dockerfile,
        setup_commands,
        packages,
        default_resources,
        env,
    } = template;
    json!({
        "id": id, "name": name, "description": description, "image": image, "dockerfile": dockerfile,
        "setup_commands": setup_commands, "packages": packages, "default_resources": default_resources, "env": env,
        "built": made.is_some(), "built_at": made.map(|of| at(of.created_at)),
        "size_mb": made.map(|of| of.size_bytes.div_ceil(MIB)), "is_builtin": is_builtin,
    })
}

/// One that ships in the shape of an owner's.
fn in_our_shape(template: &Template) -> OwnerTemplate {
    let Template { id, name, description, base, packages, setup_commands, env, default_resources, .. } =
        template.clone();
    OwnerTemplate {
        id,
        name,
        description,
        image: base,
        dockerfile: None,
        setup_commands,
        packages,
        default_resources,
        env,
    }
}

async fn images(app: &App, caller: &Caller) -> Result<Vec<ImageRecord>, Failure> {
    let views = app.core.images.list(caller).await?;
    Ok(views.into_iter().filter_map(|view| view.record).collect())
}

/// The templates that ship, and the owner's own.
pub(super) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Value>, Failure> {
    let images = images(&app, &caller).await?;
    let of_server = |template: &Template| {
        let made = template.last_built(images.iter());
        item(&in_our_shape(template), made, true)
    };
    let own = app.core.owner_configs.templates(&caller).await?;
    let own = own.iter().map(|template| item(template, template.made(images.iter()), false));
    let all: Vec<Value> = shipped().iter().map(of_server).chain(own).collect();
    Ok(Json(json!({ "templates": all })))
}

pub(super) async fn create(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<Value>), Failure> {
    let template = OwnerTemplate::from(required_json::<TemplateBody>(&body)?);
    app.core.owner_configs.add_template(&caller, template.clone()).await?;
    let images = images(&app, &caller).await?;
    Ok((StatusCode::CREATED, Json(item(&template, template.made(images.iter()), false))))
}

fn is_shipped(id: &str) -> bool {
    shipped().iter().any(|template| template.id == id)
}

pub(super) async fn remove(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
) -> Result<Json<Value>, Failure> {
    if is_shipped(&id) {
        return Err(Error::new(ErrorCode::Conflict, "a template that ships cannot be removed").into());
    }
    app.core.owner_configs.remove_template(&caller, &id).await?;
    Ok(done(format!("the template {id} is removed; an image that was made of it stays")))
}

/// Whose template; the caller's own where it is left out. Owners who are no admins have theirs made so.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Whose {
    owner: Option<String>,
}

/// The template of the owner's with this id.
async fn own(app: &App, caller: &Caller, id: &str, whose: &Whose) -> Result<OwnerTemplate, Failure> {
    let missing = || Error::new(ErrorCode::NotFound, "there is no template with this id");
    let owner = whose.owner.as_deref().map(owner_id);
    let all = app.core.owner_configs.templates_of(caller, owner.as_deref()).await?;
    Ok(all.into_iter().find(|template| template.id == id).ok_or_else(missing)?)
}

/// Waits for the end of a build or a pull; a failed one is an error of this code.
async fn ended(app: &App, caller: &Caller, begun: &BuildRecord, code: ErrorCode) -> Result<(), Failure> {
    let mut log = app.core.images.build_log(caller, begun.id, 0).await?;
    while log.next().await?.is_some() {}
    let record = app.core.images.get_build(caller, begun.id).await?.record;
    match record.state {
        BuildState::Done => Ok(()),
        BuildState::Running | BuildState::Failed | BuildState::Cancelled => {
            let why = record.error.unwrap_or_else(|| "it was ended".into());
            Err(Error::new(code, format!("{} could not be made: {why}", record.tag)).into())
        }
    }
}

/// Builds the image of a template, again where it is built already.
pub(super) async fn build(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(whose): Params<Whose>,
) -> Result<Json<Value>, Failure> {
    let images = images(&app, &caller).await?;
    let (recipe, replace) = match shipped().iter().find(|template| template.id == id) {
        Some(template) => (Recipe::Shipped(id.clone()), template.last_built(images.iter()).is_some()),
        None => {
            let template = own(&app, &caller, &id, &whose).await?;
            (template.recipe(), template.made(images.iter()).is_some())
        }
    };
    let request = BuildImage {
        recipe,
        name: Some(id.clone()),
        replace,
        disk_mb: None,
        memory_mb: None,
        cpu_cores: None,
        egress: None,
        no_cache: false,
        lock: Vec::new(),
        pool: PoolBounds::default(),
    };
    let begun = app.core.images.build_image(&caller, request).await?;
    ended(&app, &caller, &begun, ErrorCode::ExecFailed).await?;
    Ok(done(format!("the image {id} is built")))
}

/// Pulls the image of a template that is one.
pub(super) async fn pull(
    State(app): State<App>,
    Who(caller): Who,
    Path(id): Path<String>,
    Params(whose): Params<Whose>,
) -> Result<Json<Value>, Failure> {
    let is_built = || Error::invalid("id", "this template is no image that can be pulled; build it");
    if is_shipped(&id) {
        return Err(is_built().into());
    }
    let template = own(&app, &caller, &id, &whose).await?;
    let plain = template.is_plain_image();
    let reference = template.image.clone().filter(|_| plain).ok_or_else(is_built)?;
    let replace = template.made(images(&app, &caller).await?.iter()).is_some();
    let request = PullImage { reference, name: Some(id.clone()), replace, ..PullImage::default() };
    let begun = app.core.images.pull(&caller, request).await?;
    ended(&app, &caller, &begun, ErrorCode::BadGateway).await?;
    Ok(done(format!("the image {id} is pulled")))
}
