//! Schedules are drawn without a training, losses from a run folder; positions, masks, tokens and vectors of a model as text and as files.

use std::fs;

use firelight::data::Image;

use crate::USER;
use crate::support::{Finished, Model, firelight, model, text};
use crate::translation::pairs;
use crate::vision::images;

/// Draws something of a model, a scheme or a pattern.
fn draw(what: &str, of: &str, more: &[&str]) -> Finished {
    firelight(["visualize", what, of].iter().chain(more))
}

/// Fits a terminal, and can be piped.
fn is_plain(printed: &str) -> bool {
    printed.lines().all(|line| line.chars().count() <= 80) && !printed.contains('\u{1b}')
}

#[test]
fn visualize_draws_the_schedules_that_are_asked_for() {
    let scratch = Model::scratch();
    let out = text(&scratch.path().join("rates.svg"));
    let recipe = text(&model().recipe);
    let finished = firelight(["visualize", "schedule", &recipe, "--out", &out]).succeeds();
    assert_eq!((finished.stdout.as_str(), finished.stderr.trim()), ("", format!("wrote {out}").as_str()));
    let own = fs::read_to_string(&out).unwrap();
    assert!(own.starts_with("<svg") && own.contains("cosine") && !own.contains("wsd"));

    let kinds = ["--kinds", "cosine,wsd,inverse_sqrt", "--set", "schedule.warmup_steps=3"];
    firelight(["visualize", "schedule", "--out", &out].into_iter().chain(kinds)).fails(USER, &["exists", "--force"]);
    firelight(["visualize", "schedule", "nowhere", "--out", &out])
        .fails(USER, &["no file `nowhere`", "stories, dates"]);
    firelight(["visualize", "schedule", "dates", "--out", "rates.png"]).fails(USER, &["`rates.png`", "ends in .svg"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), own);
    firelight(["visualize", "schedule", "dates", "--force", "--out", &out].into_iter().chain(kinds)).succeeds();
    let several = fs::read_to_string(&out).unwrap();
    assert!(
        ["cosine", "wsd", "inverse_sqrt", "learning rate of the next step"].iter().all(|name| several.contains(name))
    );
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "nothing else is left behind");

    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes/sst2.toml");
    let epochs = ["visualize", "schedule", recipe, "--force", "--out", &out];
    firelight(epochs).fails(USER, &["epochs", "schedule.steps=N"]);
    firelight(epochs.iter().chain(&["--set", "schedule.steps=900"])).succeeds();
}

#[test]
fn losses_are_drawn_of_one_run_and_of_several() {
    let scratch = Model::scratch();
    let out = text(&scratch.path().join("loss.svg"));
    let run = text(&model().dir);
    let finished = draw("loss", &run, &["--out", &out]).succeeds();
    assert!(finished.stdout.is_empty() && finished.stderr.contains("wrote"), "{}", finished.stderr);
    let one = fs::read_to_string(&out).unwrap();
    let lines = ["training, smoothed", "validation", "loss, nats"];
    assert!(one.starts_with("<svg") && lines.iter().all(|line| one.contains(line)), "{one}");
    assert!(!one.contains("run: "), "one run needs no name");

    draw("loss", &run, &["--out", &out]).fails(USER, &["exists", "--force"]);
    draw("loss", &run, &["--out", "loss.png"]).fails(USER, &["loss.png", ".svg"]);
    draw("loss", "nowhere", &["--out", &out, "--force"]).fails(USER, &["no folder `nowhere`"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), one);
    draw("loss", &run, &[&run, "--out", &out, "--force"]).succeeds();
    assert_eq!(fs::read_to_string(&out).unwrap().matches("run: validation").count(), 2);
}

