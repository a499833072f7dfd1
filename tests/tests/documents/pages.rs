//! Pages in Markdown: their links, and the anchors that links can lead to.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Targets of links and images.
    pub(crate) links: Vec<String>,
    /// Anchors of headings, as GitHub and mdBook make them, and those that the page sets itself.
    pub(crate) anchors: BTreeSet<String>,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut fence: Option<&str> = None;
        let mut prose = String::new();
        let mut headings = HashMap::new();
        for line in text.lines() {
            let start = line.trim_start();
            let mark = ["```", "~~~"]
                .into_iter()
                .find(|mark| start.starts_with(mark));
            match (fence, mark) {
                (None, Some(_)) => fence = mark,
                (Some(open), Some(mark)) if open == mark => fence = None,
                (Some(_), _) => {}
                (None, None) => {
                    page.add_heading(line, &mut headings);
                    prose.push_str(line);
                    prose.push('\n');
                }
            }
        }
        let prose = without_code(&prose);
        page.add_links(&prose);
        for (at, mark) in prose.match_indices("<a id=\"") {
            let rest = &prose[at + mark.len()..];
            let id = rest.split('"').next().unwrap_or_default();
            page.anchors.insert(id.to_owned());
        }
        page
    }

    fn add_heading(&mut self, line: &str, before: &mut HashMap<String, usize>) {
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if !(1..=6).contains(&level) || !line[level..].starts_with(' ') {
            return;
        }
        let anchor = anchor(&line[level..]);
        let count = before.entry(anchor.clone()).or_default();
        self.anchors.insert(match *count {
            0 => anchor,
            n => format!("{anchor}-{n}"),
        });
        *count += 1;
    }

    /// `[text](target)`, `![text](target)`, `src="target"`, `href="target"`, and definitions.
    fn add_links(&mut self, prose: &str) {
        for (mark, end) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for (at, _) in prose.match_indices(mark) {
                let rest = &prose[at + mark.len()..];
                let target = &rest[..rest.find(end).unwrap_or(rest.len())];
                // A title may follow.
                let target = target.split_whitespace().next().unwrap_or_default();
                self.links.push(target.trim_matches(['<', '>']).to_owned());
            }
        }
        // `[label]: target`, for links that are written as `[label]`.
        let definitions = prose.lines().filter_map(|line| {
            let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
            (!label.contains(']')).then_some(target)
        });
        self.links
            .extend(definitions.map(|target| target.trim().to_owned()));
    }
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    // Of a link, its text.
    let mut rest = heading.trim();
    while let Some(at) = rest.find("](") {
        text.push_str(&rest[..at].replacen('[', "", 1));
        let after = &rest[at..];
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    text.chars()
        .filter_map(|c| match c {
            c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
            c if c.is_whitespace() => Some('-'),
            _ => None,
        })
        .collect()
}

/// The text without code between backticks.
fn without_code(text: &str) -> String {
    let mut without = String::new();
    for paragraph in text.split("\n\n") {
        for (number, part) in paragraph.split('`').enumerate() {
            if number % 2 == 0 {
                without.push_str(part);
            }
        }
        without.push_str("\n\n");
    }
    without
}

#[test]
fn anchors_are_those_of_both() {
    for (heading, expected) in [
        ("## `record`", "record"),
        (
            "## Control file system (type `ltt`, at `/sys`)",
            "control-file-system-type-ltt-at-sys",
        ),
        ("# A [link](x.md) & more", "a-link--more"),
    ] {
        let page = Page::parse(heading);
        assert!(page.anchors.contains(expected), "{page:?}");
    }
    let twice = Page::parse("# A\n\n# A\n");
    assert!(twice.anchors.contains("a-1"), "{twice:?}");
}

#[test]
fn a_page_can_set_anchors() {
    let page = Page::parse("| <a id=\"root-page\"></a>root page | `<a id=\"none\">` |\n");
    assert_eq!(page.anchors, BTreeSet::from(["root-page".to_owned()]));
}

#[test]
fn definitions_are_links() {
    let page = Page::parse("A [ring], and [no]: link.\n\n[ring]: glossary.md#ring\n");
    assert_eq!(page.links, ["glossary.md#ring"]);
}

#[test]
fn links_in_code_are_none() {
    let page = Page::parse("[a](b.md#c)\n\n```text\n[x](y)\n```\n\n`[x](y)` ![p](q.png)\n");
    assert_eq!(page.links, ["b.md#c", "q.png"]);
}
