use burn::tensor::Device;
use firelight_core::ParamBuilder;
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_generation::{Drafter, History};

use super::*;
use crate::text_generator::tests::{config, generator};

#[test]
fn guesses_change_no_text_even_far_beyond_the_context() {
    let draft =
        || TextGenerator::new(config().init_with(&ParamBuilder::new(&Device::default(), 1)), generator().tokenizer);
    let lookup = PromptLookup::default();
    for options in [GenerationOptions::new(40).greedy(), GenerationOptions::new(40).with_temperature(1.0).with_seed(5)]
    {
        let expected = generator().generate("abcabc", &options).unwrap();
        let guessing = [
            generator().with_lookup(lookup),
            generator().without_cache().with_lookup(lookup),
            generator().with_draft(draft(), 4).unwrap(),
            generator().with_draft(generator(), 3).unwrap(),
        ];
        for generator in guessing {
            assert_eq!(generator.generate("abcabc", &options).unwrap(), expected);
        }
    }
    let other = TextGenerator::new(generator().model, Tokenizer::train(&TokenizerConfig::Char, "abcdefgz ").unwrap());
    let error = generator().with_draft(other, 4).unwrap_err();
    assert!(error.is_user_error());
    assert_eq!(
        error.to_string(),
        "the draft has another vocabulary: it has `z`, where the model has `h`; take one with the model's own tokenizer"
    );
}

#[test]
fn a_ban_that_is_named_after_the_draft_reaches_it() {
    let text = [0, 1, 2];
    let first = |generator: &TextGenerator| {
        let Some(Guesser::Draft(draft)) = &generator.guesser else { panic!("no draft") };
        let drafter = draft.drafter(draft.model(), &GenerationOptions::new(9).greedy()).unwrap();
        drafter.with_confidence(0.0).guess(&History::new(&text, text.len()), 1).unwrap()[0]
    };
    let drafting = generator().with_draft(generator(), 4).unwrap();
    let usual = first(&drafting);
    let banning = serde_json::from_str(&format!(r#"{{"suppress_tokens": [{usual}]}}"#)).unwrap();
    assert_ne!(first(&drafting.with_defaults(banning)), usual);
}
