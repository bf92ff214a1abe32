//! Relative links of Markdown: where they stand, what they name, and whether that is there. A small reader of the forms that the
//! documents use, `[text](target)`, `![text](target)` and `href="target"`; code is passed over.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// What stands in front of a target, and the character that ends it.
const FORMS: [(&str, char); 3] = [("](", ')'), ("href=\"", '"'), ("src=\"", '"')];

/// A link of a page.
#[derive(Debug, PartialEq)]
pub(crate) struct Link {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) target: String,
    /// Where the target stands in the page, in bytes.
    place: Range<usize>,
}

/// All links of a page, also those that leave the repository.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let prose = without_code(text);
    let mut found = Vec::new();
    for (form, end) in FORMS {
        for (at, _) in prose.match_indices(form) {
            let start = at + form.len();
            let Some(length) = prose[start..].find(end) else { continue };
            let target = prose[start..start + length].split_whitespace().next().unwrap_or(""); // A title may follow.
            let line = prose[..start].matches('\n').count() + 1;
            found.push(Link { line, target: target.to_string(), place: start..start + target.len() });
        }
    }
    found.sort_by_key(|link| link.place.start);
    found
}

/// What is wrong with the relative links of a page: a line for each.
pub(crate) fn problems(root: &Path, page: &Path, text: &str) -> Vec<String> {
    let name = page.strip_prefix(root).unwrap_or(page).display();
    let wrong = |link: Link| {
        let problem = problem(root, page, text, &link.target).or_else(|| lacking(page, text, &link))?;
        Some(format!("{name}:{}: link `{}`: {problem}", link.line, link.target))
    };
    links(text).into_iter().filter_map(wrong).collect()
}

