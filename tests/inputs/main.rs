//! Damaged input: what readers were once found to stumble over, and cases that are mutated from valid ones anew under fixed
//! seeds. `FIRELIGHT_MUTATIONS` says how many for each reader. What a case may take is said in `limits.rs`.

mod limits;

use std::fs;
use std::panic;
use std::path::Path;

use firelight_tests::inputs::{Harness, Reader, mutated, readers};

/// How many cases a reader is tried with if `FIRELIGHT_MUTATIONS` does not say so.
const CASES: u64 = 500;

/// Tries every reader with what `inputs` gives for it, and lists all that it does wrong.
fn try_readers(title: &str, inputs: impl Fn(&Reader, &Harness) -> Vec<(String, Vec<u8>)>) -> usize {
    let _alone = limits::alone();
    panic::set_hook(Box::new(|_| {})); // A panic of a reader is a finding, and listed as one.
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for reader in readers() {
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(title).join(reader.name);
        drop(fs::remove_dir_all(&home)); // what an aborted run left
        fs::create_dir_all(&home).expect("a scratch folder");
        let harness = match Harness::new(reader.clone(), &home) {
            Ok(harness) => harness,
            Err(what) => {
                wrong.push(format!("{}: {what}", reader.name));
                continue;
            }
        };
        for (name, bytes) in inputs(&reader, &harness) {
            tried += 1;
            let case = format!("{} {name}", reader.name);
            if let Err(what) = limits::within(&case, || harness.check(&bytes)) {
                wrong.push(format!("{case}: {what}"));
            }
        }
        fs::remove_dir_all(&home).expect("a scratch folder");
    }
    drop(panic::take_hook()); // What fails from here on is told.
    eprintln!("{} of {tried} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrong.is_empty());
    tried
}

#[test]
fn mutated_inputs_are_read_or_refused() {
    let cases = std::env::var("FIRELIGHT_MUTATIONS").map_or(CASES, |text| text.parse().expect("a number of cases"));
    let tried = try_readers("mutated", |_, harness| {
        (0..cases).map(|case| (format!("case {case}"), mutated(&harness.valid, case))).collect()
    });
    assert!(tried > 0);
    assert_eq!(tried, readers().len() * cases as usize);
}

#[test]
fn what_was_found_once_is_not_found_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs/found");
    let tried = try_readers("found", |reader, _| {
        let files = fs::read_dir(folder.join(reader.name)).into_iter().flatten().flatten();
        files
            .map(|file| (file.file_name().to_string_lossy().into_owned(), fs::read(file.path()).expect("an input")))
            .collect()
    });
    let kept: usize = fs::read_dir(&folder)
        .expect("the folder of findings")
        .flatten()
        .map(|reader| fs::read_dir(reader.path()).expect("a reader's findings").count())
        .sum();
    assert!(kept > 0);
    assert_eq!(tried, kept, "every folder of findings has the name of a reader");
}
