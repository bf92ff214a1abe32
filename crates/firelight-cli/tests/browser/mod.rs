//! The report of a run, opened in a real browser.

use std::fs;
use std::process::Command;

use crate::support::{Model, firelight, model, train};

/// Opens a page in headless Chromium and returns its document after the scripts have run, and what the browser complained
/// about; none where there is no Chromium.
fn open(page: &std::path::Path) -> Option<(String, String)> {
    let home = Model::scratch();
    let profile = format!("--user-data-dir={}", home.path().display());
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
    let output = Command::new("chromium")
        .args(flags)
        .args(["--disable-sync", "--disable-quic", "--enable-logging=stderr", "--v=0", "--dump-dom", &profile])
        .arg(format!("file://{}", page.display()))
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some((String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned()))
        }
        Err(_) => None,
    }
}

#[test]
fn the_report_of_a_run_opens_whole_and_loads_nothing() {
    let scratch = Model::scratch();
    let trained = firelight(train(model(), scratch.path())).succeeds();
    let page = scratch.path().join("report.html");
    assert!(trained.stderr.contains(&format!("report: {}", page.display())), "{}", trained.stderr);
    let written = fs::read_to_string(&page).unwrap();
    assert!(!written.contains("src=") && !written.contains("href="), "the page would load something");

    let Some((document, complaints)) = open(&page) else {
        eprintln!("skipped: there is no `chromium` to open the report in");
        return;
    };
    for text in ["Loss", "Learning rate", "Norm of the gradients before clipping", "validation loss", "d_model = 16"] {
        assert!(document.contains(text), "`{text}` is not in the page");
    }
    assert!(document.matches("<polyline").count() >= 5, "a curve is missing");
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
}
