//! Which archives apt uses: sources.list in both formats. apt has nothing built in.

use super::{
    Found,
    index::{Index, Role, Tool},
    tool_location::ToolLocation,
};

/// `deb [options] uri suite component …`
fn line(text: &str) -> Option<&str> {
    let text = text.split('#').next()?.trim();
    let rest = text.strip_prefix("deb-src").or_else(|| text.strip_prefix("deb"))?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(options) => options.split_once(']')?.1,
        None => rest,
    };
    rest.split_whitespace().next()
}

/// Paragraphs of `Field: value`; a line that begins with a blank continues the field before it.
fn paragraphs(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in blocks(text) {
        let mut uris: Vec<String> = Vec::new();
        let mut field = "";
        let mut enabled = true;
        for line in paragraph {
            let value = if line.starts_with([' ', '\t']) {
                line
            } else {
                let Some((name, value)) = line.split_once(':') else { continue };
                field = name.trim();
                value
            };
            if field.eq_ignore_ascii_case("uris") {
                uris.extend(value.split_whitespace().map(str::to_owned));
            }
            let no = ["no", "false", "off", "without", "disable", "0"];
            if field.eq_ignore_ascii_case("enabled")
                && no.contains(&value.trim().to_ascii_lowercase().as_str())
            {
                enabled = false;
            }
        }
        if enabled {
            found.append(&mut uris);
        }
    }
    found
}

pub(super) fn blocks(text: &str) -> Vec<Vec<&str>> {
    let mut blocks = vec![Vec::new()];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.trim().is_empty() {
            blocks.push(Vec::new());
        } else if let Some(block) = blocks.last_mut() {
            block.push(line);
        }
    }
    blocks
}

/// What apt uses here.
pub(super) fn find(place: &ToolLocation) -> Found {
    let lists =
        [vec!["/etc/apt/sources.list".to_owned()], place.tree.paths("/etc/apt/sources.list.d/*.list")];
    let mut found = Found::default();
    for text in lists.concat().iter().filter_map(|path| place.tree.text(path)) {
        found.add_all(text.lines().filter_map(|l| Index::read(Tool::Apt, Role::Main, line(l)?)));
    }
    let sources = place.tree.paths("/etc/apt/sources.list.d/*.sources");
    for text in sources.iter().filter_map(|path| place.tree.text(path)) {
        found.add_all(paragraphs(&text).iter().filter_map(|uri| Index::read(Tool::Apt, Role::Main, uri)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::trial::Trial, *};

    #[test]
    fn both_formats_read_and_comments_do_not() {
        let trial = Trial::new(&[
            (
                "etc/apt/sources.list",
                "# deb http://no.example/debian x main\ndeb http://a.example/debian stable main # https://no.example\ndeb-src [arch=amd64 signed-by=/x] https://b.example/debian stable main\ndebug http://no.example/ x\ndeb cdrom:[x]/ stable main\n",
            ),
            ("etc/apt/sources.list.d/c.list", "deb mirror+http://c.example/list stable main\n"),
            ("etc/apt/sources.list.d/c.list.save", "deb http://no.example/ stable main\n"),
            (
                "etc/apt/sources.list.d/d.sources",
                "Types: deb\n# http://no.example\nURIs: http://d.example/debian\n  http://e.example/debian\nSuites: x\n\nTypes: deb\nEnabled: no\nURIs: http://no.example/debian\n\nuris: http://f.example\n",
            ),
        ]);
        let expected = [
            "http://a.example/debian",
            "https://b.example/debian",
            "http://c.example/list",
            "http://d.example/debian",
            "http://e.example/debian",
            "http://f.example/",
        ];
        assert_eq!(find(&trial.machine(&[])).urls(), expected);
    }

    #[test]
    fn nonsense_and_nothing_are_nothing() {
        let trial = Trial::new(&[
            ("etc/apt/sources.list", "deb\ndeb [\ndeb [x]\ndeb x\n"),
            ("etc/apt/sources.list.d/x.sources", ":\n x\nURIs\nURIs:\n"),
        ]);
        assert_eq!(find(&trial.machine(&[])).indexes, []);
    }
}