fn problem(root: &Path, page: &Path, text: &str, target: &str) -> Option<String> {
    if leaves_the_repository(target) {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let there = match file {
        "" => text.to_string(),
        file => {
            let path = resolved(page, file);
            if !path.starts_with(root) || !path.exists() {
                return Some("no such file: mend the path".to_string());
            }
            if path.extension().is_none_or(|extension| extension != "md") {
                return None;
            }
            fs::read_to_string(&path).unwrap_or_default()
        }
    };
    let is_there = anchor.is_empty() || anchors(&there).contains(anchor);
    (!is_there).then(|| "the page has no heading of that name: mend what follows the #".to_string())
}

/// What is wrong with a link to a source file that is called by a name in it, such as a test.
fn lacking(page: &Path, text: &str, link: &Link) -> Option<String> {
    let name = called(&text[..link.place.start])?;
    let path = resolved(page, &link.target);
    if path.extension().is_none_or(|extension| extension != "rs") {
        return None;
    }
    let source = fs::read_to_string(&path).unwrap_or_default();
    let is_there = source.split(|c: char| !is_of_name(c)).any(|word| word == name);
    (!is_there).then(|| format!("the file has no `{name}`: mend the name or the path"))
}

/// The name that stands alone between back-ticks in front of a target.
fn called(before: &str) -> Option<&str> {
    let (_, name) = before.strip_suffix("`](")?.rsplit_once("[`")?;
    (!name.is_empty() && name.chars().all(is_of_name)).then_some(name)
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The page with its links out of `docs` made links into the repository on the web.
pub(crate) fn outward(root: &Path, docs: &str, page: &Path, text: &str, repository: &str) -> String {
    let mut text = text.to_string();
    for link in links(&text).into_iter().rev() {
        let path = resolved(page, &link.target);
        if leaves_the_repository(&link.target) || link.target.starts_with('#') || path.starts_with(root.join(docs)) {
            continue;
        }
        if let Ok(inside) = path.strip_prefix(root) {
            text.replace_range(link.place, &format!("{repository}/{}", inside.display()));
        }
    }
    text
}

fn leaves_the_repository(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The file that a link names, without the `..` in its path.
fn resolved(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_path_buf();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// The names by which links reach the headings of a page, as both GitHub and mdBook make them.
fn anchors(text: &str) -> HashSet<String> {
    let mut seen = HashMap::<String, usize>::new();
    let mut found = HashSet::new();
    for heading in headings(text) {
        let anchor = anchor(&heading);
        let count = seen.entry(anchor.clone()).or_default();
        found.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    found
}

fn headings(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        is_code ^= is_fence(line);
        let rest = line.trim_start_matches('#');
        if !is_code && rest.len() < line.len() && rest.starts_with(' ') {
            found.push(rest.trim().to_string());
        }
    }
    found
}

/// Lower case, letters, digits, `-` and `_`; blanks become `-`. Of a link in a heading its text counts.
fn anchor(heading: &str) -> String {
    let mut plain = String::new();
    let mut rest = heading;
    while let Some((before, after)) = rest.split_once("](") {
        plain.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let kept = plain.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn is_fence(line: &str) -> bool {
    line.trim_start().starts_with("```")
}

/// The page with blanks in the place of all code, so that every other byte keeps its place.
fn without_code(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.split_inclusive('\n') {
        let fence = is_fence(line);
        if is_code || fence {
            prose.push_str(&blank(line));
        } else {
            prose.push_str(&without_spans(line));
        }
        is_code ^= fence;
    }
    prose
}

/// A line with blanks in the place of what stands between back-ticks.
fn without_spans(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let last = parts.len() - 1;
    let shown = |(i, part): (usize, &&str)| if i % 2 == 1 && i < last { blank(part) } else { (*part).to_string() };
    parts.iter().enumerate().map(shown).collect::<Vec<_>>().join("`")
}

/// As many bytes.
fn blank(text: &str) -> String {
    text.chars().map(|c| if c == '\n' { "\n".to_string() } else { " ".repeat(c.len_utf8()) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<(usize, String)> {
        links(text).into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn links_are_found_and_code_is_not() {
        let text = "[a](b.md#c) ![p](d.svg \"title\")\n`x[i](j)` é [k\nl](m.md)\n```text\n[no](no.md)\n```\n<img src=\"n.png\">\n";
        let expected = [(1, "b.md#c"), (1, "d.svg"), (3, "m.md"), (7, "n.png")];
        assert_eq!(targets(text), expected.map(|(line, target)| (line, target.to_string())));
    }

    #[test]
    fn a_lone_back_tick_hides_nothing() {
        assert_eq!(targets("a ` b [c](d.md)"), [(1, "d.md".to_string())]);
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let text = "# What's new, in `fit`?\n## Same\n## Same\n```sh\n# no heading\n```\n### A [link](x.md) here\n";
        let expected = ["whats-new-in-fit", "same", "same-1", "a-link-here"].map(String::from);
        assert_eq!(anchors(text), HashSet::from(expected));
    }

    #[test]
    fn what_leads_nowhere_is_told_with_its_line() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        fs::write(root.join("there.md"), "# One\n").unwrap();
        let text = "# Own\n[a](../there.md#one) [b](#own) [c](https://x.org/y)\n[d](gone.md) [e](../there.md#two) [f](#no)\n\
                    [g](../../outside.md)\n";
        let found = problems(root, &root.join("docs/page.md"), text);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[0].starts_with("docs/page.md:3: link `gone.md`: no such file"), "{}", found[0]);
        assert!(found[1].contains("#two`") && found[2].contains("`#no`"), "{found:?}");
        assert!(found[3].starts_with("docs/page.md:4"), "{}", found[3]);
    }

    #[test]
    fn a_name_that_its_source_file_lacks_is_told() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("a.rs"), "fn there_is() {}\n").unwrap();
        let text = "[`there_is`](a.rs) [`there`](a.rs) [`a.rs`](a.rs) [there](a.rs)\n";
        let found = problems(home.path(), &home.path().join("page.md"), text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("the file has no `there`"), "{}", found[0]);
    }

    #[test]
    fn links_out_of_the_book_become_addresses() {
        let root = Path::new("/clone");
        let text = "[in](../b.md#c) [out](../../README.md) é [own](#x) [web](https://x.org)";
        let found = outward(root, "docs", Path::new("/clone/docs/how-to/a.md"), text, "https://example.org");
        assert_eq!(found, "[in](../b.md#c) [out](https://example.org/README.md) é [own](#x) [web](https://x.org)");
    }
}
