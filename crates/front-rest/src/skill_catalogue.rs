//! Skills that ship: outlines for one's own, and a catalogue to import from.

use crate::{
    App,
    parse::{Params, Raw, required_json},
    skills::SkillItem,
};
use atoll_core::{CatalogueSkill, SkillFields, builtin_skill, builtin_skills, check_catalogue};
use atoll_http::{Failure, Who};
use atoll_types::{Error, ErrorCode};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

type JsonResult<T> = Result<Json<T>, Failure>;

/// The outline of a skill.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillTemplate {
    name: String,
    description: String,
    skill_md_content: String,
}

/// All outlines.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillTemplateList {
    items: Vec<SkillTemplate>,
    total: usize,
}

/// A skill that can be imported.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillCatalogEntry {
    name: String,
    description: String,
    /// The catalogue: builtin.
    source: String,
    files: Vec<&'static str>,
    /// The fields of its front matter beside name and description.
    metadata: Map<String, Value>,
}

/// Skills that can be imported, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SkillCatalog {
    items: Vec<SkillCatalogEntry>,
    total: usize,
}

impl SkillCatalogEntry {
    fn of(source: &str, skill: CatalogueSkill) -> Self {
        let CatalogueSkill { name, description, metadata, text: _ } = skill;
        Self { name, description, source: source.to_owned(), files: vec!["SKILL.md"], metadata }
    }
}

/// Lists outlines of skills, to begin one's own with.
#[utoipa::path(get, path = "/api/v1/skills/templates", tag = "skills",
    responses((status = 200, body = SkillTemplateList)))]
pub(crate) async fn templates(Who(_caller): Who) -> JsonResult<SkillTemplateList> {
    let template = |skill: CatalogueSkill| {
        let CatalogueSkill { name, description, metadata: _, text } = skill;
        SkillTemplate { name, description, skill_md_content: text }
    };
    let items: Vec<SkillTemplate> = builtin_skills("")?.into_iter().map(template).collect();
    Ok(Json(SkillTemplateList { total: items.len(), items }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CatalogParams {
    /// In name or description, whatever the case.
    search: Option<String>,
}

/// Lists the skills of a catalogue. There is one: builtin.
#[utoipa::path(get, path = "/api/v1/skills/catalog/{source}", tag = "skills",
    params(("source" = String, Path), CatalogParams),
    responses((status = 200, body = SkillCatalog), (status = 404), (status = 422)))]
pub(crate) async fn catalog(
    Who(_caller): Who,
    Path(source): Path<String>,
    Params(params): Params<CatalogParams>,
) -> JsonResult<SkillCatalog> {
    check_catalogue(&source)?;
    let found = builtin_skills(&params.search.unwrap_or_default()).map_err(Failure::in_query)?;
    let items: Vec<_> = found.into_iter().map(|skill| SkillCatalogEntry::of(&source, skill)).collect();
    Ok(Json(SkillCatalog { total: items.len(), items }))
}

/// One skill of a catalogue.
#[utoipa::path(get, path = "/api/v1/skills/catalog/{source}/{skill_name}", tag = "skills",
    params(("source" = String, Path), ("skill_name" = String, Path)),
    responses((status = 200, body = SkillCatalogEntry), (status = 404)))]
pub(crate) async fn catalog_detail(
    Who(_caller): Who,
    Path((source, name)): Path<(String, String)>,
) -> JsonResult<SkillCatalogEntry> {
    check_catalogue(&source)?;
    Ok(Json(SkillCatalogEntry::of(&source, builtin_skill(&name)?)))
}

/// A skill to import.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillImport {
    /// The catalogue: builtin.
    source: String,
    skill_name: String,
    /// This server has no MCP servers to link a skill with; 501 where one is named.
    mcp_server_id: Option<String>,
    /// This server fetches no repositories; 501 where one is named.
    github_repo: Option<String>,
}

/// Makes a skill of yours from one of a catalogue.
#[utoipa::path(post, path = "/api/v1/skills/import", tag = "skills", request_body = SkillImport,
    responses((status = 201, body = SkillItem), (status = 404), (status = 409, description = "You have one with this name"),
        (status = 422), (status = 429, description = "The owner's plan allows no more"), (status = 501)))]
pub(crate) async fn import(
    State(app): State<App>,
    Who(caller): Who,
    Raw(body): Raw,
) -> Result<(StatusCode, Json<SkillItem>), Failure> {
    let SkillImport { source, skill_name, mcp_server_id, github_repo } = required_json(&body)?;
    for (field, given) in [("mcp_server_id", mcp_server_id), ("github_repo", github_repo)] {
        if given.is_some() {
            let message = format!("skills are imported from the catalogues of this server, without {field}");
            return Err(Error::new(ErrorCode::Unsupported, message).at(field).into());
        }
    }
    check_catalogue(&source)?;
    let CatalogueSkill { text, .. } = builtin_skill(&skill_name)?;
    let made = app.core.skills.create(&caller, text, SkillFields::default()).await?;
    Ok((StatusCode::CREATED, Json(SkillItem::with(made))))
}
