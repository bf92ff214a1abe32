//! Translators read a source as the tokenizer of their folder frames it, as `transformers` does.

use burn::tensor::Device;
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_kernels::Difference;
use firelight_pretrained::{Array, Arrays, ForwardOptions, Numbers, PublishedModel};
use firelight_seq2seq::Translator;

use crate::damaged::copy;

/// The log-probabilities that the model of a folder gives to `own` after a source, of framed ids: those of the decoder that reads `start`
/// and all of them but the last.
fn log_probabilities(model: &PublishedModel, source: &[i64], start: i64, own: &[i64]) -> Vec<f64> {
    let mut inputs = Arrays::default();
    let read = [&[start], &own[..own.len() - 1]].concat();
    for (name, ids) in [("input_ids", source.to_vec()), ("decoder_input_ids", read)] {
        inputs.insert(name, Array { shape: vec![1, ids.len()], numbers: Numbers::Integers(ids) });
    }
    let device = Device::default();
    let found = model.load(&device).unwrap().forward(&inputs, ForwardOptions::default(), &device).unwrap();
    let Some(Array { shape, numbers: Numbers::Floats(logits) }) = found.get("logits") else { panic!("no logits") };
    let rows = logits.chunks(shape[2]).zip(own);
    let log_sum = |row: &[f32]| row.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
    rows.map(|(row, &id)| f64::from(row[id as usize]) - log_sum(row)).collect()
}

#[test]
fn a_published_bart_scores_a_source_with_the_tokens_around_it() {
    let home = copy("bart-plain");
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
    let (tokenizer, _) = tokenizer.with_special_tokens(&["<s>", "</s>"]).unwrap().with_frame(3, 4).unwrap();
    tokenizer.save(home.path().join("tokenizer.json")).unwrap();
    let (model, run) = (PublishedModel::open(home.path()).unwrap(), home.path().join("run"));
    model.import(&run).unwrap();

    let score = Translator::load(&run).unwrap().score("ab", "ba", 0).unwrap();
    let own: Vec<i64> = score.tokens.iter().map(|token| i64::from(token.id)).collect();
    assert_eq!(own[..2], [1, 0], "behind them is the end token");
    let found: Vec<f64> = score.scores().map(|score| score.log_probability).collect();
    // 2 is decoder_start_token_id, and the difference to the same source without `<s>` is 0.007.
    let differs = |source: &[i64]| Difference::between(&found, &log_probabilities(&model, source, 2, &own)).absolute;
    assert!(differs(&[3, 0, 1, 4]) < 1e-4, "{found:?}");
    assert!(differs(&[0, 1, 4]) > 1e-3, "{found:?}");
}
