use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

fn read_as(name: &str, content: impl AsRef<[u8]>, columns: &[&str]) -> Result<Vec<Record>, DataError> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(name);
    fs::write(&path, content).unwrap();
    Records::open(&path, columns)?.collect()
}

fn message(name: &str, content: impl AsRef<[u8]>, columns: &[&str], take: impl Fn(&Record) -> DataError) -> String {
    let error = match read_as(name, content, columns) {
        Ok(records) => take(&records[0]),
        Err(error) => error,
    };
    assert!(error.is_user_error());
    error.to_string()
}

fn refused(name: &str, content: impl AsRef<[u8]>, columns: &[&str]) -> String {
    message(name, content, columns, |_| panic!("it was read"))
}

fn texts(records: &[Record], column: &str) -> Vec<(String, usize)> {
    records.iter().map(|record| (record.text(column).unwrap(), record.line())).collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/records").join(name)
}

#[test]
fn tables_have_names_or_numbers() {
    let records = read_as("a.tsv", "\u{feff}x\ty\r\n\"a\t1\n\nb\t\n", &["y", "0"]).unwrap();
    assert_eq!(texts(&records, "y"), [("1".into(), 2), (String::new(), 4)]);
    assert_eq!(texts(&records, "0"), [("\"a".into(), 2), ("b".into(), 4)], "counted beside the name of another one");
    let records = read_as("a.tsv", "x\ty\na\t1\n", &["1"]).unwrap();
    assert_eq!(texts(&records, "1"), [("y".into(), 1), ("1".into(), 2)], "no header");
}

#[test]
fn wrong_tables_are_refused_with_the_line_and_the_columns_that_there_are() {
    let one = refused("a.tsv", "only a text\nanother\n", &["0", "1"]);
    assert!(one.starts_with("line 1 of `") && one.contains("one column") && one.contains("separated by tabs"), "{one}");
    let unequal = refused("a.tsv", "a\t1\n\nb\t0\tc\n", &["0", "1"]);
    assert!(unequal.starts_with("line 3 of `") && unequal.contains("has 3 columns separated by tabs"), "{unequal}");
    assert!(refused("a.tsv", "x\ty\na\t1\n", &["text", "y"]).contains("its columns are x, y;"));
    let text = "\u{e9}".repeat(1_000_000);
    let long = refused("a.tsv", format!("y\t{text}\na\t1\n"), &["text", "y"]);
    assert!(long.contains(&format!("are y, {}...;", &text[..160])), "{long}");
    assert!(refused("a.tsv", "a\t1\nb\t2\n", &["2", "1"]).contains("no column 2"));
    assert!(refused("a.tsv", b"a\tb\n\xc3\xa9\xff\td\n", &["0"]).contains("line 2 of `"));
    assert!(refused("a.tsv", b"a\tb\n\xc3\xa9\xff\td\n", &["0"]).contains("offset 6 of the file is 0xff"));
    assert!(refused("a.txt", "a", &["0"]).contains("expected .tsv, .csv, .jsonl or .parquet"));
    assert!(refused("a.tsv", "\u{feff}", &["0"]).contains("is empty"));
}

#[test]
fn nothing_comes_after_an_error() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.tsv");
    fs::write(&path, "a\t1\nb\nc\t3\n").unwrap();
    let mut records = Records::open(&path, &["0"]).unwrap();
    assert!(records.next().unwrap().is_ok() && records.next().unwrap().is_err());
    assert!(records.next().is_none());
}

