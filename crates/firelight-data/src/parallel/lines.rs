//! Files with a text a line, alone or in pairs.

use std::path::Path;

use super::Pair;
use firelight_storage::InputError;

use crate::DataError;
use crate::text::{empty, line_not_utf8, read_bytes, without_mark};

/// Reads the lines of a file, empty ones too, without their ends.
///
/// A line ends with a line feed, with or without a carriage return before it; other separators of Unicode, such as U+2028,
/// are part of the line. A byte order mark is skipped.
///
/// # Errors
/// Fails if the file is missing, unreadable, empty, or not UTF-8 (with the line and the offset of the first wrong byte).
pub fn read_lines(path: impl AsRef<Path>) -> Result<Vec<String>, DataError> {
    let path = path.as_ref();
    let text = utf8(read_bytes(path)?, path)?;
    if text.is_empty() { Err(empty(path).into()) } else { Ok(split(&text)) }
}

/// The lines of what was read from `path`, as [`read_lines`] tells them apart; none if it is empty.
///
/// # Errors
/// Fails if it is not UTF-8, as [`read_lines`].
pub fn lines_of(bytes: Vec<u8>, path: &Path) -> Result<Vec<String>, DataError> {
    let text = utf8(bytes, path)?;
    Ok(if text.is_empty() { Vec::new() } else { split(&text) })
}

/// What was read from `path` as text, without its byte order mark.
fn utf8(bytes: Vec<u8>, path: &Path) -> Result<String, InputError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = sound.iter().filter(|byte| **byte == b'\n').count() + 1;
        line_not_utf8(path, line, 0, &error)
    });
    text.map(without_mark)
}

fn split(text: &str) -> Vec<String> {
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
    lines.map(|line| line.strip_suffix('\r').unwrap_or(line).to_owned()).collect()
}

/// Joins the lines of two files.
pub(super) fn pairs(source: &Path, target: &Path) -> Result<Vec<Pair>, DataError> {
    let (sources, targets) = (read_lines(source)?, read_lines(target)?);
    if sources.len() != targets.len() {
        let mut files = [(sources.len(), source), (targets.len(), target)];
        files.sort_unstable();
        return Err(unequal(files).into());
    }
    Ok(sources.into_iter().zip(targets).map(|(source, target)| Pair { source, target }).collect())
}

/// Two files of which the second has more lines.
fn unequal([(fewer, shorter), (more, longer)]: [(usize, &Path); 2]) -> InputError {
    let (next, shorter, named) = (fewer + 1, shorter.display(), longer.display());
    let problem = format!("has {more} lines, but `{shorter}` has {fewer}: line {next} of `{named}` has no partner");
    InputError::in_file(longer, problem).advise("give files whose lines belong together one by one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn lines_are_kept_with_the_empty_ones() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a");
        let lines = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read_lines(&path)
        };
        assert_eq!(lines(b"a\n\n b \r\n\nc").unwrap(), ["a", "", " b ", "", "c"]);
        assert_eq!(lines(b"\n").unwrap(), [""]);
        assert_eq!(lines("\u{feff}a\r".as_bytes()).unwrap(), ["a"]);
        for nothing in ["\u{feff}", ""] {
            assert!(lines(nothing.as_bytes()).unwrap_err().to_string().ends_with("a` is empty: give a file with text"));
        }
        assert!(lines_of(Vec::new(), &path).unwrap().is_empty());
        let problem = "is not UTF-8 text: the byte at offset 6 of the file is 0xff; convert the file to UTF-8";
        let error = lines(b"ab\n\xc3\xa9x\xffy\n").unwrap_err().to_string();
        assert_eq!(error, format!("line 2 of `{}` {problem}", path.display()));
        assert!(read_lines(home.path().join("b")).unwrap_err().to_string().starts_with("there is no file `"));
    }

    #[test]
    fn files_of_different_lengths_are_refused_with_both() {
        let home = tempfile::tempdir().unwrap();
        let [de, en] = ["a.de", "a.en"].map(|name| home.path().join(name));
        fs::write(&de, "1\n2\n3\n").unwrap();
        fs::write(&en, "1\n2").unwrap();
        let (longer, shorter) = (de.display(), en.display());
        let expected = format!("`{longer}` has 3 lines, but `{shorter}` has 2: line 3 of `{longer}` has no partner; ");
        assert!(pairs(&de, &en).unwrap_err().to_string().starts_with(&expected));
        assert!(pairs(&en, &de).unwrap_err().to_string().contains(&format!("line 3 of `{longer}` has no partner")));
    }

    proptest! {
        #[test]
        fn what_is_written_line_by_line_is_read_line_by_line(
            lines in prop::collection::vec("[a-z\u{e9}\u{85}\u{2029} \t]{0,6}", 1..20), ends_with_return: bool,
        ) {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a");
            let end = if ends_with_return { "\r\n" } else { "\n" };
            fs::write(&path, lines.iter().map(|line| format!("{line}{end}")).collect::<String>()).unwrap();
            prop_assert_eq!(read_lines(&path).unwrap(), lines);
        }
    }
}
