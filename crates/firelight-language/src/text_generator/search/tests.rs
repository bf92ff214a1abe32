use firelight_generation::{Constraint, ContrastiveOptions, GenerationError, History, LogitsProcessor, Processing};

use super::*;
use crate::text_generator::tests::generator;

fn texts(found: &[GeneratedText]) -> Vec<&str> {
    found.iter().map(|sample| sample.text.as_str()).collect()
}

#[test]
fn samples_of_one_seed_differ_and_the_first_is_the_text_of_the_seed() {
    let (generator, options) = (generator(), GenerationOptions::new(20).with_temperature(1.0).with_seed(3));
    let found = generator.generate_samples("abc", 5, &options).unwrap();
    assert_eq!(found[0], generator.generate("abc", &options).unwrap());
    let distinct: std::collections::BTreeSet<&str> = texts(&found).into_iter().collect();
    assert_eq!((found.len(), distinct.len()), (5, 5), "{distinct:?}");
    assert_eq!(texts(&generator.generate_samples("abc", 2, &options).unwrap()), texts(&found)[..2]);
    let other = generator.generate_samples("abc", 5, &options.clone().with_seed(4)).unwrap();
    assert_ne!(texts(&other), texts(&found));
    // Beyond the context the window moves, with a cache and without.
    assert_eq!(texts(&generator.without_cache().generate_samples("abc", 5, &options).unwrap()), texts(&found));
}

#[test]
fn the_best_of_several_texts_has_the_most_probable_tokens() {
    let (generator, options) = (generator(), GenerationOptions::new(6).with_temperature(2.0).with_seed(1));
    let all = generator.generate_samples("abc", 7, &options.clone().with_logprobs(0)).unwrap();
    let mean = GeneratedText::mean_log_probability;
    let best = generator.generate_best("abc", 7, &options).unwrap();
    assert!(all.iter().all(|text| mean(text) <= mean(&best)) && all.contains(&best));
    assert!(mean(&best) > mean(&all[0]), "the first of these draws is not the best");
    // The text is scored as a given one is.
    let given = generator.score(&format!("abc{}", best.text), &crate::ScoreOptions::default()).unwrap();
    let last: Vec<f64> = given.tokens[3..].iter().map(|token| token.score.as_ref().unwrap().log_probability).collect();
    firelight_kernels::assert_close(
        &best.scores.iter().map(|score| score.log_probability).collect::<Vec<_>>(),
        &last,
        1e-4,
    );
    assert!(generator.generate_best("abc", 0, &options).unwrap_err().to_string().starts_with("samples is 0"));
}

#[test]
fn the_best_of_a_batch_is_the_best_of_texts_drawn_in_other_batches() {
    let (generator, options) =
        (generator(), GenerationOptions::new(6).with_temperature(2.0).with_seed(1).with_logprobs(0));
    let drawn = |sample: usize| generator.generate_samples("abc", sample + 1, &options).unwrap().remove(sample);
    let all: Vec<GeneratedText> = (0..18).map(drawn).collect();
    let mut best = &all[0];
    for (sample, text) in all.iter().enumerate() {
        if text.mean_log_probability() > best.mean_log_probability() {
            best = text;
        }
        assert_eq!(&generator.generate_best("abc", sample + 1, &options).unwrap().ids, &best.ids, "{sample}");
    }
    assert_ne!(best.ids, all[0].ids, "the first of these draws is not the best");
}

#[test]
fn one_beam_is_greedy_and_more_find_no_less_probable_texts() {
    let generator = generator();
    let greedy = generator.generate("abc", &GenerationOptions::new(6).greedy()).unwrap();
    let search = |beams: usize| {
        let options = BeamOptions::new(6).with_beams(beams).with_n_best(beams).with_length_penalty(0.0);
        generator.search("abc", &options).unwrap()
    };
    assert_eq!((&search(1)[0].0, &search(1)[0].1.ids), (&greedy.text, &greedy.ids));
    let five = search(5);
    assert_eq!(five.len(), 5);
    assert!(five[0].1.score >= search(1)[0].1.score && five.is_sorted_by(|a, b| a.1.score >= b.1.score));
}

