//! Which activations a pattern names, and which of them a misspelt path may have meant.

use wildmatch::WildMatch;

/// How many paths an error names.
const NAMED: usize = 3;

/// Whether `path` is one of those that `pattern` names: `*` stands for any text between two dots, `?` for one character.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let mut names = path.split('.');
    let all = pattern.split('.').all(|part| names.next().is_some_and(|name| WildMatch::new(part).matches(name)));
    all && names.next().is_none()
}

/// The paths nearest to `pattern`, the nearest first.
pub(super) fn nearest<'a>(pattern: &str, paths: &'a [String]) -> Vec<&'a str> {
    let mut paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    paths.sort_by_key(|path| distance(pattern, path)); // Stable: equally near ones stay in the order of the pass.
    paths.truncate(NAMED);
    paths
}

/// The fewest characters to insert, delete or replace (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, of_a) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, of_b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(of_a != *of_b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stays_between_its_dots() {
        assert!(matches("blocks.*.output", "blocks.11.output"));
        assert!(!matches("blocks.*.output", "blocks.1.attention.output"));
        assert!(!matches("blocks.1.*", "blocks.1.attention.output"));
        assert!(matches("blocks.?.*.output", "blocks.1.attention.output"));
        assert!(!matches("blocks.?.*.output", "blocks.11.attention.output"));
        assert!(!matches("blocks", "blocks.1"));
    }

    #[test]
    fn distances_are_counted_by_hand() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        let paths = ["embedding", "blocks.0.output", "blocks.1.output", "final_norm"].map(String::from);
        assert_eq!(nearest("blocks.2.output", &paths)[..2], ["blocks.0.output", "blocks.1.output"]);
        assert_eq!(nearest("final", &paths)[0], "final_norm");
    }
}
