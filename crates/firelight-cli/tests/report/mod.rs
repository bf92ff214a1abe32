//! The report of a run can be made again from its folder, whatever became of the run.

use std::fs;
use std::path::Path;

use crate::USER;
use crate::classification::texts;
use crate::support::{Finished, Model, firelight, model, text, train};

fn report(run: &Path, more: &[&str]) -> Finished {
    firelight(["report".to_string(), text(run)].into_iter().chain(more.iter().map(ToString::to_string)))
}

fn page(run: &Path) -> String {
    fs::read_to_string(run.join("report.html")).unwrap()
}

/// All but the title, which names the folder.
fn body(page: &str) -> &str {
    page.split_once("</h1>").unwrap().1
}

#[test]
fn a_report_that_is_made_again_is_the_one_of_the_training() {
    let copy = model().copy();
    let first = page(&model().dir);
    fs::remove_file(copy.path().join("report.html")).unwrap();
    let made = report(copy.path(), &[]).succeeds();
    assert!(made.stderr.contains(&format!("report: {}", copy.path().join("report.html").display())), "{}", made.stderr);
    assert_eq!(body(&page(copy.path())), body(&first));
    for name in ["steps", "validation loss", "best", "data", "date", "wall time", "device", "version", "command"] {
        assert!(first.contains(&format!("<th>{name}</th><td>")), "`{name}` is not in {first}");
    }
    assert!(first.contains("<th>steps</th><td>20</td>") && first.contains(" train "), "{first}");
}

#[test]
fn an_interrupted_run_has_a_report_of_what_it_did() {
    let copy = model().copy();
    let recipe = fs::read_to_string(copy.path().join("recipe.toml")).unwrap();
    let longer = recipe.replacen("[training]\nsteps = 20", "[training]\nsteps = 4000", 1);
    assert_ne!(longer, recipe);
    fs::write(copy.path().join("recipe.toml"), longer).unwrap();
    let made = report(copy.path(), &[]).succeeds();
    assert!(made.stderr.contains("step 20 of 4000"), "{}", made.stderr);
    let whole = page(copy.path());
    assert!(whole.contains("<td>20 of 4000</td>") && whole.contains("<pre class=\"sample\">"), "{whole}");

    fs::remove_file(copy.path().join("model.safetensors")).unwrap();
    fs::remove_dir_all(copy.path().join("checkpoints")).unwrap();
    let made = report(copy.path(), &[]).succeeds();
    assert!(made.stderr.contains("without samples: "), "{}", made.stderr);
    let bare = page(copy.path());
    assert!(bare.contains("<figcaption>Loss</figcaption>") && !bare.contains("<pre class=\"sample\">"), "{bare}");
}

#[test]
fn samples_can_be_left_out() {
    let copy = model().copy();
    let made = report(copy.path(), &["--no-samples"]).succeeds();
    assert!(!made.stderr.contains("checkpoint: "), "{}", made.stderr);
    assert!(!page(copy.path()).contains("Samples"));
}

#[test]
fn a_resumed_run_adds_its_wall_times_up() {
    let scratch = Model::scratch();
    let run = |more: &[&str]| {
        firelight(train(model(), scratch.path()).into_iter().chain(more.iter().map(ToString::to_string))).succeeds()
    };
    run(&["--steps", "10"]);
    assert!(!page(scratch.path()).contains("sessions"));
    run(&["--resume", "--steps", "20"]);
    let page = page(scratch.path());
    assert!(page.contains(" in 2 sessions</td>") && page.matches("<th>command</th>").count() == 2, "{page}");
    assert!(page.contains(" --resume --steps 20</td>"), "{page}");
}

#[test]
fn true_labels_stand_beside_predictions() {
    let page = page(&texts().run);
    let samples = page.split_once(">Samples<").unwrap().1;
    let (good, bad) = (samples.matches("expected: good<").count(), samples.matches("expected: bad<").count());
    assert_eq!((good, bad), (2, 1), "{samples}");
    assert!(page.contains("<figcaption>Validation metrics</figcaption>") && page.contains("macro F1"), "{page}");
}

#[test]
fn what_is_no_run_is_named() {
    report(Path::new("nowhere"), &[]).fails(USER, &["nowhere"]);
    let copy = model().copy();
    fs::remove_file(copy.path().join("metrics.jsonl")).unwrap();
    report(copy.path(), &["--no-samples"]).fails(USER, &["cannot read", "metrics.jsonl"]);
    report(copy.path(), &["--no-samples", "--device", "flex"]).fails(USER, &["--device", "--no-samples"]);
}