#[test]
fn stop_strings_end_the_texts_of_searches_as_those_of_other_ways() {
    let generator = generator();
    let whole = generator.generate("abc", &GenerationOptions::new(8).greedy()).unwrap().text;
    let stop = &whole[3..5]; // two tokens, for a character is one
    let greedy = generator.generate("abc", &GenerationOptions::new(8).greedy().with_stop_strings([stop])).unwrap();
    assert_eq!(greedy.stop_reason, StopReason::StopString(0));
    let (text, found) =
        generator.search("abc", &BeamOptions::new(8).with_beams(1).with_stop_strings([stop])).unwrap().remove(0);
    assert_eq!((text, found.ids, found.stop_reason), (greedy.text.clone(), greedy.ids.clone(), greedy.stop_reason));
    let contrast = ContrastiveOptions::new(8).with_contrast(3, 0.0).with_stop_strings([stop]);
    assert_eq!(generator.contrast("abc", &contrast).unwrap(), greedy);
    // Only spaces do not end a text.
    let letters: Vec<String> = ('a'..='h').map(String::from).collect();
    let several = BeamOptions::new(8).with_beams(4).with_n_best(4).with_stop_strings(letters);
    let found = generator.search("abc", &several).unwrap();
    assert!(found.iter().any(|(_, found)| matches!(found.stop_reason, StopReason::StopString(_))), "{found:?}");
    assert!(found.iter().all(|(text, _)| text.chars().all(|character| character == ' ')), "{found:?}");
}

/// Fails at a new token.
#[derive(Clone, Debug)]
struct FailsAt {
    token: usize,
    is_there: bool,
}

impl LogitsProcessor for FailsAt {
    fn process(&mut self, history: &History<'_>, _: &mut [f64]) {
        self.is_there = history.new_ids().len() == self.token;
    }

    fn failure(&mut self) -> Option<GenerationError> {
        let reason = "it is lost".to_string();
        std::mem::take(&mut self.is_there).then_some(GenerationError::Device { reason })
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

#[test]
fn a_search_that_fails_has_the_best_text_before_the_error() {
    let (generator, options) = (generator(), BeamOptions::new(3).with_beams(1));
    let whole = generator.search("abc", &options).unwrap().remove(0).0;
    let failing = options.with_processor(FailsAt { token: 2, is_there: false });
    let error = generator.search("abc", &failing).unwrap_err();
    assert!(error.to_string().ends_with("it is lost") && !error.is_user_error(), "{error}");
    let written = GenerationError::texts_before(&error);
    assert_eq!((written.len(), written[0].ids.len()), (1, 2));
    assert!(!written[0].text.is_empty() && whole.starts_with(&written[0].text), "{whole:?} {written:?}");
}

#[test]
fn a_constrained_text_that_an_error_ends_is_completed_in_every_way_of_decoding() {
    let generator = generator();
    let constraint = Constraint::regex("[a-g]{4,}h", generator.tokenizer()).unwrap();
    let processing = Processing { constraint: Some(constraint.clone()), ..Processing::default() };
    let processing = processing.with_processor(FailsAt { token: 2, is_there: false });
    let drawn = GenerationOptions::new(30).with_seed(3).with_processing(processing.clone());
    let beams = BeamOptions::new(30).with_beams(2).with_processing(processing.clone());
    let contrasted = ContrastiveOptions::new(30).with_processing(processing);
    for error in [
        generator.generate("abc", &drawn).unwrap_err(),
        generator.generate_samples("abc", 2, &drawn).unwrap_err(),
        generator.search("abc", &beams).unwrap_err(),
        generator.contrast("abc", &contrasted).unwrap_err(),
    ] {
        let texts = GenerationError::texts_before(&error);
        assert!(!texts.is_empty() && error.to_string().ends_with("it is lost"), "{error}");
        assert!(texts.iter().all(|text| constraint.accepts(&text.text)), "{texts:?}");
    }
}
