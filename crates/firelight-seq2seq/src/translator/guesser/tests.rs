use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Device;
use firelight_core::ParamBuilder;
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_generation::{Constraint, Drafter, History, Processing, beam_search};
use firelight_kernels::assert_close;

use super::*;
use crate::translator::tests::{config, texts, translator};
use crate::vocabulary::Vocabulary;

/// A translator with the tokens of the other ones and random weights, for sources and targets of so many tokens.
fn draft(seed: u64, max_seq_len: usize) -> Translator {
    let vocabulary = translator().vocabulary;
    let config = config(&vocabulary).with_max_seq_len(max_seq_len);
    Translator::new(config.init_with(&ParamBuilder::new(&Device::default(), seed)), vocabulary)
}

/// Translators that guess: from the text, by the model itself, by another one, and by one that is too short for most lines.
fn guessing() -> [Translator; 4] {
    [
        translator().with_lookup(PromptLookup::default()),
        translator().with_draft(translator(), 4).unwrap(),
        translator().with_draft(draft(7, 9), 8).unwrap(),
        translator().with_draft(draft(0, 4), 8).unwrap(),
    ]
}

#[test]
fn guesses_change_no_translation() {
    let lines = ["abc", "", "hgfedcba", "a", "cabc"];
    let penalised = Processing { repetition_penalty: 1.7, min_new_tokens: 3, ..Processing::default() };
    for (processing, length_penalty) in [(Processing::default(), 1.0), (Processing::default(), 0.0), (penalised, 1.0)] {
        let options = TranslateOptions { processing, length_penalty, ..TranslateOptions::greedy() };
        let expected = translator().translate_with(&lines, &options, |_| ()).unwrap();
        for guessing in guessing() {
            let mut heard = Vec::new();
            let found = guessing.translate_with(&lines, &options, |done| heard.push(done)).unwrap();
            assert_eq!((texts(&found), heard), (texts(&expected), vec![2, 3, 4, 5]), "{:?}", guessing.guesser);
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert_eq!(found.ids, expected.ids);
                if options.processing == Processing::default() {
                    assert_close(&[found.score], &[expected.score], 1e-4);
                }
            }
        }
    }
}

#[test]
fn guesses_go_on_behind_a_first_token_that_is_forced() {
    let (lines, options) = (["abc", "hgfedcba"], TranslateOptions::greedy());
    let forced = |translator: Translator| {
        let translator = translator.with_defaults(serde_json::from_str(r#"{"forced_bos_token_id": 3}"#).unwrap());
        texts(&translator.translate_with(&lines, &options, |_| ()).unwrap())
    };
    let expected = forced(translator());
    for guessing in guessing() {
        assert_eq!(forced(guessing), expected);
    }
}

#[test]
fn what_guesses_cannot_keep_the_same_is_refused() {
    let constraint = Constraint::regex("[a-h ]+", translator().vocabulary().target()).unwrap();
    let processing = Processing { constraint: Some(constraint), ..Processing::default() };
    let greedy = TranslateOptions::greedy();
    let [looking, drafting, ..] = guessing();
    for (options, told) in [
        (TranslateOptions { beams: 5, ..greedy.clone() }, "but 5 beams are searched; search with one beam (--beams 1)"),
        (
            TranslateOptions { early_stopping: EarlyStopping::Never, ..greedy.clone() },
            "and end with it, but early stopping is `never`; stop early (--early-stopping heuristic)",
        ),
        (TranslateOptions { processing, ..greedy }, "without a constraint, but there is one; leave the constraint out"),
    ] {
        for (guessing, option) in [(&looking, "--prompt-lookup"), (&drafting, "--draft")] {
            let error = guessing.translate_with(&["abc"], &options, |_| ()).unwrap_err();
            let expected =
                format!("guesses ({option}) are for one text at a time, {told}, or translate without guesses");
            assert_eq!((error.to_string(), error.is_user_error()), (expected, true));
        }
    }
}

#[test]
fn a_draft_has_the_tokens_of_both_sides() {
    let refused = |source: Option<&str>, target: &str| {
        let tokenizer = |text: &str| Tokenizer::train(&TokenizerConfig::Char, text).unwrap();
        let vocabulary = Vocabulary::new(source.map(tokenizer), tokenizer(target)).unwrap();
        let error = translator().with_draft(Translator::new(translator().model, vocabulary), 4).unwrap_err();
        assert!(error.is_user_error());
        error.to_string()
    };
    let told = "has another vocabulary: it has `z`, where the model has `h`; take one with the model's own tokenizer";
    assert_eq!(refused(None, "abcdefgz "), format!("the target of the draft {told}"));
    assert_eq!(refused(Some("abcdefgz "), "abcdefgh "), format!("the source of the draft {told}"));
}

#[test]
fn bans_of_both_models_reach_the_draft_whenever_they_are_named() {
    let written = |translator: &Translator| {
        let Some(Guesser::Draft(draft)) = &translator.guesser else { panic!("no draft") };
        let (model, options) = (draft.restricted(draft.model()), BeamOptions::new(4).with_beams(1));
        beam_search(&model, vec![vec![3, 4, 5]], &options).unwrap().remove(0).remove(0).ids
    };
    let usual = written(&translator().with_draft(translator(), 4).unwrap())[0];
    let banning = |translator: Translator| {
        translator.with_defaults(serde_json::from_str(&format!(r#"{{"suppress_tokens": [{usual}]}}"#)).unwrap())
    };
    for drafting in [
        banning(translator()).with_draft(translator(), 4),
        translator().with_draft(banning(translator()), 4),
        translator().with_draft(translator(), 4).map(banning),
    ] {
        let ids = written(&drafting.unwrap());
        assert!(ids.len() == 4 && !ids.contains(&usual), "{ids:?} without {usual}");
    }
}

/// Guesses what follows in a text that it knows.
struct Knowing {
    text: Vec<u32>,
    asked: Arc<AtomicUsize>,
}

impl Drafter for Knowing {
    fn guess(&mut self, history: &History<'_>, most: usize) -> Result<Vec<u32>, GenerationError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(self.text.iter().copied().skip(history.new_ids().len()).take(most).collect())
    }
}

#[test]
fn right_guesses_are_read_at_once() {
    let translator = translator();
    let model = translator.model();
    let options = BeamOptions::new(8).with_beams(1);
    let plain = beam_search(model, vec![vec![3, 4, 5]], &options).unwrap().remove(0).remove(0);
    let asked = Arc::new(AtomicUsize::new(0));
    let knowing = Knowing { text: plain.ids.clone(), asked: asked.clone() };
    let found = guessed(model, vec![3, 4, 5], knowing, &options).unwrap();
    assert_eq!((found.ids, plain.ids.len()), (plain.ids, 8));
    assert!((1..4).contains(&asked.load(Ordering::Relaxed)), "asked {asked:?} times for 8 tokens");
}
