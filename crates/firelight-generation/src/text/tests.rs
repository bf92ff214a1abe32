use firelight_data::{Tokenizer, TokenizerConfig};

use super::*;
use crate::mock::Successor;

/// Ids are bytes, and the model counts upwards.
fn run(prompt: u32, tokens: usize, observe: impl FnMut(&str) -> ControlFlow<()>) -> GeneratedText {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    let options = GenerationOptions::new(tokens).greedy();
    generate_text(&Successor::new(256), vec![vec![prompt]], tokenizer.stream(), &options, observe).unwrap()
}

#[test]
fn the_pieces_are_the_text() {
    let mut pieces = Vec::new();
    let generated = run(u32::from(b'a'), 3, |piece| {
        pieces.push(piece.to_string());
        ControlFlow::Continue(())
    });
    assert_eq!(generated.text, "bcd");
    assert_eq!(generated.ids, [98, 99, 100]);
    assert_eq!(pieces, ["b", "c", "d"]);
}

#[test]
fn samples_are_decoded_as_streams_are() {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    let (model, options) = (Successor::new(256), GenerationOptions::new(9).with_temperature(20.0).with_seed(4));
    let samples = generate_text_samples(&model, vec![vec![97]], 3, &tokenizer.stream(), &options).unwrap();
    let stream = tokenizer.stream();
    let first = generate_text(&model, vec![vec![97]], stream, &options, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((samples.len(), &samples[0]), (3, &first));
    assert!(samples[1].ids != first.ids && samples[2].ids != first.ids, "{samples:?}");
    assert!(samples.iter().all(|sample| sample.text == tokenizer.decode(&sample.ids) && sample.ids.len() == 9));
}

#[test]
fn a_character_that_never_came_whole_is_marked_at_the_end() {
    let mut pieces = Vec::new();
    let generated = run(0xC2, 1, |piece| {
        pieces.push(piece.to_string());
        ControlFlow::Continue(())
    });
    assert_eq!(generated.text, "\u{FFFD}"); // 0xC3 starts a character of two bytes
    assert_eq!(pieces.concat(), generated.text);
}

fn until(stops: &[&str], tokens: usize) -> (GeneratedText, Vec<String>) {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    let options = GenerationOptions::new(tokens).greedy().with_stop_strings(stops.iter().copied());
    let mut pieces = Vec::new();
    let text = generate_text(&Successor::new(256), vec![vec![97]], tokenizer.stream(), &options, |piece| {
        pieces.push(piece.to_string());
        ControlFlow::Continue(())
    });
    (text.unwrap(), pieces)
}

#[test]
fn a_stop_string_ends_a_text_and_is_none_of_it() {
    let (found, pieces) = until(&["xx", "ef", "efg"], 20);
    assert_eq!((found.text.as_str(), found.stop_reason), ("bcd", StopReason::StopString(1)));
    assert_eq!(found.ids, [98, 99, 100, 101, 102]);
    assert_eq!(pieces, ["b", "c", "d"], "the e is held back");
    // What only began like one is given out late, and at the end at last.
    let (found, pieces) = until(&["dex"], 4);
    assert_eq!((found.text.as_str(), found.stop_reason), ("bcde", StopReason::MaxNewTokens));
    assert_eq!(pieces, ["b", "c", "de"]);
    assert_eq!(until(&["b"], 4).0.text, "");
}

#[test]
fn of_overlapping_stop_strings_the_first_in_the_text_ends_it() {
    assert_eq!(until(&["de", "cde", "d"], 9).0.stop_reason, StopReason::StopString(2));
    assert_eq!(until(&["fgh", "gh"], 9).0.text, "bcde");
}

#[test]
fn each_sample_stops_by_itself() {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    let options = GenerationOptions::new(30).with_temperature(20.0).with_seed(4);
    let all = |options: &GenerationOptions| {
        generate_text_samples(&Successor::new(256), vec![vec![97]], 5, &tokenizer.stream(), options).unwrap()
    };
    let whole = all(&options);
    assert_eq!(whole.len(), 5);
    let stop = whole[0].text.chars().nth(8).unwrap().to_string();
    let stopped = all(&options.with_stop_strings([stop.clone()]));
    assert_eq!(stopped.len(), whole.len());
    for (whole, stopped) in whole.iter().zip(&stopped) {
        assert_eq!(stopped.text, whole.text.split(&stop).next().unwrap());
        assert!(whole.ids.starts_with(&stopped.ids));
    }
    assert_eq!(stopped[0].stop_reason, StopReason::StopString(0));
}

#[test]
fn the_caller_may_break_off() {
    let generated = run(u32::from(b'a'), 9, |_| ControlFlow::Break(()));
    assert_eq!((generated.text.as_str(), generated.stop_reason), ("b", StopReason::Caller));
}

#[test]
fn an_error_has_the_text_before_it_and_what_was_held_back_is_given_out() {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    let options = GenerationOptions::new(9).greedy().with_stop_strings(["def"]);
    let (model, mut pieces) = (Successor::new(256).broken_after(4), Vec::new());
    let error = generate_text(&model, vec![vec![97]], tokenizer.stream(), &options, |piece| {
        pieces.push(piece.to_string());
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err();
    assert!(error.to_string().starts_with("the model's logits for new token 4 are not finite"), "{error}");
    let [text] = error.texts() else { panic!("{error:?}") };
    assert_eq!(
        (text.text.as_str(), &text.ids[..], text.stop_reason),
        ("bcde", &[98, 99, 100, 101][..], StopReason::Failed)
    );
    assert_eq!(pieces, ["b", "c", "de"]);
}

#[test]
fn texts_of_samples_stay_where_a_later_one_fails() {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
    let (model, options) = (Successor::new(256).broken_after(5), GenerationOptions::new(4).greedy());
    let error = generate_text_samples(&model, vec![vec![97]], 18, &tokenizer.stream(), &options).unwrap_err();
    let texts: Vec<&str> = error.texts().iter().map(|row| row.text.as_str()).collect();
    assert_eq!(texts, [vec!["bcde"; 16], vec!["bc"; 2]].concat());
}
