//! The report of a run, opened in a real browser.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Model, firelight, model, output_if_installed, train};

/// Opens a page in headless Chromium, to do with it what `wish` says; none where there is no Chromium.
pub(super) fn open(page: &Path, wish: &[&str]) -> Option<Output> {
    let home = Model::scratch();
    let profile = format!("--user-data-dir={}", home.path().display());
    let flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
    let mut browser = Command::new("chromium");
    browser.args(flags).args(["--disable-sync", "--disable-quic", "--enable-logging=stderr", "--v=0", &profile]);
    let output = output_if_installed(browser.args(wish).arg(format!("file://{}", page.display())))?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

/// The end of a page that does what a hand would and writes down what it reads.
const HAND: &str = r##"<pre id="found"></pre><script>
(async () => {
  while (!document.body.dataset.ready) await new Promise((resolve) => setTimeout(resolve, 5));
  const found = [];
  const element = (id) => document.getElementById(id);
  STEPS
  element("found").textContent = found.join("\n");
})();
</script>"##;

/// The lines that `steps`, a script which a page is given, push to `found` once the page is ready; none where there is no Chromium.
pub(super) fn by_hand(page: &Path, steps: &str) -> Option<String> {
    let written = fs::read_to_string(page).unwrap();
    fs::write(page, written + &HAND.replace("STEPS", steps)).unwrap();
    let output = open(page, &["--virtual-time-budget=10000", "--dump-dom"])?;
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
    let document = String::from_utf8(output.stdout).unwrap();
    Some(between(&document, "<pre id=\"found\">", "</pre>").to_string())
}

/// The document of a page after its scripts have run, and what the browser complained about.
fn document(page: &Path) -> Option<(String, String)> {
    let output = open(page, &["--dump-dom"])?;
    Some((String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// What a page looks like, as a PNG file.
fn screenshot(page: &Path) -> Option<Vec<u8>> {
    let picture = page.with_extension("png");
    open(page, &["--window-size=1000,2000", &format!("--screenshot={}", picture.display())])?;
    Some(fs::read(picture).unwrap())
}

/// The text between two others, behind the first of which it stands.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("`{before}` is not in {text}")).1;
    rest.split_once(after).unwrap_or_else(|| panic!("`{after}` does not follow in {rest}")).0
}

#[test]
fn the_report_tells_device_parameters_and_samples_of_the_run() {
    let scratch = Model::scratch();
    let trained = firelight(train(model(), scratch.path())).succeeds();
    let page = fs::read_to_string(scratch.path().join("report.html")).unwrap();
    let device = between(&trained.stderr, " on ", ": ");
    assert!(page.contains(&format!("<th>device</th><td>{device}</td>")), "{device} is not in {page}");

    let total = between(&trained.stderr, &format!("{device}: "), " parameters");
    let table = between(&page, "<table class=\"parameters\">", "</table>");
    let numbers: Vec<usize> = table
        .split("<td class=\"number\">")
        .skip(1)
        .map(|rest| rest.split_once('<').unwrap().0.replace(',', "").parse().unwrap())
        .collect();
    let (last, parts) = numbers.split_last().unwrap();
    assert_eq!((last.to_string().as_str(), *last), (total, parts.iter().sum()));
    assert!(parts.len() > 2 && table.contains("embedding"), "{table}");

    // The alphabet of the model holds nothing that HTML would write in another way.
    assert_eq!(between(&page, "<pre class=\"sample\">", "</pre>").trim(), trained.stdout.trim());
}

#[test]
fn the_report_of_a_run_can_be_seen() {
    let scratch = Model::scratch();
    firelight(train(model(), scratch.path())).succeeds();
    let blank = scratch.path().join("blank.html");
    fs::write(&blank, "<!DOCTYPE html><title>blank</title>").unwrap();
    let Some(blank) = screenshot(&blank) else { return };
    let seen = screenshot(&scratch.path().join("report.html")).unwrap();
    assert!(seen.starts_with(b"\x89PNG\r\n\x1a\n"), "no picture");
    // One colour packs into next to nothing, text and curves do not.
    assert!(seen.len() > 5 * blank.len(), "{} bytes, and {} of a blank page", seen.len(), blank.len());
}

#[test]
fn the_report_of_a_run_opens_whole_and_loads_nothing() {
    let scratch = Model::scratch();
    let trained = firelight(train(model(), scratch.path())).succeeds();
    let page = scratch.path().join("report.html");
    assert!(trained.stderr.contains(&format!("report: {}", page.display())), "{}", trained.stderr);
    let written = fs::read_to_string(&page).unwrap();
    assert!(!written.contains("src=") && !written.contains("href="), "the page would load something");

    let Some((document, complaints)) = document(&page) else { return };
    for text in ["Loss", "Learning rate", "Gradient norm before clipping", "validation loss", "d_model = 16"] {
        assert!(document.contains(text), "`{text}` is not in the page");
    }
    assert!(document.matches("<polyline").count() >= 5, "a curve is missing");
    assert!(!complaints.contains("CONSOLE"), "{complaints}");
}