#[test]
fn objects_hold_texts_numbers_and_lists() {
    let line = r#"{"a": "x", "b": [1, true, "y"], "c": -0.5, "d": {"e": [3, 4]}, "n": null}"#;
    let record = read_as("a.NDJSON", format!("\n{line}\n"), &[]).unwrap().remove(0);
    assert_eq!(
        (record.line(), record.text("a").unwrap(), record.spelling("c").unwrap()),
        (2, "x".into(), "-0.5".into())
    );
    assert_eq!(record.list("b").unwrap(), ["1", "true", "y"]);
    assert_eq!(
        (record.spellings("b", "|").unwrap(), record.spellings("a", "|").unwrap()),
        ("1|true|y".into(), "x".into())
    );
    assert_eq!(record.counts("/d/e").unwrap(), [3, 4]);
    let wrong = |error: DataError, part: &str| {
        let text = error.to_string();
        assert!(text.starts_with("line 2 of `") && text.contains(part), "{text}");
    };
    wrong(record.text("c").unwrap_err(), "its `c` is a number and not a text");
    wrong(record.spelling("b").unwrap_err(), "its `b` is an array and not a text");
    wrong(record.spellings("b", "r").unwrap_err(), "has `true`, which holds the separator `r`");
    wrong(record.list("n").unwrap_err(), "its `n` is null and not a list");
    wrong(record.list("/d").unwrap_err(), "its `/d` is an object and not a list");
    wrong(record.counts("b").unwrap_err(), "its `b` is not a list of whole numbers from 0");
    wrong(record.text("z").unwrap_err(), "lacks the key `z`: its keys are a, b, c, d, n;");
    assert!(refused("a.jsonl", "[1]", &[]).contains("it is an array and not a JSON object"));
    let cut = refused("a.jsonl", r#"{"source": "a", "#, &[]);
    assert!(cut.contains("no JSON at column 16: EOF while parsing"), "{cut}");
    let keys: String = (0..100_000).map(|key| format!("\"key {key}\": 0, ")).collect();
    let object = format!("{{{keys}\"{}\": 0}}", "x".repeat(100_000));
    let many = message("a.jsonl", object, &[], |record| record.text("source").unwrap_err());
    assert!(many.contains("its keys are key 0, ") && many.len() < 300, "{many}");
}

#[cfg(feature = "csv")]
#[test]
fn lines_of_csv_are_counted_through_line_feeds_in_quotes() {
    let records = read_as("a.csv", "\u{feff}a,1\n\"b\nb\",0\r\n\r\n\nc,1\rd,2", &["0", "1"]).unwrap();
    assert_eq!(texts(&records, "0"), [("a".into(), 1), ("b\nb".into(), 2), ("c".into(), 6), ("d".into(), 6)]);
    assert!(refused("a.csv", "a,1\n\"b,0\n", &["0"]).starts_with("line 2 of `"));
    assert!(refused("a.csv", "a,1\n\"b,0\n", &["0"]).contains("is never closed"));
    assert!(refused("a.csv", "a,1\n\"b\n\"c,0\n", &["0"]).contains("closes on line 3 in the middle of a value"));
}

#[cfg(feature = "csv")]
proptest! {
    #[test]
    fn csv_gives_back_what_was_written(
        rows in prop::collection::vec(["[a-c\",\n\r \u{e9}]{0,6}", "[a-c\",\n ]{1,4}"], 1..8)
    ) {
        let quoted = |value: &str| format!("\"{}\"", value.replace('"', "\"\""));
        let content: String = rows.iter().map(|[a, b]| format!("{},{}\n", quoted(a), quoted(b))).collect();
        let found = read_as("a.csv", content, &["0", "1"]).unwrap();
        let mut line = 1;
        for (record, [a, b]) in found.iter().zip(&rows) {
            prop_assert_eq!((record.text("0").unwrap(), record.text("1").unwrap(), record.line()), (a.clone(), b.clone(), line));
            line += 1 + a.matches('\n').count() + b.matches('\n').count();
        }
        prop_assert_eq!(found.len(), rows.len());
    }
}

#[cfg(feature = "parquet")]
mod parquet_files {
    use super::*;

    const COLUMNS: [&str; 6] = ["text", "label", "score", "is_good", "/translation/de", "/answers/text"];

    fn shown(record: &Record) -> String {
        let [text, label, score, is_good, nested, list] = COLUMNS;
        let texts = [record.text(text), record.spelling(label), record.spelling(score), record.spelling(is_good)];
        let texts: Vec<_> = texts.into_iter().map(Result::unwrap).collect();
        let counts = record.counts("/answers/answer_start").unwrap();
        format!("{texts:?} {} {:?} {counts:?}", record.text(nested).unwrap(), record.list(list).unwrap())
    }

    fn all(name: &str) -> Vec<String> {
        Records::open(&fixture(name), &COLUMNS).unwrap().map(|record| shown(&record.unwrap())).collect()
    }

    #[test]
    fn what_others_write_is_read_as_lines_of_json_are() {
        let expected = all("records.jsonl");
        assert_eq!(expected.len(), 6);
        for name in ["snappy.parquet", "zstd.parquet", "gzip.parquet", "plain.parquet", "unmarked.parquet"] {
            assert_eq!(all(name), expected, "{name}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_read_and_rows_are_counted() {
        let mut records = Records::open(&fixture("snappy.parquet"), &["text"]).unwrap();
        let last = records.by_ref().last().unwrap().unwrap();
        assert_eq!((last.text("text").unwrap(), last.line()), ("A dog.".into(), 6));
        let error = last.list("tokens").unwrap_err().to_string();
        assert!(error.starts_with("row 6 of `") && error.contains("its keys are text;"), "{error}");
        let error = Records::open(&fixture("snappy.parquet"), &["/meta/text"]).err().unwrap().to_string();
        assert!(error.contains("no column `meta`: its columns are text, label, score, is_good, tokens"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_whole_is_told() {
        let whole = fs::read(fixture("snappy.parquet")).unwrap();
        for cut in [0, 3, 8, whole.len() / 2, whole.len() - 1] {
            let error = refused("a.parquet", &whole[..cut], &["text"]);
            assert!(error.contains("a.parquet") && error.lines().count() == 1, "{error}");
        }
        let mut broken = whole.clone();
        broken[4..200].fill(0xff);
        assert!(refused("a.parquet", &broken, &["text"]).contains("cannot be read as Parquet"));
    }
}
