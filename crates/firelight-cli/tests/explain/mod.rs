//! The numbers of attention step by step, the heads of a model, and activation patching, as a user asks for them.

use std::fs;
use std::path::Path;

use firelight::kernels::assert_close;

use crate::USER;
use crate::attention::maps;
use crate::browser;
use crate::support::{Finished, Model, firelight, model, text};
use crate::vision::images;

/// Runs a command on a model.
fn ask(command: &str, model: &Path, more: &[&str]) -> Finished {
    let common = [command.to_string(), text(model)];
    firelight(common.into_iter().chain(more.iter().map(|word| word.to_string())))
}

/// Fits a terminal, and can be piped.
fn is_plain(printed: &str) -> bool {
    printed.lines().all(|line| line.chars().count() <= 80) && !printed.contains('\u{1b}')
}

/// Goes to the first scores, chooses a token and a temperature, and goes a step back.
const EXAMPLES: &str = r##"
  const read = () => {
    const { query, temperature, weights } = element("readout").dataset;
    found.push(`${document.body.dataset.step};${element("softmax").hidden};${query};${temperature};${weights}`);
  };
  while (element("softmax").hidden) element("next").click();
  read();
  document.querySelectorAll(".scores tbody tr")[2].click();
  read();
  const slider = element("temperature");
  slider.value = "0.5";
  slider.dispatchEvent(new Event("input"));
  read();
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
  found.push(`${document.body.dataset.step};${element("softmax").hidden};${element("step-title").textContent}`);
"##;

/// Goes to the first scores of a model, and chooses its last token.
const LAST_TOKEN: &str = r##"
  while (element("softmax").hidden && !element("next").disabled) element("next").click();
  found.push(element("step-title").textContent);
  [...document.querySelectorAll(".scores tbody tr")].at(-1).click();
  const { query, weights } = element("readout").dataset;
  found.push(query, weights);
"##;

#[test]
fn a_page_of_the_examples_computes_the_softmax_of_the_chosen_token() {
    let scratch = Model::scratch();
    let page = scratch.path().join("examples.html");
    let finished = firelight(["explain", "demo", "--out", &text(&page)]).succeeds();
    assert!(finished.stdout.is_empty() && finished.stderr.contains(&format!("wrote {}", page.display())));
    let written = fs::read_to_string(&page).unwrap();
    assert!(!written.contains("src=\"") && !written.contains("href="), "the page would load something");

    let Some(found) = browser::by_hand(&page, EXAMPLES) else { return };
    // By hand: 1 and 2.0281 of 5.0562; 2.0281 and 4.1133 of 8.1695; at a temperature of a half both squared: 4.1133 and 16.919 of 25.146.
    let expected = [
        "4;false;the;1.0;0.1978,0.4011,0.4011",
        "4;false;sat;1.0;0.2483,0.2483,0.5035",
        "4;false;sat;0.5;0.1636,0.1636,0.6728",
        "3;true;three tokens: scaling",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{found}");
}

#[test]
fn a_page_of_a_model_computes_the_weights_of_the_model() {
    let scratch = Model::scratch();
    let page = scratch.path().join("fox.html");
    ask("explain", &model().dir, &["--text", "The fox", "--head", "1", "--out", &text(&page)]).succeeds();
    let Some(found) = browser::by_hand(&page, LAST_TOKEN) else { return };
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[..2], ["layer 0, head 1: mask", "x"], "{found}");
    let weights: Vec<f32> = lines[2].split(',').map(|weight| weight.parse().unwrap()).collect();
    assert_close(&weights, maps(&model().dir, "The fox")[0].layers[0][1].row(6), 1e-3);
}

