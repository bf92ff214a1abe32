//! What is told of texts in models, against passes of the same models.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use firelight_classification::{Embedder, TextEncoderConfig, TextVocabulary, cosine_similarities};
use firelight_core::{Hooks, Mixer, Pass, PositionConfig, Projection, SequenceInput, Weight};
use firelight_data::labelled::LabelledText;
use firelight_data::{Tokenizer, TokenizerConfig, right_padded};
use firelight_inspect::{
    Annotations, EmbeddingQuestion, Explanation, HeadScore, HeadTable, PatchGrid, PatchQuestion, ProbeTable, Table,
    TableKind, TextModel, embedding_figure, explain, prune_heads, read_conllu, read_pairs,
};
use firelight_language::{LanguageModel, LanguageModelConfig, TASK, TextGenerator};
use firelight_storage::{Checkpoint, Existing, ModelFolder, save_weights};

const CONTEXT: usize = 16;

fn bytes() -> Tokenizer {
    Tokenizer::train(&TokenizerConfig::Byte, "").unwrap()
}

/// Over bytes, of two layers with two heads of eight channels.
fn config() -> LanguageModelConfig {
    LanguageModelConfig::new(256, 16, 2, 2).with_max_seq_len(CONTEXT)
}

fn generator(model: LanguageModel) -> TextModel {
    TextGenerator::new(model, bytes()).into()
}

fn language() -> TextModel {
    generator(config().init(&Device::default()))
}

fn encoder() -> TextModel {
    let vocabulary = TextVocabulary::new(bytes()).unwrap();
    let encoder = TextEncoderConfig::bert(vocabulary.vocab_size(), 16, 2, 1).init(&Device::default());
    Embedder::new(encoder, vocabulary).into()
}

fn table<'a>(found: &'a Explanation, title: &str) -> &'a Table {
    let step = found.steps.iter().find(|step| step.title == title).unwrap_or_else(|| panic!("no step {title}"));
    step.tables.last().unwrap()
}

fn near(a: &[Vec<f64>], b: &[Vec<f64>]) -> bool {
    let (a, b) = (a.concat(), b.concat());
    !a.is_empty() && a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4)
}

#[test]
fn the_numbers_of_a_text_are_those_of_the_pass() {
    let model = language();
    let found = explain(&model, "the fox", 1, None).unwrap();
    assert_eq!(found.steps.len(), 2 + 2 * 6);
    assert_eq!(table(&found, "Tokens").values.concat(), "the fox".bytes().map(f64::from).collect::<Vec<_>>());
    assert_eq!(table(&found, "Tokens").rows[3], "\u{2423}");
    assert_eq!(table(&found, "Embeddings").shape, [7, 16]);
    let masked = table(&found, "layer 1, head 1: mask");
    let hidden = masked.values.concat().iter().filter(|score| score.is_infinite()).count();
    assert_eq!((masked.kind, hidden), (TableKind::Scores, 21), "the future of seven tokens");

    let read = model.read("the fox").unwrap();
    let mut hooks = Hooks::new().record("blocks.1.attention.weights");
    let (_, activations) = hooks.run(|pass| model.hidden(&read, pass)).unwrap();
    let weights = activations.get::<4>("blocks.1.attention.weights").unwrap().narrow(1, 1, 1);
    let noted: Vec<f64> = weights.into_data().iter::<f64>().collect();
    let shown = &table(&found, "layer 1, head 1: softmax").values;
    assert!(near(shown, &noted.chunks(7).map(<[f64]>::to_vec).collect::<Vec<_>>()));
    // The softmax of the masked scores, by hand, of the last row.
    let powers: Vec<f64> = masked.values[6].iter().map(|score| score.exp()).collect();
    let sum: f64 = powers.iter().sum();
    assert!(near(&[powers.iter().map(|power| power / sum).collect()], &shown[6..]));
    assert!(found.steps.iter().all(|step| !step.remark.contains("sinks")), "the scores explain the weights");
    let one = explain(&model, "the fox", 0, Some(1)).unwrap();
    assert_eq!(one.steps.len(), 2 + 6);
    assert!(one.to_text().lines().all(|line| line.chars().count() <= 80), "{}", one.to_text());
}

