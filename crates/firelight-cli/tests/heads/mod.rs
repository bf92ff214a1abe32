//! Heads whose weights are written by hand, found by the command that ranks heads.
//!
//! The model is the smallest one that continues a repeated text: a head of the first layer copies the token before each (a previous-token head),
//! and a head of the second finds the token behind an earlier one of the same kind (an induction head). Source of the construction: Elhage et
//! al. 2021, "A Mathematical Framework for Transformer Circuits", "Induction heads"; Olsson et al. 2022, "Key concepts".

use std::path::Path;

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use firelight::data::{Tokenizer, TokenizerConfig};
use firelight::language::{LanguageModel, LanguageModelConfig, TASK};
use firelight::nn::{
    Attention, FeedForwardLayer, LearnedPosition, Mixer, NormConfig, ParamBuilder, Position, Projection, Weight,
};
use firelight::storage::{Checkpoint, Existing, ModelFolder, save_weights};
use serde_json::Value;

use crate::USER;
use crate::support::{Model, firelight, text};

/// A first byte that is no letter, and the letters from `a` on twice.
const TEXT: &str = ".abcdefabcdef";

/// Letters, the context, and where the stream keeps what: the letter, its place, the letter before, the answer.
const LETTERS: usize = 6;
const PLACES: usize = 16;
const PLACE: usize = LETTERS;
const BEFORE: usize = LETTERS + PLACES;
const ANSWER: usize = 2 * LETTERS + PLACES;
const WIDTH: usize = 3 * LETTERS + PLACES;

/// Bytes, the first letter among them, and two heads of as many channels as there are places.
const BYTES: usize = 256;
const FIRST: usize = b'a' as usize;
const INNER: usize = 2 * PLACES;

/// The score of a match: other tokens have `exp(-20)` of its weight.
const MATCH: f32 = 20.0;

/// The logit of the answer: its loss is `ln(1 + 255 exp(-8))`, less than a tenth of a nat.
const SURE: f32 = 8.0;

/// The heads, as layer and head.
const PREVIOUS: [u64; 2] = [0, 1];
const INDUCTION: [u64; 2] = [1, 0];

/// A matrix of nothing but `value`s that lead from input `from + i` to output `to + i`.
fn paths(shape: [usize; 2], count: usize, [from, to]: [usize; 2], value: f32) -> Param<Tensor<2>> {
    let mut numbers = vec![0.0; shape[0] * shape[1]];
    (0..count).for_each(|i| numbers[(from + i) * shape[1] + to + i] = value);
    Param::from_tensor(Tensor::from_data(TensorData::new(numbers, shape), &Device::default()))
}

/// Writes a head: its query and its key compare `compared` channels from these on, and its value copies letters from one place to another. The
/// other head of the layer sees all tokens alike and writes nothing.
fn plant(attention: &mut Attention, head: usize, [query, key]: [usize; 2], compared: usize, [from, to]: [usize; 2]) {
    let Projection::Separate(parts) = &mut attention.projection else { panic!("three matrices") };
    let own = head * PLACES;
    parts.query.weight = paths([WIDTH, INNER], compared, [query, own], MATCH).into();
    // Scores are divided by the root of the width of a head.
    parts.key.weight = paths([WIDTH, INNER], compared, [key, own], (PLACES as f32).sqrt()).into();
    parts.value.weight = paths([WIDTH, INNER], LETTERS, [from, own], 1.0).into();
    attention.output.weight = paths([INNER, WIDTH], LETTERS, [own, to], 1.0).into();
}

fn config() -> LanguageModelConfig {
    let config = LanguageModelConfig::new(BYTES, WIDTH, 2, 2).with_max_seq_len(PLACES).with_tied(false);
    config.with_transformer(|stack| {
        let stack = stack.with_norm(NormConfig::None).with_bias(false);
        stack.each_layer(|layer| layer.block.attention.d_head = Some(PLACES))
    })
}

/// The model: letters and places are ones in channels of their own, and feed-forward networks add nothing.
fn planted() -> LanguageModel {
    let mut model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
    model.embedding.weight = Weight::of_table(paths([BYTES, WIDTH], LETTERS, [FIRST, 0], 1.0));
    let places = LearnedPosition { weight: paths([PLACES, WIDTH], PLACES, [0, PLACE], 1.0) };
    model.transformer.position = Position::Learned(places);
    model.head.weight = Some(paths([WIDTH, BYTES], LETTERS, [ANSWER, FIRST], SURE).into());
    for (layer, block) in model.transformer.blocks.iter_mut().enumerate() {
        let FeedForwardLayer::Dense(network) = &mut block.feed_forward else { panic!("one network") };
        network.down.weight = Param::from_tensor(network.down.weight.val().zeros_like()).into();
        let Mixer::Attention(attention) = &mut block.attention else { panic!("an attention") };
        match layer {
            // The query at place p is compared with the key at place p - 1.
            0 => plant(attention, 1, [PLACE + 1, PLACE], PLACES - 1, [0, BEFORE]),
            // A letter is compared with those before all others, and what stands there is the answer.
            _ => plant(attention, 0, [0, BEFORE], LETTERS, [0, ANSWER]),
        }
    }
    model
}

fn saved(home: &Path) -> String {
    let folder = ModelFolder::create(home.join("planted"), Existing::Refuse).unwrap();
    Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().save(folder.tokenizer()).unwrap();
    save_weights(&planted(), folder.weights_path(&Checkpoint::Last)).unwrap();
    folder.write_config(TASK, &config()).unwrap();
    text(folder.path())
}

