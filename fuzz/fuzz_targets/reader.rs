//! Tries the reader that the environment variable `FIRELIGHT_READER` names with what the engine finds.
#![no_main]

use std::cell::OnceCell;

use firelight_tests::inputs::{Harness, readers};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

thread_local! {
    static HARNESS: OnceCell<(Harness, TempDir)> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| {
    HARNESS.with(|harness| {
        let (harness, _) = harness.get_or_init(prepare);
        if let Err(what) = harness.check(bytes) {
            eprintln!("{what}");
            std::process::abort();
        }
    });
});

fn prepare() -> (Harness, TempDir) {
    let name = std::env::var("FIRELIGHT_READER").expect("FIRELIGHT_READER names a reader");
    let reader = readers().into_iter().find(|reader| reader.name == name);
    let home = tempfile::tempdir().expect("a scratch folder");
    std::panic::set_hook(Box::new(|_| {})); // The harness judges panics, and the engine would end at once.
    (Harness::new(reader.expect("a known reader"), home.path()).expect("valid inputs are read"), home)
}