#[cfg(unix)]
#[test]
fn an_output_never_takes_the_place_of_a_special_file() {
    let scratch = Model::scratch();
    let socket = scratch.path().join("schedule.svg");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let drawn = firelight(["visualize", "schedule", "dates", "--force", "--out", &text(&socket)]);
    drawn.fails(USER, &["schedule.svg", "regular file"]);
    assert!(!fs::symlink_metadata(&socket).unwrap().is_file());
}

#[test]
fn positions_of_a_model_and_of_schemes_are_shown_with_their_likeness() {
    let run = text(&model().dir);
    let learned = draw("positions", &run, &[]).succeeds().stdout;
    assert!(is_plain(&learned) && learned.contains("learned positions: cosine of two of them"), "{learned}");
    assert!(learned.lines().any(|line| line.starts_with("7 ") && line.ends_with("1.00")), "{learned}");
    let waves = draw("positions", "sinusoidal", &["--length", "3", "--width", "4"]).succeeds().stdout;
    // Sine and cosine of one radian, then of a hundredth; below the mean of the cosines.
    assert!(
        waves.contains("1    0.84   0.54   0.01   1.00\n") && waves.contains("0    1.00   0.77   0.29\n"),
        "{waves}"
    );
    let rotary = draw("positions", "rotary", &["--length", "3", "--width", "4"]).succeeds().stdout;
    assert!(rotary.contains("product    1.00   0.77   0.29\n"), "{rotary}");
    let biases = draw("positions", "alibi", &["--heads", "2", "--length", "3"]).succeeds().stdout;
    assert!(biases.contains("head 0") && biases.contains("-0.06  -0.12\n"), "{biases}");

    draw("positions", &run, &["--length", "9"]).fails(USER, &["--length = 9 is more than the 8 positions"]);
    draw("positions", &run, &["--width", "9"]).fails(USER, &["--width and --heads are for a scheme"]);
    draw("positions", "rotary", &["--width", "5"]).fails(USER, &["must be even"]);
    draw("positions", "rotary", &["--heads", "2"]).fails(USER, &["--heads is for alibi and t5"]);
    draw("positions", "none", &[]).fails(USER, &["none to show"]);
    draw("positions", "alibi", &["--length", "0"]).fails(USER, &["--length = 0"]);
}

#[test]
fn masks_and_what_is_reached_through_layers_are_drawn_in_every_format() {
    let window = ["--length", "9", "--layers", "3"];
    let printed = draw("mask", "window:2", &window).succeeds().stdout;
    assert!(is_plain(&printed) && printed.contains("8 ......###\n") && printed.contains("8 ..3322111\n"), "{printed}");
    assert!(printed.contains("reaches 7 of 9 tokens, the farthest 6 back."), "{printed}");
    let own = draw("mask", &text(&model().dir), &["--length", "3"]).succeeds().stdout;
    assert!(own.contains("in every layer") && own.contains("1 ##.\n"), "{own}");
    let both = draw("mask", &text(&pairs().run), &["--length", "3"]).succeeds().stdout;
    assert!(both.contains("encoder: what a token sees") && both.contains("decoder: what a token reaches"), "{both}");

    let scratch = Model::scratch();
    let [page, svg, png] = ["mask.html", "mask.svg", "mask.png"].map(|name| text(&scratch.path().join(name)));
    for out in [&page, &svg, &png] {
        let finished = draw("mask", "window:2", &[&window[..], &["--out", out]].concat()).succeeds();
        assert!(finished.stdout.is_empty() && finished.stderr.contains("wrote"), "{}", finished.stderr);
    }
    let [page, drawn] = [&page, &svg].map(|path| fs::read_to_string(path).unwrap());
    assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark") && !page.contains("href="));
    // Token 8 knows of token 2 after the third layer.
    assert!(drawn.starts_with("<svg") && drawn.contains("<title>8, 2: 3</title>"));
    // Two maps of nine by nine squares of 56 pixels.
    assert_eq!(Image::open(&png).unwrap().shape().size(), [6 + 2 * (504 + 6), 6 + 504 + 6]);

    draw("mask", "window:2", &["--out", &svg]).fails(USER, &["exists", "--force"]);
    draw("mask", "window:2", &["--out", "mask.pdf"]).fails(USER, &["mask.pdf", ".html, .svg or .png"]);
    let nowhere = text(&scratch.path().join("nowhere").join("mask.svg"));
    draw("mask", "causal", &["--out", &nowhere]).fails(USER, &["nowhere` is no folder", "mask.svg"]);
    draw("mask", "causal", &["--force"]).fails(USER, &["--out <FILE>"]);
    draw("mask", "causal", &["--checkpoint", "best"]).fails(USER, &["--checkpoint", "are for a model"]);
    draw("positions", "rotary", &["--checkpoint", "best"]).fails(USER, &["--checkpoint", "are for a model"]);
    draw("mask", "chunks:0", &[]).fails(USER, &["`chunks:0` is no pattern", "chunks:N"]);
    draw("mask", "causal", &["--layers", "0"]).fails(USER, &["--layers = 0"]);
    draw("mask", &text(&model().dir), &["--layers", "2"]).fails(USER, &["the model of 1 layers: give 1 to 1"]);
}

