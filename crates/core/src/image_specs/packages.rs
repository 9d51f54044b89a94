//! The packages that images can be built with, from a table that ships. It says what there is and what it is for; which
//! version an image gets is decided when it is built.

use atoll_types::{names, text::TextRule};
use std::{collections::BTreeMap, sync::LazyLock};

names!(
    /// What installs a package.
    PackageManager {
        /// Debian's apt.
        Debian = "debian",
        /// Python's pip.
        Pip = "pip",
        /// Node's npm.
        Npm = "npm",
        /// R, from Debian's `r-cran-NAME`.
        R = "r",
    }
);

/// What is searched for.
pub const PACKAGE_SEARCH: TextRule = TextRule::new(0, 100, atoll_types::text::CONTROL);

/// A package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CataloguePackage {
    pub manager: PackageManager,
    pub name: &'static str,
    pub category: &'static str,
    pub description: &'static str,
}

fn read(line: &'static str) -> Option<CataloguePackage> {
    let mut fields = line.split('\t');
    let mut next = || fields.next().filter(|field| !field.is_empty());
    Some(CataloguePackage {
        manager: PackageManager::from_name(next()?)?,
        name: next()?,
        category: next()?,
        description: next()?,
    })
}

/// All of them.
pub(crate) static PACKAGES: LazyLock<Vec<CataloguePackage>> =
    LazyLock::new(|| include_str!("packages.tsv").lines().filter_map(read).collect());

/// Packages by category, with this text in their name or description, in this category, of this manager.
#[must_use]
pub fn packages(
    search: &str,
    category: Option<&str>,
    manager: Option<PackageManager>,
) -> BTreeMap<&'static str, Vec<CataloguePackage>> {
    let search = search.trim().to_lowercase();
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for package in PACKAGES.iter().copied() {
        let has = |text: &str| text.to_lowercase().contains(&search);
        let named = category.is_none_or(|category| package.category.eq_ignore_ascii_case(category));
        if named
            && manager.is_none_or(|of| package.manager == of)
            && (has(package.name) || has(package.description))
        {
            found.entry(package.category).or_default().push(package);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_is_a_package_and_none_is_there_twice() {
        let lines = include_str!("packages.tsv").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), PACKAGES.len());
        let names: BTreeSet<_> = PACKAGES.iter().map(|p| (p.manager.as_str(), p.name)).collect();
        assert_eq!(names.len(), PACKAGES.len());
        for package in PACKAGES.iter() {
            assert!(atoll_types::packages::is_template_package(package.name), "{package:?}");
            assert!(!package.description.ends_with('.') && package.description.len() < 80, "{package:?}");
        }
    }

    #[test]
    fn packages_are_found_by_text_category_and_manager() {
        let names = |found: BTreeMap<&str, Vec<CataloguePackage>>| -> Vec<&str> {
            found.into_values().flatten().map(|package| package.name).collect()
        };
        assert_eq!(names(packages("PANDAS", None, None)), ["pandas"]);
        let charts = packages("", Some("Charts"), Some(PackageManager::R));
        assert_eq!(charts.keys().collect::<Vec<_>>(), [&"charts"]);
        assert!(names(charts).contains(&"ggplot2"));
        assert!(packages("no such thing", None, None).is_empty());
        assert_eq!(packages("", None, None).values().map(Vec::len).sum::<usize>(), PACKAGES.len());
    }
}
