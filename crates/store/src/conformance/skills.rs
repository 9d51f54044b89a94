//! Skills of owners, and those that sandboxes have.

use super::{NOW, Outcome, Shared, add, ensure, read, same, sandbox};
use crate::{Change, NewSandbox, SandboxId, Sha256, Status, StoreError, Thing};
use atoll_types::{InstalledSkill, SkillId, SkillName, SkillQuery, SkillRecord, SkillSource};

fn name(text: &str) -> SkillName {
    text.parse().unwrap_or_else(|_| unreachable!("a name"))
}

fn skill(owner: &str, called: &str, digest: u8) -> SkillRecord {
    SkillRecord {
        id: SkillId::random(),
        owner: owner.into(),
        owner_name: "Ada".into(),
        name: name(called),
        description: format!("Does {called}, \"100%\" of Ünïcode_"),
        source: SkillSource::Upload,
        metadata: r#"{"license":"MIT"}"#.into(),
        digest: Sha256([digest; 32]),
        package_bytes: 1000 + u64::from(digest),
        files: 3,
        created_at: NOW,
        updated_at: NOW + 1,
    }
}

fn query(owner: Option<&str>) -> SkillQuery {
    SkillQuery { owner: owner.map(str::to_owned), limit: 100, ..SkillQuery::default() }
}

pub(super) async fn a_skill_is_its_owners_by_name(store: Shared) -> Outcome {
    let (first, second) = (skill("owner", "beta", 1), skill("owner", "alpha", 2));
    for one in [&first, &second] {
        same("inserted", store.insert_skill(one.clone()).await?, None)?;
        same("it", store.skill(one.id).await?, Some(one.clone()))?;
    }
    let again = store.insert_skill(skill("owner", "beta", 3)).await?;
    same("a name is taken", again, Some(first.clone()))?;
    let others = skill("another", "beta", 1);
    same("another's name is free", store.insert_skill(others.clone()).await?, None)?;
    let own = store.skills(&query(Some("owner"))).await?;
    same("an owner's", (own.items, own.total), (vec![second.clone(), first.clone()], 2))?;
    let all = store.skills(&query(None)).await?;
    same("all", (all.items, all.total), (vec![second.clone(), others.clone(), first.clone()], 3))?;
    same("usage", store.skill_usage("owner").await?, (2, 2003))?;
    same("of nobody", store.skill_usage("nobody").await?, (0, 0))?;
    let renamed = SkillRecord { name: name("alpha"), ..first.clone() };
    same("a name is taken", store.update_skill(renamed).await?, Some(second))?;
    same("as it was", store.skill(first.id).await?, Some(first.clone()))?;
    let changed = SkillRecord { name: name("gamma"), digest: Sha256([9; 32]), package_bytes: 7, ..first };
    same("changed", store.update_skill(changed.clone()).await?, None)?;
    same("it", store.skill(changed.id).await?, Some(changed.clone()))?;
    for (digest, there) in [(1, true), (2, true), (9, true), (3, false)] {
        same("a package", store.has_package(Sha256([digest; 32])).await?, there)?;
    }
    same("deleted", store.delete_skill(others.id).await?, true)?;
    same("once", store.delete_skill(others.id).await?, false)?;
    same("its package", store.has_package(Sha256([1; 32])).await?, false)?;
    let gone = store.update_skill(others).await;
    ensure(matches!(gone, Err(StoreError::NotFound(Thing::Skill))), || format!("got {gone:?}"))
}

pub(super) async fn skills_are_found_and_paged(store: Shared) -> Outcome {
    for (number, called) in ["one", "two", "three", "four"].into_iter().enumerate() {
        let source = if number == 0 { SkillSource::Manual } else { SkillSource::Upload };
        store.insert_skill(SkillRecord { source, ..skill("owner", called, 1) }).await?;
    }
    let names = async |query: SkillQuery| {
        let page = store.skills(&query).await?;
        let names: Vec<String> = page.items.into_iter().map(|one| one.name.into()).collect();
        Ok::<_, super::Failure>((names.join(" "), page.total))
    };
    let search = |text: &str| SkillQuery { search: Some(text.into()), ..query(Some("owner")) };
    same("a name", names(search("O")).await?, ("four one three two".into(), 4))?;
    same("a description", names(search("does ONE")).await?, ("one".into(), 1))?;
    same("plain text", names(search("%\" OF")).await?.1, 4)?;
    same("no pattern", names(search("d%s")).await?.1, 0)?;
    let manual = SkillQuery { source: Some(SkillSource::Manual), ..query(None) };
    same("a source", names(manual).await?, ("one".into(), 1))?;
    let page = |offset, limit| SkillQuery { offset, limit, ..query(None) };
    same("a page", names(page(1, 2)).await?, ("one three".into(), 4))?;
    same("behind the last", names(page(9, 2)).await?, (String::new(), 4))
}

pub(super) async fn a_sandbox_has_the_skills_that_were_installed(store: Shared) -> Outcome {
    let installed = |called: &str, digest, at| InstalledSkill {
        id: SkillId::random(),
        name: name(called),
        digest: Sha256([digest; 32]),
        installed_at: at,
    };
    let (first, second) = (installed("first", 1, NOW), installed("second", 1, NOW + 5));
    let record = add(&store, NewSandbox { skills: vec![first.clone()], ..sandbox() }).await?;
    store.install_skill(record.id, second.clone()).await?;
    let now = read(&store, record.id).await?;
    same("both", (now.skills, now.revision), (vec![first.clone(), second.clone()], record.revision))?;
    let newer = InstalledSkill { installed_at: NOW + 9, ..installed("first", 2, NOW) };
    store.install_skill(record.id, newer.clone()).await?;
    // A change of the sandbox leaves them.
    let change = Change { idle_timeout_seconds: Some(77), ..Change::default() };
    let changed = store.update_sandbox(record.id, record.revision, change).await?;
    same("one of each name", changed.skills, vec![second.clone(), newer])?;
    store.set_skills(record.id, vec![second.clone(), first.clone()]).await?;
    same("those of a snapshot", read(&store, record.id).await?.skills, vec![second.clone(), first])?;
    store.set_skills(SandboxId::random(), Vec::new()).await?;
    let unknown = store.install_skill(SandboxId::random(), second.clone()).await;
    ensure(matches!(unknown, Err(StoreError::NotFound(Thing::Sandbox))), || format!("got {unknown:?}"))?;
    store.update_sandbox(record.id, changed.revision, Change::status(Status::Destroyed)).await?;
    let destroyed = store.install_skill(record.id, second).await;
    ensure(matches!(destroyed, Err(StoreError::NotFound(Thing::Sandbox))), || format!("got {destroyed:?}"))
}