#[test]
fn an_encoder_hides_nothing_and_positions_that_add_to_scores_are_told() {
    let found = explain(&encoder(), "ab\tc", 0, Some(0)).unwrap();
    assert_eq!(table(&found, "Tokens").rows, ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]);
    assert!(table(&found, "layer 0, head 0: mask").values.concat().iter().all(|score| score.is_finite()));
    let alibi = config().with_transformer(|stack| stack.with_position(PositionConfig::Alibi));
    let found = explain(&generator(alibi.init(&Device::default())), "the fox", 0, Some(0)).unwrap();
    let softmax = found.steps.iter().find(|step| step.title.ends_with("softmax")).unwrap();
    assert!(softmax.remark.contains("positions that add to the scores"), "{}", softmax.remark);
}

#[test]
fn what_cannot_be_explained_is_told_with_what_there_is() {
    let model = language();
    let message = |text: &str, layer, head| explain(&model, text, layer, head).unwrap_err().to_string();
    assert!(message("a", 2, None).contains("no layer 2 in the model: choose from 0 to 1"));
    assert!(message("a", 0, Some(2)).contains("no head 2 in layer 0: choose from 0 to 1"));
    assert!(message("a text of 17 byte", 0, None).contains("17 tokens, but the model reads 16"));
    assert!(message("", 0, None).contains("is empty"));
}

/// One layer without positions, whose head 1 sees the tokens that are the same as its own, while head 0 sees all alike and writes nothing. A
/// letter is a one in one of the last eight channels, which head 1 reads and writes.
fn planted(device: &Device) -> TextModel {
    let read = Tensor::<2>::eye(16, device).narrow(1, 8, 8) * 10.0;
    let read = Tensor::cat(vec![Tensor::zeros([16, 8], device), read], 1);
    planted_with(device, [read.clone(), read])
}

/// The same model, whose head 1 sees nothing but the letter b once it was there.
fn drawn_to_b() -> TextModel {
    let device = Device::default();
    // From the letters `from` on to the first channel of head 1.
    let matrix = |from: usize, letters: usize| {
        let is_one = |place: usize| place % 16 == 8 && (from..from + letters).contains(&(place / 16));
        let numbers = (0..16 * 16).map(|place| 10.0 * f32::from(u8::from(is_one(place)))).collect::<Vec<f32>>();
        Tensor::<2>::from_data(TensorData::new(numbers, [16, 16]), &device)
    };
    planted_with(&device, [matrix(8, 8), matrix(8 + usize::from(b'b') % 8, 1)])
}

/// With the matrices of queries and of keys.
fn planted_with(device: &Device, [query, key]: [Tensor<2>; 2]) -> TextModel {
    let config = LanguageModelConfig::new(256, 16, 2, 1).with_max_seq_len(CONTEXT);
    let mut model = config.with_transformer(|stack| stack.with_position(PositionConfig::None)).init(device);
    let one = |place: usize| f32::from(u8::from(place % 16 == 8 + (place / 16) % 8));
    let letters = TensorData::new((0..256 * 16).map(one).collect::<Vec<f32>>(), [256, 16]);
    model.embedding.weight = Weight::of_table(Param::from_tensor(Tensor::from_data(letters, device)));
    let Mixer::Attention(attention) = &mut model.transformer.blocks[0].attention else { panic!("an attention") };
    let Projection::Separate(parts) = &mut attention.projection else { panic!("three matrices") };
    for (part, matrix) in [(&mut parts.query, query), (&mut parts.key, key)] {
        part.weight = Param::from_tensor(matrix).into();
        part.bias = None;
    }
    let written = Tensor::<2>::eye(16, device).narrow(0, 8, 8);
    attention.output.weight = Param::from_tensor(Tensor::cat(vec![Tensor::zeros([8, 16], device), written], 0)).into();
    generator(model)
}