/// The heads of the model in the order of a score, as the command prints them.
fn ranked(run: &str, by: &str) -> Vec<Value> {
    let printed = firelight(["heads", run, "--text", TEXT, "--by", by, "--json"]).succeeds().stdout;
    serde_json::from_str(&printed).unwrap()
}

fn place(head: &Value) -> [u64; 2] {
    ["layer", "head"].map(|key| head[key].as_u64().unwrap())
}

#[test]
fn planted_heads_come_first_in_the_table_and_the_model_needs_them() {
    let home = Model::scratch();
    let run = saved(home.path());
    for (by, planted) in [("previous", PREVIOUS), ("induction", INDUCTION)] {
        let heads = ranked(&run, by);
        let scores: Vec<f64> = heads.iter().map(|head| head[by].as_f64().unwrap()).collect();
        assert_eq!((place(&heads[0]), heads.len()), (planted, 4), "{by}: {heads:?}");
        // A head that sees all tokens alike has a mean of 0.18 on the previous one, and of 0.10 on the one that induction looks for.
        assert!(scores[0] > 0.9 && scores[1] < 0.3, "{by}: {scores:?}");
    }
    let heads = ranked(&run, "ablation");
    let rises: Vec<f64> = heads.iter().map(|head| head["ablation"].as_f64().unwrap()).collect();
    let mut needed = [place(&heads[0]), place(&heads[1])];
    needed.sort_unstable();
    assert_eq!(needed, [PREVIOUS, INDUCTION], "{heads:?}");
    // Without either the second half of the text is a guess: the loss rises by about 2 nats, and without the others by nothing.
    assert!(rises[1] > 1.0 && rises[2].abs() < 1e-4 && rises[3].abs() < 1e-4, "{rises:?}");
    // A reader of the table sees the same.
    let table = firelight(["heads", run.as_str(), "--text", TEXT, "--by", "induction"]).succeeds().stdout;
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("1:0 ")), "{table}");
}

#[test]
fn the_head_that_says_what_it_sees_copies() {
    let home = Model::scratch();
    let heads = ranked(&saved(home.path()), "copying");
    let scores: Vec<f64> = heads.iter().map(|head| head["copying"].as_f64().unwrap()).collect();
    assert_eq!(place(&heads[0]), INDUCTION, "{heads:?}");
    // Six letters and a byte that has no vector; the other heads write nothing that the logits read.
    assert!((scores[0] - 6.0 / 7.0).abs() < 1e-9 && scores[1..] == [0.0; 3], "{scores:?}");
}

/// A sentence of letters, each the syntactic head of the one behind it, and the same as a pair.
fn annotated(home: &Path) -> [String; 2] {
    let row = |(id, letter): (usize, char)| format!("{id}\t{letter}\t_\t_\t_\t_\t{}\tdep\t_\tSpaceAfter=No\n", id - 1);
    let rows: String = (1..).zip("abcdef".chars()).map(row).collect();
    let [conllu, pairs] = ["letters.conllu", "letters.tsv"].map(|name| home.join(name));
    std::fs::write(&conllu, rows).unwrap();
    std::fs::write(&pairs, "abcdef\t3:4\t2:3\n").unwrap();
    [text(&conllu), text(&pairs)]
}

#[test]
fn syntax_and_mentions_are_read_from_files() {
    let home = Model::scratch();
    let (run, [conllu, pairs]) = (saved(home.path()), annotated(home.path()));
    let ask = |more: &[&str]| firelight(["heads", run.as_str()].iter().chain(more));
    let files = ["--conllu", conllu.as_str(), "--pairs", pairs.as_str()];
    for by in ["syntactic", "coreference"] {
        let printed = ask(&[&files[..], &["--by", by, "--json"]].concat()).succeeds().stdout;
        let found: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(place(&found["heads"][0]), PREVIOUS, "{found}");
        assert!(
            found["heads"][0][by].as_f64().unwrap() > 0.9 && found["heads"][1][by].as_f64().unwrap() < 0.5,
            "{found}"
        );
        let relation = &found["relations"][0];
        assert_eq!((&relation["relation"], &relation["direction"]), (&"dep".into(), &"to_head".into()), "{found}");
        assert_eq!((&relation["count"], &relation["offset"]), (&5.into(), &(-1).into()), "{found}");
        assert_eq!((place(relation), relation["baseline"].as_f64()), (PREVIOUS, Some(1.0)), "{found}");
    }
    let table =
        ask(&[&files[..], &["--by", "syntactic", "--score", "syntactic,coreference"]].concat()).succeeds().stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines[0], lines.len()), ("head     syntax   coref", 5 + 1 + 2), "{table}");
    assert!(lines[6].starts_with("relation") && lines[7].starts_with("dep             to head"), "{table}");
    let all = ask(&files).succeeds().stdout;
    assert!(all.lines().all(|line| line.len() <= 80) && all.contains("semant  syntax   coref"), "{all}");

    let some = ["--text", TEXT];
    let told = |more: &[&str], expected: &[&str]| ask(&[&some[..], more].concat()).fails(USER, expected);
    told(&["--by", "syntactic"], &["the score syntactic needs", "--conllu FILE"]);
    told(&["--score", "rare,coreference"], &["the score coreference needs", "--pairs FILE"]);
    told(&["--conllu", &pairs], &["line 1 of `", "letters.tsv", "has 3 columns", "expected the 10"]);
    told(&["--pairs", &conllu], &["line 1 of `", "letters.conllu", "has 10 columns"]);
    told(&["--conllu", "nowhere.conllu"], &["nowhere.conllu"]);
}
