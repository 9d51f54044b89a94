//! Which repositories R uses: `repos` in its profiles, the list of repositories that are on by default, or
//! the first mirror of the list that comes with R.

use super::{
    Found,
    index::{Index, Role, Tool},
    tool_location::ToolLocation,
};

/// R's own folders.
fn homes(place: &ToolLocation) -> Vec<String> {
    let mut homes: Vec<String> = place.variable("R_HOME").map(str::to_owned).into_iter().collect();
    for prefix in place.prefixes() {
        homes.extend([format!("{prefix}/lib/R"), format!("{prefix}/lib64/R")]);
    }
    homes.extend(place.tree.paths("/opt/R/*/lib/R"));
    homes
}

/// A line of R without its comment. A `#` inside of quotes is none.
fn code(line: &str) -> &str {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return &line[..at],
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            _ => {}
        }
    }
    line
}

/// URLs in quotes of the statements about `repos`. A profile is a program; what it computes cannot be known
/// without running it, and nothing of an image is run.
fn from_profile(text: &str) -> Vec<Index> {
    let mut found = Vec::new();
    // The brackets that are open since `repos`, for a list that goes over several lines.
    let mut open = 0_i32;
    for line in text.lines().map(code) {
        let at = if open > 0 { Some(0) } else { statement(line) };
        let Some(at) = at else { continue };
        let line = &line[at..];
        for part in line.split(['"', '\'']).filter(|p| p.starts_with("http")) {
            found.extend(Index::read(Tool::R, Role::Main, part));
        }
        open += line.matches('(').count() as i32 - line.matches(')').count() as i32;
        open = open.max(0);
    }
    found
}

/// Where a statement about repositories begins: `repos = …`, or `r["CRAN"] <- …`.
fn statement(line: &str) -> Option<usize> {
    let assigned = |at: &usize| {
        let rest = line[*at..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let rest = rest.trim_start_matches(['"', '\'', ']', ' ']);
        rest.starts_with('=') || rest.starts_with("<-")
    };
    line.find("repos").filter(assigned).or_else(|| line.find("CRAN").filter(assigned))
}

/// Lines of `name, menu name, URL, default …` with tabs between.
fn from_list(text: &str) -> Vec<Index> {
    let on = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let on = !line.starts_with('#') && fields.get(3).is_some_and(|f| f.trim() == "TRUE");
        fields.get(2).filter(|_| on).and_then(|url| Index::read(Tool::R, Role::Main, url))
    };
    text.lines().filter_map(on).collect()
}

/// The first mirror of the list that comes with R; it is the one that leads to all others.
fn from_mirrors(text: &str) -> Option<Index> {
    let first = text.lines().nth(1)?;
    let url = first.split(',').find(|field| field.starts_with("https://"))?;
    Index::built_in(Tool::R, url)
}

/// What R uses here.
pub(super) fn find(place: &ToolLocation) -> Found {
    let homes = homes(place);
    let below = |path: &str| homes.iter().map(|home| format!("{home}/{path}")).collect::<Vec<_>>();
    let mut profiles: Vec<String> = ["R_PROFILE", "R_PROFILE_USER"]
        .iter()
        .filter_map(|name| place.variable(name))
        .map(str::to_owned)
        .collect();
    profiles.extend(place.home(".Rprofile"));
    profiles.extend(below("etc/Rprofile.site"));
    profiles.push("/etc/R/Rprofile.site".to_owned());
    let mut found = Found::default();
    for text in profiles.iter().filter_map(|path| place.tree.text(path)) {
        found.add_all(from_profile(&text));
    }
    if !found.has_main() {
        let texts = below("etc/repositories").into_iter().filter_map(|path| place.tree.text(&path));
        found.add_all(texts.map(|text| from_list(&text)).find(|list| !list.is_empty()).into_iter().flatten());
    }
    let mut lists = below("doc/CRAN_mirrors.csv");
    lists.push("/usr/share/R/doc/CRAN_mirrors.csv".to_owned());
    let first = lists.iter().find_map(|path| from_mirrors(&place.tree.text(path)?));
    // Debian's profile names R's own first mirror: no operator chose that.
    for index in &mut found.indexes {
        index.built_in = first.as_ref().is_some_and(|first| first.url == index.url);
    }
    if !found.has_main() {
        found.add_all(first);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, *};

    const MIRRORS: &str = "Name,Country,City,URL,Host\n\"0-Cloud [https]\",0-Cloud,0-Cloud,https://cloud.example/,\"x, y\"\n\"Far\",X,Y,https://far.example/,z\n";

    #[test]
    fn profiles_tell() {
        for text in [
            "# options(repos = \"https://no.example\")\noptions(repos = c(CRAN = \"https://cran.example/x#y\")) # 'https://no.example'\n",
            "local({\n  r <- getOption(\"repos\")\n  r[\"CRAN\"] <- \"https://cran.example/x\"\n  options(repos = r)\n})\nurl <- \"https://no.example\"\n",
            "options(width = 3, repos = c(\n  CRAN = 'https://cran.example/x'\n))\nx <- 'https://no.example'\n",
        ] {
            let trial = Trial::new(&[
                ("usr/lib/R/etc/Rprofile.site", text),
                ("usr/share/R/doc/CRAN_mirrors.csv", MIRRORS),
            ]);
            assert_eq!(find(&trial.machine(&[])).urls(), ["https://cran.example/x"], "{text}");
        }
    }

    #[test]
    fn lists_that_come_with_r_tell_where_nothing_is_set() {
        let profile = ("etc/R/Rprofile.site", "# nothing\n");
        let list = "menu_name\tURL\tdefault\nCRAN\tCRAN\t@CRAN@\tTRUE\tTRUE\nX\tX\thttps://off.example\tFALSE\tTRUE\n";
        let trial = Trial::new(&[
            profile,
            ("usr/lib/R/etc/repositories", list),
            ("usr/lib/R/doc/CRAN_mirrors.csv", MIRRORS),
        ]);
        let found = find(&trial.machine(&[]));
        assert_eq!(found.urls(), ["https://cloud.example/"]);
        assert!(found.indexes[0].built_in);
        let list = list.replace("@CRAN@", "https://on.example");
        let trial =
            Trial::new(&[("usr/lib/R/etc/repositories", &list), ("usr/lib/R/doc/CRAN_mirrors.csv", MIRRORS)]);
        assert_eq!(find(&trial.machine(&[])).urls(), ["https://on.example/"]);
    }

    #[test]
    fn a_profile_that_names_the_first_mirror_chose_nothing() {
        let profile = "r[\"CRAN\"] <- \"https://cloud.example\"\n";
        let trial =
            Trial::new(&[("etc/R/Rprofile.site", profile), ("usr/share/R/doc/CRAN_mirrors.csv", MIRRORS)]);
        let found = find(&trial.machine(&[]));
        assert_eq!(found.urls(), ["https://cloud.example/"]);
        assert!(found.indexes[0].built_in);
    }

    #[test]
    fn nonsense_and_nothing_are_nothing() {
        let trial = Trial::new(&[
            ("root/.Rprofile", "repos=((((\nrepos = '\nCRAN\u{e9} = \"http\"\n"),
            ("usr/lib/R/doc/CRAN_mirrors.csv", "\n,,,"),
        ]);
        assert_eq!(find(&trial.machine(&[])).indexes, []);
    }
}