#[test]
fn a_planted_head_ranks_first() {
    let model = planted(&Device::default().autodiff());
    let table = HeadTable::measure(&model, &["ab ab ab", "aab bba"]).unwrap();
    let first = |by| {
        let head = table.clone().ranked(by).first(1).heads.remove(0);
        [head.layer, head.head]
    };
    for by in [HeadScore::Same, HeadScore::Gradient, HeadScore::Entropy] {
        assert_eq!(first(by), [0, 1], "{}", by.name());
    }
    let score = |head: usize, score| table.heads[head].score(score);
    // Nothing is read of head 0.
    assert_eq!((score(0, HeadScore::Ablation), score(0, HeadScore::Gradient)), (Some(0.0), Some(0.0)));
    assert!(score(1, HeadScore::Ablation).is_some_and(|rise| rise != 0.0));
    assert_eq!((score(0, HeadScore::Separator), score(0, HeadScore::Next)), (None, Some(0.0)));
}

fn close(found: Option<f64>, expected: f64) {
    assert!(found.is_some_and(|found| (found - expected).abs() < 1e-4), "{found:?} is not {expected}");
}

#[test]
fn a_head_that_sees_the_rarest_token_is_found() {
    // The letter b is the only one that stands once; the other text makes its letters more frequent.
    let table = HeadTable::measure(&drawn_to_b(), &["baaccca", "aacc"]).unwrap();
    // Head 0 sees all tokens up to the query alike; queries 1 to 6 have b before them. Those of the second text are equally frequent.
    close(table.heads[0].score(HeadScore::Rare), (2..8).map(|seen| 1.0 / f64::from(seen)).sum::<f64>() / 6.0);
    close(table.heads[1].score(HeadScore::Rare), 1.0);
    let alike = HeadTable::measure(&drawn_to_b(), &["abab"]).unwrap();
    assert_eq!(alike.heads[1].score(HeadScore::Rare), None);
}

#[test]
fn a_head_that_sees_similar_tokens_is_found() {
    // The letters a, i and q have one vector, b and j another one.
    let table = HeadTable::measure(&planted(&Device::default()), &["ai bj aq"]).unwrap();
    assert_eq!(table.heads[0].score(HeadScore::Semantic), None, "it sees all alike");
    // Rows with several keys of which some are similar, as (keys, similar ones, weight of each): (4, 1, 1/2), (5, 1, 1/3) and (7, 3, 1/4).
    let rows = [(4.0, 1.0, 0.5), (5.0, 1.0, 1.0 / 3.0), (7.0, 3.0, 0.25)];
    let sum = |power: i32| -> f64 {
        rows.iter()
            .map(|(keys, similar, weight): &(f64, f64, f64)| weight.powi(power) * similar * (1.0 - similar / keys))
            .sum()
    };
    close(table.heads[1].score(HeadScore::Semantic), sum(1) / (sum(0) * sum(2)).sqrt());
}

/// Three words, of which the first one is the syntactic head of the others, and the pair of the second and the first.
fn annotations(home: &std::path::Path) -> Annotations {
    let [conllu, pairs] = ["a.conllu", "a.tsv"].map(|name| home.join(name));
    let row = |id, form, head, relation| format!("{id}\t{form}\t_\t_\t_\t_\t{head}\t{relation}\t_\t_\n");
    let rows = [row(1, "b", 0, "root"), row(2, "aa", 1, "nsubj"), row(3, "ca", 1, "obj")];
    std::fs::write(&conllu, rows.concat()).unwrap();
    std::fs::write(&pairs, "b aa ca\taa\tb\nb aa ca\t0:1\t2:4\n").unwrap();
    Annotations { syntax: read_conllu(&conllu).unwrap(), pairs: read_pairs(&pairs).unwrap() }
}