#[test]
fn numbers_of_examples_and_models_are_printed_step_by_step() {
    let demo = firelight(["explain", "demo"]).succeeds().stdout;
    assert!(is_plain(&demo), "{demo}");
    for part in [
        "1. three tokens: x",
        "causal mask: softmax",
        "soft look-up",
        "self-attention without weights",
        "the bank and the loan",
        "temperature",
        "saturation at d_k = 512",
        "two heads",
        "sinusoidal positions",
        "similarity of positions",
    ] {
        assert!(demo.contains(part), "`{part}` is not in {demo}");
    }
    assert!(demo.contains("0.198    0.401    0.401") && demo.contains("-inf"), "{demo}");

    let printed = ask("explain", &model().dir, &["--text", "The fox", "--head", "1"]).succeeds().stdout;
    assert!(is_plain(&printed) && printed.contains("layer 0, head 1: softmax"), "{printed}");
    assert!(printed.contains("Q  [7, 8]") && printed.contains("weights  [7, 7]"), "{printed}");
}

#[test]
fn what_cannot_be_explained_is_one_line() {
    let scratch = Model::scratch();
    let fails = |more: &[&str], texts: &[&str]| ask("explain", &model().dir, more).fails(USER, texts);
    fails(&["--text", "The fox sat"], &["11 tokens, but the model reads 8"]);
    fails(&["--text", "The fox", "--layer", "1"], &["no layer 1", "from 0 to 0"]);
    fails(&["--text", "The fox", "--head", "2"], &["no head 2", "from 0 to 1"]);
    fails(&[], &["--text", "firelight explain demo"]);
    fails(&["--text", "The fox", "--out", "page.svg"], &["`page.svg`", ".html"]);
    let nowhere = text(&scratch.path().join("no/such/page.html"));
    fails(&["--text", "The fox", "--out", &nowhere], &["page.html"]);
    firelight(["explain", "demo", "--text", "a"]).fails(USER, &["leave out --text"]);
    ask("explain", &images().run, &["--text", "a"]).fails(USER, &["whose passes are not of one text"]);
}

#[test]
fn heads_are_ranked_as_text_and_as_json() {
    let printed = ask("heads", &model().dir, &["--text", "The fox"]).succeeds().stdout;
    let lines: Vec<&str> = printed.lines().collect();
    // A second table has the columns that do not fit beside the first ones.
    assert!(is_plain(&printed) && lines.len() == 7 && lines[0].contains("entropy"), "{printed}");
    assert!(lines[4].contains("rare"), "{printed}");
    let json = ask("heads", &model().dir, &["--text", "The fox", "--json", "--by", "gradient"]).succeeds().stdout;
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let gradients: Vec<f64> = found.as_array().unwrap().iter().map(|head| head["gradient"].as_f64().unwrap()).collect();
    assert!(gradients.len() == 2 && gradients[0] >= gradients[1] && gradients[1] > 0.0, "{json}");
    assert!(found[0]["layer"] == 0 && found[0]["ablation"].is_f64(), "{json}");
    let one = ask("heads", &model().dir, &["--text", "The fox", "--top", "1"]).succeeds().stdout;
    let of_first = [&lines[..2], &lines[3..6]].concat();
    assert_eq!(one.lines().collect::<Vec<_>>(), of_first);
    ask("heads", &model().dir, &["--text", "The fox", "--by", "beauty"]).fails(USER, &["'beauty'", "induction"]);
}

