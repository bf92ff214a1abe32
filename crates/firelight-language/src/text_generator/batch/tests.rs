use super::*;
use crate::text_generator::tests::generator;

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
fn groups_hold_what_fits_into_the_context() {
    let always = |_, _| true;
    assert_eq!(groups(&[3, 1, 4, 9, 2, 2], 5, 12, always), [0..3, 3..4, 4..6]);
    assert_eq!(groups(&[1; 40], 5, 12, always), [0..16, 16..32, 32..40]);
    assert_eq!(groups(&[1, 1], 50, 12, always), [0..1, 1..2]);
    assert_eq!(groups(&[1, 2, 7, 8], 1, 12, |past, len| (past < 6) == (len < 6)), [0..2, 2..4]);
}