#[test]
fn a_head_from_words_to_their_syntactic_head_is_found() {
    let home = tempfile::tempdir().unwrap();
    let table = HeadTable::measure_with(&drawn_to_b(), &["abcab"], &annotations(home.path())).unwrap();
    let [aa, ca] = [(1.0 / 3.0 + 1.0 / 4.0) / 2.0, (1.0 / 6.0 + 1.0 / 7.0) / 2.0]; // the weight of b for one who sees all alike
    close(table.heads[0].score(HeadScore::Syntactic), (aa + ca) / 2.0);
    close(table.heads[1].score(HeadScore::Syntactic), 1.0);
    // A language model sees the earlier word from the later one, whichever is the mention.
    close(table.heads[0].score(HeadScore::Coreference), aa);
    close(table.heads[1].score(HeadScore::Coreference), 1.0);
    let rows: Vec<_> = table.relations.iter().map(|row| (row.relation.as_str(), row.head, row.offset)).collect();
    assert_eq!(rows, [("nsubj", [0, 1], -1), ("obj", [0, 1], -2)]);
    assert!(table.relations.iter().all(|row| row.baseline == 1.0 && (row.weight - 1.0).abs() < 1e-4));
    let json = table.to_json();
    assert!(json["heads"][1]["syntactic"].is_f64() && json["relations"][0]["relation"] == "nsubj", "{json}");
    let plain = HeadTable::measure(&drawn_to_b(), &["abcab"]).unwrap();
    assert!(!plain.to_text().contains("syntax") && plain.to_json()[0].get("coreference").is_none());
}

#[test]
fn an_encoder_sees_links_both_ways_and_its_texts_may_be_the_annotated_ones() {
    let home = tempfile::tempdir().unwrap();
    let annotations = annotations(home.path());
    let table = HeadTable::measure_with(&encoder(), &[] as &[&str], &annotations).unwrap();
    let rows: Vec<_> = table.relations.iter().map(|row| (row.relation.as_str(), row.direction.name())).collect();
    assert_eq!(rows, [("nsubj", "to_head"), ("nsubj", "from_head"), ("obj", "to_head"), ("obj", "from_head")]);
    assert!(table.relations.iter().all(|row| row.count == 1 && row.weight > 0.0 && row.weight < 1.0));
    let has = |score| table.heads[0].score(score).is_some();
    assert!(has(HeadScore::Entropy) && has(HeadScore::Coreference) && !has(HeadScore::Copying));

    let mut long = annotations;
    long.syntax[0].text = "b aa ca".repeat(9);
    let problem = HeadTable::measure_with(&language(), &[] as &[&str], &long).unwrap_err().to_string();
    assert!(problem.starts_with("line 1 of `") && problem.contains("a.conllu"), "{problem}");
    assert!(problem.contains("63 tokens, but the model reads 16"), "{problem}");
}

#[test]
fn without_autodiff_there_is_no_gradient_and_of_an_encoder_no_loss() {
    let scores = |model: &TextModel| {
        let head = HeadTable::measure(model, &["abcab"]).unwrap().heads.remove(0);
        [HeadScore::Entropy, HeadScore::Ablation, HeadScore::Gradient].map(|score| head.score(score).is_some())
    };
    assert_eq!((scores(&language()), scores(&encoder())), ([true, true, false], [true, false, false]));
    let message = |texts: &[&str]| HeadTable::measure(&language(), texts).unwrap_err().to_string();
    assert!(message(&[]).contains("no text to read"));
    assert!(message(&["a"]).starts_with("the text is of one token"));
    assert!(message(&["abc", "a"]).starts_with("line 2: the text is of one token"));
}

