//! Skills that ship: a catalogue to begin with, and outlines for one's own. Each is the text of one SKILL.md.

use super::skill_md::SkillMd;
use atoll_types::{Error, ErrorCode, Result};
use serde_json::{Map, Value};

/// The name of the catalogue.
const BUILTIN_CATALOGUE: &str = "builtin";

const TEXTS: [&str; 3] = [
    include_str!("builtin/blank.md"),
    include_str!("builtin/table-report.md"),
    include_str!("builtin/web-page.md"),
];

/// A skill of a catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogueSkill {
    pub name: String,
    pub description: String,
    pub metadata: Map<String, Value>,
    pub text: String,
}

/// The skills that ship whose name or description has this in it, whatever the case; by name.
pub fn builtin_skills(search: &str) -> Result<Vec<CatalogueSkill>> {
    super::SKILL_SEARCH.check("search", search)?;
    let search = search.to_lowercase();
    let skill = |text: &str| {
        let SkillMd { name, description, metadata, text } = SkillMd::parse(text.to_owned())?;
        Ok(CatalogueSkill { name: name.to_string(), description, metadata, text })
    };
    let all: Result<Vec<CatalogueSkill>> = TEXTS.into_iter().map(skill).collect();
    let fits = |skill: &CatalogueSkill| {
        skill.name.contains(&search) || skill.description.to_lowercase().contains(&search)
    };
    Ok(all?.into_iter().filter(fits).collect())
}

/// Refuses a catalogue that is not here.
pub fn check_catalogue(source: &str) -> Result<()> {
    if source == BUILTIN_CATALOGUE {
        return Ok(());
    }
    let message = format!("there is no catalogue of this name; there is {BUILTIN_CATALOGUE}");
    Err(Error::new(ErrorCode::NotFound, message))
}

/// A skill that ships.
pub fn builtin_skill(name: &str) -> Result<CatalogueSkill> {
    let unknown = || Error::new(ErrorCode::NotFound, format!("the catalogue has no skill {name:?}"));
    builtin_skills("")?.into_iter().find(|skill| skill.name == name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_skill_that_ships_is_a_right_one() {
        let all = builtin_skills("").unwrap();
        assert_eq!(
            all.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(),
            ["blank", "table-report", "web-page"]
        );
        assert_eq!(builtin_skills("TABLE").unwrap().len(), 1);
        assert!(builtin_skill("nosuch").is_err() && check_catalogue("other").is_err());
        assert_eq!(builtin_skill("blank").unwrap().metadata["category"], "start");
    }
}