#[test]
fn a_text_is_shown_in_its_tokens() {
    let run = text(&model().dir);
    let printed = draw("tokens", &run, &["--text", "The fox"]).succeeds().stdout;
    assert!(is_plain(&printed) && printed.starts_with("T\u{2502}h\u{2502}e\u{2502}\u{2423}\u{2502}f"), "{printed}");
    assert!(printed.contains("7 tokens, 7 characters, 7 bytes"), "{printed}");
    let json = draw("tokens", &run, &["--text", "The fox", "--json"]).succeeds().stdout;
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["tokens"].as_array().map(Vec::len), Some(7), "{json}");
    let scratch = Model::scratch();
    let [page, svg] = ["tokens.html", "tokens.svg"].map(|name| text(&scratch.path().join(name)));
    draw("tokens", &run, &["--text", "The fox", "--out", &page]).succeeds();
    draw("tokens", &run, &["--text", "The fox", "--out", &svg]).succeeds();
    assert!(fs::read_to_string(&page).unwrap().contains("class=\"t1\""));
    assert_eq!(fs::read_to_string(&svg).unwrap().matches("<title>").count(), 7);

    draw("tokens", &run, &["--text", ""]).fails(USER, &["the text is empty"]);
    draw("tokens", &run, &["--text", "Q"]).fails(USER, &["'Q'"]);
    draw("tokens", &text(&images().run), &["--text", "a"]).fails(USER, &["holds no tokenizer"]);
}

#[test]
fn the_vectors_of_a_word_are_compared_between_texts() {
    let run = text(&model().dir);
    let fox = ["--word", "fox", "--text", "The fox", "--text", "a fox"];
    let printed = draw("embeddings", &run, &fox).succeeds().stdout;
    assert!(is_plain(&printed) && printed.contains("1: The fox") && printed.contains("2: a fox"), "{printed}");
    assert!(printed.lines().any(|line| line.starts_with("2: a fox") && line.ends_with("1.00")), "{printed}");
    let tokens = draw("embeddings", &run, &["--text", "The fox", "--layer", "0"]).succeeds().stdout;
    assert!(tokens.starts_with("cosine of the vectors of tokens after layer 0\n"), "{tokens}");

    draw("embeddings", &run, &["--word", "hen", "--text", "The fox"]).fails(USER, &["\"hen\" does not stand in"]);
    draw("embeddings", &run, &["--text", "The fox", "--layer", "1"]).fails(USER, &["no layer 1", "from 0 to 0"]);
    draw("embeddings", &run, &["--text", "The fox sat"]).fails(USER, &["11 tokens, but the model reads 8"]);
    draw("embeddings", &run, &[]).fails(USER, &["--text <TEXT>"]);
}