#[test]
fn patching_restores_nothing_before_the_difference_and_all_at_the_end() {
    let question = PatchQuestion { clean: "ab fox", corrupted: "ab hox", answer: "x", wrong: "y" };
    let grid = PatchGrid::measure(&language(), &question).unwrap();
    assert_eq!((grid.layers.as_slice(), grid.shares[0].len()), (&[0, 1][..], 6));
    assert!(
        grid.shares.iter().all(|row| row[..3].iter().all(|share| share.abs() < 1e-3)),
        "both begin alike: {:?}",
        grid.shares
    );
    assert!((grid.shares[1][5] - 1.0).abs() < 1e-2, "the last token behind the last layer is all: {:?}", grid.shares);
    assert!(grid.to_text().contains("f/h"));
    let json = grid.to_json();
    assert!(json["layers"][1] == 1 && json["shares"][0].as_array().is_some_and(|row| row.len() == 6), "{json}");

    let message = |question| PatchGrid::measure(&language(), &question).unwrap_err().to_string();
    let long = message(PatchQuestion { corrupted: "ab boxes", ..question });
    assert!(long.contains("6 tokens and the corrupted one 8"), "{long}");
    let two = message(PatchQuestion { answer: "xy", ..question });
    assert!(two.contains("--answer \"xy\" is 2 tokens"), "{two}");
    let same = message(PatchQuestion { corrupted: question.clean, ..question });
    assert!(same.contains("nothing is to be restored"), "{same}");
    let encoder = PatchGrid::measure(&encoder(), &question).unwrap_err().to_string();
    assert!(encoder.contains("answers with no token"), "{encoder}");
}

#[test]
fn probes_read_off_what_the_tokens_say() {
    let text = |text: String, label: &str| LabelledText { text, pair: None, label: label.into(), line: 1 };
    let texts = |lengths: std::ops::Range<usize>| -> Vec<LabelledText> {
        lengths.flat_map(|length| [text("a".repeat(length), "a"), text("b".repeat(length), "b")]).collect()
    };
    let table = ProbeTable::measure(&planted(&Device::default()), &texts(1..6), &texts(6..9)).unwrap();
    let paths: Vec<&str> = table.layers.iter().map(|layer| layer.path.as_str()).collect();
    assert_eq!((paths, table.baseline), (vec!["embedding", "blocks.0.output"], 0.5));
    assert_eq!((table.layers[0].fitted, table.layers[0].held_out), (1.0, 1.0), "the letter is in the embedding");
    let long = ProbeTable::measure(&language(), &texts(15..18), &texts(1..2)).unwrap_err().to_string();
    assert!(long.starts_with("line 1: ") && long.contains("17 tokens, but the model reads 16"), "{long}");
}

#[test]
fn a_pruned_run_is_read_back_with_smaller_matrices_and_the_same_output() {
    let (home, device) = (tempfile::tempdir().unwrap(), Device::default());
    let run = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
    let mut model = config().init(&device);
    // Nothing is read of head 1 of layer 0, so that the model stays the same without it.
    let Mixer::Attention(attention) = &mut model.transformer.blocks[0].attention else { panic!("an attention") };
    let read = attention.output.weight.val().narrow(0, 0, 8);
    let kept = Tensor::cat(vec![read, Tensor::zeros([8, 16], &device)], 0);
    attention.output.weight = Param::from_tensor(kept).into();
    run.write_config(TASK, &config()).unwrap();
    save_weights(&model, run.weights_path(&Checkpoint::Last)).unwrap();
    bytes().save(run.tokenizer()).unwrap();

    let out = home.path().join("pruned");
    let pruned = prune_heads(&run, &Checkpoint::Last, &[[0, 1]], &out, &device).unwrap();
    let read: LanguageModelConfig = pruned.read_config(TASK).unwrap();
    let heads: Vec<usize> = read.transformer.layers.iter().map(|layer| layer.block.attention.n_heads).collect();
    assert_eq!(heads, [1, 2]);
    let smaller = TextGenerator::load_from(&out, &Checkpoint::Last, &device).unwrap();
    let Mixer::Attention(attention) = &smaller.model().transformer.blocks[0].attention else { panic!("an attention") };
    assert_eq!(attention.output.weight.val().dims(), [8, 16]);
    let hidden = |model: &LanguageModel| {
        let tokens = right_padded(&[[1u32, 5, 2, 7]], &device).0;
        let hidden = model.hidden(tokens, &SequenceInput::default(), &mut Pass::default());
        hidden.into_data().iter::<f64>().collect::<Vec<_>>()
    };
    let (found, expected) = (hidden(smaller.model()), hidden(&model));
    let largest = expected.iter().fold(0.0, |largest: f64, number| largest.max(number.abs()));
    // The output projection sums half of the terms, in another order; the others are zeros.
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * largest;
    assert!(found.len() == expected.len() && largest > 0.0, "{found:?}");
    assert!(found.iter().zip(&expected).all(is_near), "{found:?}, and {expected:?} of the whole");

    let message = |heads: &[[usize; 2]]| {
        let out = home.path().join("other");
        let problem = prune_heads(&run, &Checkpoint::Last, heads, &out, &device).unwrap_err();
        assert!(problem.is_user_error() && !out.exists(), "{problem}");
        problem.to_string()
    };
    assert!(message(&[[2, 0]]).contains("no layer 2 in the model: choose from 0 to 1"));
    assert!(message(&[[0, 5]]).contains("n_heads = 2"));
    assert!(message(&[[1, 0], [1, 1]]).contains("no head would be left"));
}