#[test]
fn heads_are_pruned_into_a_run_that_is_asked_as_any_other() {
    let scratch = Model::scratch();
    let [one, best] = ["one", "best"].map(|name| scratch.path().join(name));
    let finished = ask("prune-heads", &model().dir, &["--heads", "0:1", "--out", &text(&one)]).succeeds();
    assert!(finished.stderr.contains("1 heads pruned"), "{}", finished.stderr);
    ask("generate", &one, &["--prompt", "The fox", "--max-new-tokens", "3"]).succeeds();
    ask("prune-heads", &model().dir, &["--keep-top", "1", "--text", "The fox", "--out", &text(&best)]).succeeds();
    let size = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().len();
    assert!([&one, &best].iter().all(|folder| size(folder) < size(&model().dir)));
    let begun = scratch.path().join("begun");
    let train =
        ["train", "--data", &text(&model().text), "--from", &text(&one), "--steps", "2", "--out", &text(&begun)];
    firelight(train.into_iter().chain(["--set", "training.evaluate_every=2"])).succeeds();
    let config = fs::read_to_string(begun.join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["transformer"]["n_heads"], 1, "{config}");

    let fails = |more: &[&str], texts: &[&str]| {
        let out = text(&scratch.path().join("other"));
        let more: Vec<&str> = more.iter().copied().chain(["--out", out.as_str()]).collect();
        ask("prune-heads", &model().dir, &more).fails(USER, texts);
    };
    fails(&[], &["no head is named", "--heads 0:1,2:0"]);
    fails(&["--heads", "3"], &["'3'", "layer:head"]);
    fails(&["--heads", "1:0"], &["no layer 1", "from 0 to 0"]);
    fails(&["--heads", "0:2"], &["n_heads = 2"]);
    fails(&["--heads", "0:0,0:1"], &["no head would be left"]);
    fails(&["--keep-top", "1"], &["--text, --file", "--conllu"]);
    fails(&["--keep-top", "3", "--text", "The fox"], &["keep 1 to 2"]);
    ask("prune-heads", &model().dir, &["--heads", "0:1", "--out", &text(&one)]).fails(USER, &["not an empty folder"]);
}

#[test]
fn patching_is_printed_drawn_and_refused() {
    let question = ["--clean", "The fox", "--corrupted", "The hen", "--answer", " ", "--wrong", "."];
    let asked = |more: &[&str]| ask("patch", &model().dir, &[&question[..], more].concat());
    let printed = asked(&[]).succeeds().stdout;
    assert!(is_plain(&printed) && printed.contains("f/h") && printed.contains("layer 0"), "{printed}");
    let found: serde_json::Value = serde_json::from_str(&asked(&["--json"]).succeeds().stdout).unwrap();
    assert_eq!(found["shares"][0].as_array().map(Vec::len), Some(7));
    assert!(found["clean_difference"].is_f64() && found["layers"][0] == 0);
    let scratch = Model::scratch();
    let [svg, page] = ["grid.svg", "grid.html"].map(|name| text(&scratch.path().join(name)));
    asked(&["--out", &svg]).succeeds();
    asked(&["--out", &page]).succeeds();
    assert!(
        fs::read_to_string(&svg).unwrap().starts_with("<svg") && fs::read_to_string(&page).unwrap().contains("<svg")
    );
    asked(&["--out", &svg]).fails(USER, &["exists", "--force"]);

    let fails = |clean: &str, corrupted: &str, answer: &str, texts: &[&str]| {
        let words = ["--clean", clean, "--corrupted", corrupted, "--answer", answer, "--wrong", "."];
        ask("patch", &model().dir, &words).fails(USER, texts);
    };
    fails("The fox", "The hens", " ", &["7 tokens and the corrupted one 8"]);
    fails("The fox", "The hen", "ran", &["--answer \"ran\" is 3 tokens"]);
    fails("The fox sat", "The hen sat", " ", &["11 tokens, but the model reads 8"]);
    fails("The fox", "The fox", " ", &["nothing is to be restored"]);
}

#[test]
fn layers_are_probed_by_labelled_texts() {
    let scratch = Model::scratch();
    let file = scratch.path().join("texts.tsv");
    let lines = ["the fox\tfox", "the hen\then", "a fox\tfox", "a hen\then", "fox sat\tfox", "hen sat\then"];
    fs::write(&file, lines.repeat(2).join("\n")).unwrap();
    let printed = ask("probe", &model().dir, &["--file", &text(&file)]).succeeds().stdout;
    assert!(is_plain(&printed) && printed.contains("embedding") && printed.contains("blocks.0.output"), "{printed}");
    let json = ask("probe", &model().dir, &["--file", &text(&file), "--json"]).succeeds().stdout;
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["layers"].as_array().map(Vec::len), Some(2), "{json}");
    fs::write(&file, "the fox\tfox\n").unwrap();
    ask("probe", &model().dir, &["--file", &text(&file)]).fails(USER, &["two labels"]);
    ask("probe", &model().dir, &["--file", "nowhere.tsv"]).fails(USER, &["nowhere.tsv"]);
}
