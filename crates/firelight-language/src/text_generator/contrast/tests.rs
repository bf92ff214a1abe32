use burn::tensor::Device;
use firelight_core::ParamBuilder;
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_generation::{BeamOptions, GenerationOptions};

use super::*;
use crate::ContextOverflow;
use crate::text_generator::tests::{config, generator};

/// Within the context of the model, behind a prompt of three tokens.
const TOKENS: usize = 8;

fn contrasted(top_k: usize, alpha: f64) -> GeneratedText {
    let options = ContrastiveOptions::new(TOKENS).with_contrast(top_k, alpha);
    generator().contrast("abc", &options).unwrap()
}

#[test]
fn a_search_without_contrast_is_greedy() {
    let greedy = generator().generate("abc", &GenerationOptions::new(TOKENS).greedy()).unwrap();
    assert_eq!(contrasted(4, 0.0), greedy);
    assert_eq!(contrasted(1, 0.6), greedy);
    let contrast = contrasted(4, 1.0);
    assert!(contrast.text != greedy.text && contrast.text.len() == TOKENS, "{contrast:?}");
    let error = generator().contrast("abc", &ContrastiveOptions::new(9).with_contrast(0, 2.0)).unwrap_err();
    assert!(error.is_user_error());
    assert!(error.to_string().ends_with("penalty_alpha is 2, expected a number from 0 to 1"), "{error}");
}

#[test]
fn of_a_prompt_that_slides_none_is_kept_as_of_its_text() {
    let keeping = generator().with_kept(3).unwrap().with_context_overflow(ContextOverflow::Slide);
    let options = ContrastiveOptions::new(TOKENS);
    let found = keeping.contrast("abcdefghhgfedcba", &options).unwrap(); // four tokens too many: six go
    assert_eq!(found, generator().contrast("ghhgfedcba", &options).unwrap());
}

#[test]
fn prompts_are_contrasted_together_as_they_are_alone() {
    let prompts = ["abc", "d", "az", "hgfed cb", "", "fe", "gab", "abcdefgh abcdef"];
    let own = |row: usize| ContrastiveOptions::new(2 + row % 3).with_contrast(1 + row % 4, 0.7);
    let options: Vec<ContrastiveOptions> = (0..prompts.len()).map(own).collect();
    let told = |found: Result<GeneratedText, TaskError>| found.map_err(|error| error.to_string());
    for generator in [generator(), generator().with_context_overflow(ContextOverflow::Stop)] {
        let together = generator.contrast_each_with(&prompts, &options);
        assert_eq!(together.len(), prompts.len());
        for (row, found) in together.into_iter().enumerate() {
            let alone = generator.contrast(prompts[row], &options[row]);
            assert_eq!(told(found), told(alone), "{:?}", prompts[row]);
        }
    }
}

/// Another model of the same vocabulary.
fn other() -> TextGenerator {
    TextGenerator::new(config().init_with(&ParamBuilder::new(&Device::default(), 1)), generator().tokenizer)
}

fn amateur(strength: f64, plausibility: f64) -> AmateurOptions {
    AmateurOptions { strength, plausibility }
}

#[test]
fn an_amateur_counts_as_far_as_it_differs_and_is_strong() {
    let options = GenerationOptions::new(TOKENS).with_temperature(1.0).with_seed(3);
    let plain = generator().generate("abc", &options).unwrap();
    let with = |model: TextGenerator, strength| {
        let generator = generator().with_amateur(model, amateur(strength, 0.0)).unwrap();
        generator.generate("abc", &options).unwrap()
    };
    assert_eq!(with(other(), 0.0), plain);
    assert_eq!(with(generator(), 2.0), plain, "the model is no weaker than itself");
    assert_ne!(with(other(), 5.0), plain);
    // Only the best token is plausible.
    let generator = generator().with_amateur(other(), amateur(5.0, 1.0)).unwrap();
    let greedy = self::generator().generate("abc", &GenerationOptions::new(TOKENS).greedy()).unwrap();
    assert_eq!(generator.generate("abc", &options).unwrap().ids, greedy.ids);
}

#[test]
fn every_way_of_continuing_has_the_amateur() {
    let generator = generator().with_amateur(other(), amateur(100.0, 0.0)).unwrap();
    let greedy = GenerationOptions::new(TOKENS).greedy();
    let expected = generator.generate("abc", &greedy).unwrap();
    assert_ne!(expected, self::generator().generate("abc", &greedy).unwrap());
    assert_eq!(generator.search("abc", &BeamOptions::new(TOKENS).with_beams(1)).unwrap()[0].0, expected.text);
    assert_eq!(generator.generate_samples("abc", 2, &greedy).unwrap(), [expected.clone(), expected.clone()]);
    let search = ContrastiveOptions::new(TOKENS).with_contrast(4, 0.0);
    assert_eq!(generator.contrast("abc", &search).unwrap(), expected);
}

#[test]
fn an_amateur_reads_each_prompt_of_a_batch_by_itself() {
    let generator = generator().with_amateur(other(), amateur(5.0, 0.0)).unwrap();
    let prompts = ["abc", "d", "hgf", "fe"];
    let alike = |together: Vec<Result<GeneratedText, TaskError>>, alone: &dyn Fn(&str) -> GeneratedText| {
        let together: Vec<GeneratedText> = together.into_iter().map(Result::unwrap).collect();
        assert_eq!(together, prompts.map(alone));
    };
    let drawn = GenerationOptions::new(5).with_temperature(1.5).with_seed(3);
    alike(generator.generate_each(&prompts, &drawn), &|prompt| generator.generate(prompt, &drawn).unwrap());
    let search = ContrastiveOptions::new(5);
    let each = vec![search.clone(); prompts.len()];
    alike(generator.contrast_each_with(&prompts, &each), &|prompt| generator.contrast(prompt, &search).unwrap());
}

#[test]
fn an_amateur_of_another_vocabulary_and_numbers_out_of_range_are_refused() {
    let foreign = Tokenizer::train(&TokenizerConfig::Char, "abcdefgz ").unwrap();
    let foreign = TextGenerator::new(generator().model, foreign);
    let error = generator().with_amateur(foreign, AmateurOptions::default()).unwrap_err();
    assert!(error.is_user_error());
    assert_eq!(
        error.to_string(),
        "the amateur has another vocabulary: it has `z`, where the model has `h`; take one with the model's own tokenizer"
    );
    let problems = amateur(f64::NAN, 1.5).validate().unwrap_err().problems();
    assert_eq!(
        problems,
        [
            "amateur.strength is NaN, expected a finite number of at least 0",
            "amateur.plausibility is 1.5, expected a number from 0 to 1"
        ]
    );
}
