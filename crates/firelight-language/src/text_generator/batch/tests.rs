use burn::tensor::Device;
use firelight_core::ParamBuilder;
use firelight_generation::Processing;

use super::*;
use crate::text_generator::ContextOverflow;
use crate::text_generator::tests::{config, generator};

#[test]
fn prompts_are_continued_together_as_they_are_alone() {
    let options = GenerationOptions::new(5).with_temperature(1.5).with_seed(3);
    let prompts = ["abc", "d", "az", "hgfed cb", "", "fe", "gab", "abcdefgh abcdef"];
    for generator in [generator(), generator().without_cache()] {
        let together = generator.generate_each(&prompts, &options);
        assert_eq!(together.len(), prompts.len());
        for (prompt, found) in prompts.iter().zip(together) {
            let alone = generator.generate(prompt, &options).map_err(|error| error.to_string());
            assert_eq!(found.map_err(|error| error.to_string()), alone, "{prompt:?}");
        }
    }
    assert!(generator().generate_each(&["a"; 0], &options).is_empty());
}

#[test]
fn prompts_that_begin_alike_are_continued_as_they_are_alone() {
    let model = config().with_max_seq_len(40).init_with(&ParamBuilder::new(&Device::default(), 0));
    let generator = TextGenerator::new(model, generator().tokenizer);
    let prompts = ["abcdefghhgfedcba", "abcdefghhgfedcba b", "abcdefghhgfedcbacafe", "abcdefghhgfedcbah"];
    let ids = |prompts: &[&str]| prompts.iter().map(|prompt| generator.encode(prompt).unwrap()).collect::<Vec<_>>();
    assert!(!generator.shares(&ids(&prompts)) && generator.shares(&ids(&prompts[1..])));
    assert!(!generator.shares(&ids(&["abcdefghhgfedcbah", "hbcdefghhgfedcbah"])));
    let options = GenerationOptions::new(9).with_temperature(1.5).with_seed(3);
    for prompts in [&prompts[..], &prompts[1..]] {
        let together = generator.generate_each(prompts, &options);
        for (prompt, found) in prompts.iter().zip(together) {
            assert_eq!(found.unwrap(), generator.generate(prompt, &options).unwrap(), "{prompt:?}");
        }
    }
    let uncached = generator.without_cache();
    assert!(!uncached.shares(&[vec![1; 20], vec![1; 20]]));
}

/// The context holds 12 tokens: with a forced one, the longer prompt has room for 7 of 8 new tokens.
#[test]
fn a_forced_first_token_takes_a_place_in_company_too() {
    let options = GenerationOptions::new(8).greedy();
    for overflow in [ContextOverflow::Stop, ContextOverflow::SlideText] {
        let defaults = serde_json::from_str(r#"{"forced_bos_token_id": 3}"#).unwrap();
        let generator = generator().with_defaults(defaults).with_context_overflow(overflow);
        let prompts = ["abc", "abcd"];
        let together = generator.generate_each(&prompts, &options);
        let together: Vec<GeneratedText> = together.into_iter().map(Result::unwrap).collect();
        let alone: Vec<GeneratedText> =
            prompts.iter().map(|prompt| generator.generate(prompt, &options).unwrap()).collect();
        assert_eq!(together, alone, "{overflow:?}");
        let full = overflow == ContextOverflow::Stop;
        assert_eq!(alone[1].ids.len(), if full { 7 } else { 8 });
    }
}

#[test]
fn prompts_with_options_of_their_own_are_continued_as_they_are_alone() {
    let (generator, prompts) = (generator(), ["abc", "d", "hgf"]);
    let first = |id: u32| Processing { forced_first: vec![id], ..Processing::default() };
    let options = |row: u32| GenerationOptions::new(3 + row as usize).with_seed(row.into()).with_processing(first(row));
    let options = [0, 1, 2].map(options);
    let together = generator.generate_each_with(&prompts, &options);
    for (row, found) in together.into_iter().map(Result::unwrap).enumerate() {
        assert_eq!((found.ids[0], found.ids.len()), (row as u32, 3 + row));
        assert_eq!(found, generator.generate(prompts[row], &options[row]).unwrap());
    }
}

#[test]
fn groups_hold_what_fits_into_the_context() {
    let always = |_, _| true;
    assert_eq!(groups(&[3, 1, 4, 9, 2, 2], 16, (5, 12), always), [0..3, 3..4, 4..6]);
    assert_eq!(groups(&[1; 40], 16, (5, 12), always), [0..16, 16..32, 32..40]);
    assert_eq!(groups(&[1; 5], 2, (5, 12), always), [0..2, 2..4, 4..5]);
    assert_eq!(groups(&[1, 1], 16, (50, 12), always), [0..1, 1..2]);
    assert_eq!(groups(&[1, 2, 7, 8], 16, (1, 12), |past, len| (past < 6) == (len < 6)), [0..2, 2..4]);
}
