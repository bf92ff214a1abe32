//! A trained model is measured on a text, by the checkpoint that is named.

use serde_json::Value;

use crate::support::{evaluate, firelight, generate, model, text};
use crate::{USER, answering, classification, tagging, translation, vision};

#[test]
fn evaluate_prints_one_line_of_json() {
    let finished = firelight(evaluate(&model().dir, &model().text)).succeeds();
    assert_eq!(finished.stdout.lines().count(), 1);
    let value: Value = serde_json::from_str(&finished.stdout).unwrap();
    let [loss, perplexity, bits] = ["loss", "perplexity", "bits_per_character"].map(|key| value[key].as_f64().unwrap());
    assert!((perplexity - loss.exp()).abs() < 1e-6);
    assert!((bits - loss / 2f64.ln()).abs() < 1e-6); // one token is one character
    assert!(value["tokens"].as_u64().unwrap() > 0);
}

#[test]
fn checkpoints_are_chosen_by_name() {
    let last = firelight(evaluate(&model().dir, &model().text)).succeeds().stdout;
    for checkpoint in ["best", "10"] {
        let chosen = firelight(
            evaluate(&model().dir, &model().text).into_iter().chain(["--checkpoint".into(), checkpoint.into()]),
        );
        let chosen = chosen.succeeds();
        assert!(chosen.stderr.contains(&format!("checkpoint: {checkpoint}")), "{}", chosen.stderr);
        if checkpoint == "10" {
            assert_ne!(chosen.stdout, last);
        }
    }
    let missing = firelight(generate(&model().dir, &["--checkpoint", "777"]));
    missing.fails(USER, &["no checkpoint", "777", "last"]);
}

#[test]
fn without_data_it_is_what_the_run_was_validated_on() {
    let (pairs, texts, sentences) = (translation::pairs(), classification::texts(), tagging::sentences());
    let (questions, images) = (answering::questions(), vision::images());
    let runs = [
        (&model().dir, &model().text),
        (&pairs.run, &pairs.data),
        (&texts.run, &texts.data),
        (&sentences.run, &sentences.data),
        (&questions.run, &questions.data),
        (&images.run, &images.data),
    ];
    for (run, data) in runs {
        let measured = |args: Vec<String>| {
            let mut line: Value = serde_json::from_str(&firelight(args).succeeds().stdout).unwrap();
            line.as_object_mut().unwrap().remove("seconds");
            line
        };
        let own = ["evaluate", &text(run), "--json"].map(str::to_string).to_vec();
        assert_eq!(measured(own), measured(evaluate(run, data)));
        firelight(["evaluate", &text(run), "--split", "val"]).fails(USER, &["--data <PATH>"]);
    }
}

#[test]
fn without_what_the_run_was_validated_on_data_is_asked_for() {
    let home = tempfile::tempdir().unwrap();
    for name in ["recipe.toml", "config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(model().dir.join(name), home.path().join(name)).unwrap();
    }
    firelight(["evaluate", &text(home.path())]).fails(USER, &["data.tokens", "give --data"]);
    firelight(evaluate(home.path(), &model().text)).succeeds();
}
