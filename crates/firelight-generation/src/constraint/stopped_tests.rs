//! Constrained texts that their reader or an error stops in the middle.

use std::ops::ControlFlow;

use firelight_data::{Tokenizer, TokenizerConfig};

use super::Constraint;
use crate::mock::Successor;
use crate::{
    BeamOptions, GeneratedText, GenerationError, GenerationOptions, Processing, StopReason, beam_search, generate,
    generate_text,
};

/// Ids are bytes, and the model counts upwards.
fn bytes() -> Tokenizer {
    Tokenizer::train(&TokenizerConfig::Byte, "").unwrap()
}

fn rules(pattern: &str) -> Processing {
    Processing { constraint: Some(Constraint::regex(pattern, &bytes()).unwrap()), ..Processing::default() }
}

/// What is written behind an `a` by a model that breaks after so many logits, to a reader who stops after so many pieces, with the pieces.
fn written(pattern: &str, sound: usize, most: usize) -> (Result<GeneratedText, GenerationError>, Vec<String>) {
    let options = GenerationOptions::new(99).greedy().with_processing(rules(pattern));
    let (model, mut pieces) = (Successor::new(256).broken_after(sound), Vec::new());
    let found = generate_text(&model, vec![vec![97]], bytes().stream(), &options, |piece| {
        pieces.push(piece.to_string());
        if pieces.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    (found, pieces)
}

#[test]
fn a_text_that_its_reader_stops_is_completed() {
    let (found, pieces) = written("([a-z]*[.]){2}", usize::MAX, 3);
    let found = found.unwrap();
    assert_eq!((found.text.as_str(), found.stop_reason), ("bcd..", StopReason::Caller));
    assert_eq!(found.ids, b"bcd..".map(u32::from));
    assert_eq!(pieces, ["b", "c", "d", ".."], "the reader gets the rest, too");
    assert_eq!(written("[a-z]*", usize::MAX, 3).0.unwrap().text, "bcd", "it is complete where it is stopped");
}

#[test]
fn a_text_that_an_error_ends_is_completed_if_it_was_begun() {
    let (found, pieces) = written("[a-z]*[.]", 3, 99);
    let error = found.unwrap_err();
    assert!(error.to_string().starts_with("the model's logits for new token 3 are not finite"), "{error}");
    let [text] = error.texts() else { panic!("{error:?}") };
    assert_eq!((text.text.as_str(), text.stop_reason), ("bcd.", StopReason::Failed));
    assert_eq!(pieces, ["b", "c", "d", "."]);
    let (found, pieces) = written("[a-z]*[.]", 0, 99);
    assert!(found.unwrap_err().texts().is_empty() && pieces.is_empty(), "nothing was written, and nothing is");
}

#[test]
fn rows_of_ids_are_completed() {
    let options = GenerationOptions::new(99).greedy().with_processing(rules("[a-z]*[.]"));
    let prompt = || vec![vec![97], vec![107]];
    let mut left = 2;
    let stopped = generate(&Successor::new(256), prompt(), &options, |_| {
        left -= 1;
        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let stopped: Vec<Vec<u32>> = stopped.unwrap().into_iter().map(|row| row.ids).collect();
    let expected = [b"bc.".map(u32::from), b"lm.".map(u32::from)];
    assert_eq!(stopped, expected);
    let broken = Successor::new(256).broken_after(2);
    let error = generate(&broken, prompt(), &options, |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.texts().iter().map(|row| row.ids.clone()).collect::<Vec<_>>(), expected);
}

#[test]
fn the_best_of_a_search_that_an_error_ends_is_completed() {
    let options = BeamOptions::new(99).with_beams(2).with_processing(rules("[a-z]*[.]"));
    let error = beam_search(&Successor::new(256).broken_after(3), vec![vec![97]], &options).unwrap_err();
    let [text] = error.texts() else { panic!("{error:?}") };
    assert_eq!(text.ids, b"bcd.".map(u32::from));
}