#[test]
fn the_vectors_of_a_word_are_the_means_over_its_tokens() {
    let model = language();
    let texts = ["the fox", "a fox ran"];
    for layer in [None, Some(0), Some(1)] {
        let question = EmbeddingQuestion { word: Some("fox"), layer };
        let map = embedding_figure(&model, &texts, &question).unwrap().maps.remove(0);
        assert_eq!((&map.rows[0][..], &map.rows[1][..]), ("1: the fox", "2: a fox ran"));
        let vectors = [(texts[0], 4), (texts[1], 2)].map(|(text, from)| {
            let read = model.read(text).unwrap();
            let hidden: Tensor<3> = match layer {
                None => model.hidden(&read, &mut Pass::default()),
                Some(layer) => {
                    let path = format!("blocks.{layer}.output");
                    let mut hooks = Hooks::new().record(path.as_str());
                    let (_, found) = hooks.run(|pass| model.hidden(&read, pass)).unwrap();
                    found.get(&path).unwrap()
                }
            };
            hidden.narrow(1, from, 3).mean_dim(1).try_into_vec_as::<f32>().unwrap()
        });
        let expected = cosine_similarities(&vectors, &vectors);
        assert!(near(&map.values, &expected), "{:?} is not {expected:?}", map.values);
    }
}

#[test]
fn encoders_compare_the_tokens_of_a_word_between_those_around_the_text() {
    let model = encoder();
    let question = EmbeddingQuestion { word: Some("bank"), layer: None };
    let map = embedding_figure(&model, &["a bank near the bank"], &question).unwrap().maps.remove(0);
    assert_eq!(map.rows, ["1: a bank near the ", "2:  near the bank"].map(String::from));
    let all = embedding_figure(&model, &["a b"], &EmbeddingQuestion::default()).unwrap().maps.remove(0);
    assert_eq!(all.rows.len(), model.read("a b").unwrap().ids.len());
    let means = |values: &[Vec<f64>], row: usize| values[row][row];
    assert!((means(&all.values, 0) - 1.0).abs() < 1e-5 && (means(&map.values, 1) - 1.0).abs() < 1e-5);
}

#[test]
fn words_and_layers_that_are_not_there_are_told() {
    let model = language();
    let fails = |texts: &[&str], word, layer| {
        embedding_figure(&model, texts, &EmbeddingQuestion { word, layer }).unwrap_err().to_string()
    };
    let part = fails(&["a fox", "foxes"], Some("fox"), None);
    assert!(part.contains("the word \"fox\" does not stand in the text \"foxes\""), "{part}");
    let layer = fails(&["a fox"], None, Some(2));
    assert!(layer.contains("no layer 2 in the model: choose from 0 to 1"), "{layer}");
    let long = fails(&["a text of 17 byte"], None, None);
    assert!(long.contains("17 tokens, but the model reads 16"), "{long}");
    assert!(fails(&[], None, None).contains("the number of vectors = 0"));
}
