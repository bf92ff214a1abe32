use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::mock::{Pairs, chi_squared};
use crate::{
    Autoregressive, GenerationDefaults, GenerationOptions, Processing, Sampling, StopReason, TokenStream, generate,
};

/// A model of six tokens whose distributions differ from place to place; `shift` makes another one of it.
fn model(shift: f64) -> Pairs {
    Pairs::from_probabilities(6, |before, last| {
        let weights: [f64; 6] = std::array::from_fn(|id| {
            let angle = f64::from(before * 7 + last * 3) + 2.0 * id as f64;
            (1.5 * angle.sin() + shift * (3.0 * angle).cos()).exp()
        });
        weights.map(|weight| weight / weights.iter().sum::<f64>())
    })
}

const PROMPT: [u32; 5] = [1, 2, 0, 1, 2];

fn plain(options: &GenerationOptions) -> (Vec<u32>, StopReason) {
    let mut found = generate(&model(0.0), vec![PROMPT.to_vec()], options, |_| ControlFlow::Continue(())).unwrap();
    (std::mem::take(&mut found[0].ids), found[0].stop_reason)
}

/// The text with a drafter, and how often the model was asked.
fn drafted(options: &GenerationOptions, drafter: impl Drafter) -> ((Vec<u32>, StopReason), usize) {
    let model = model(0.0);
    let mut tokens = TokenStream::new(&model, vec![PROMPT.to_vec()], options).unwrap().with_drafter(drafter);
    let ids = tokens.by_ref().filter_map(|step| step.unwrap()[0]).collect();
    ((ids, tokens.stops()[0].unwrap()), model.rows_read().len())
}

/// Guesses the same number for each place, right or wrong, known or not.
struct Stubborn(u32, usize);

impl Drafter for Stubborn {
    fn guess(&mut self, _: &History<'_>, _: usize) -> Result<Vec<u32>, GenerationError> {
        Ok(vec![self.0; self.1])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn guesses_change_no_text(
        seed in 0u64..1000, temperature in 0.3f64..2.0, greedy: bool, most in 0usize..40, stop in 0u32..9,
        penalty in 1.0f64..1.6, (id, length) in (0u32..9, 0usize..12), shift in 0.0f64..1.0,
    ) {
        let options = GenerationOptions::new(most).with_temperature(temperature).with_seed(seed);
        let processing = Processing { repetition_penalty: penalty, ..Processing::default() };
        let options = options.with_stop_tokens([stop]).with_processing(processing);
        let options = if greedy { options.with_sampling(Sampling::Greedy) } else { options };
        let expected = plain(&options);
        prop_assert_eq!(&drafted(&options, PromptLookup::default()).0, &expected);
        prop_assert_eq!(&drafted(&options, Stubborn(id, length)).0, &expected);
        for (model, confidence) in [(model(0.0), 0.0), (model(shift), 0.0), (model(shift), 0.3)] {
            let draft = ModelDrafter::new(&model, &options).unwrap().with_tokens(5).with_confidence(confidence);
            prop_assert_eq!(&drafted(&options, draft).0, &expected);
        }
    }
}

#[test]
fn drafted_tokens_have_the_distribution_of_the_model() {
    let expected = [0.3, 0.25, 0.2, 0.15, 0.06, 0.04];
    let (model, other) = (
        Pairs::from_probabilities(6, move |_, _| expected),
        Pairs::from_probabilities(6, |_, _| [0.1, 0.2, 0.3, 0.1, 0.2, 0.1]),
    );
    let written = |seed| {
        let options = GenerationOptions::new(1_000).with_temperature(1.0).with_seed(seed);
        let draft = ModelDrafter::new(&other, &options).unwrap().with_tokens(4).with_confidence(0.0);
        let tokens = TokenStream::new(&model, vec![PROMPT.to_vec()], &options).unwrap().with_drafter(draft);
        tokens.map(|step| step.unwrap()[0].unwrap()).collect::<Vec<_>>()
    };
    let found: Vec<u32> = (0..10).flat_map(written).collect();
    let asked = model.rows_read().len();
    assert!(found.len() == 10_000 && (3_000..9_500).contains(&asked), "{asked} steps: guesses right and wrong");
    let statistic = chi_squared(&found, &expected);
    assert!(statistic < 20.5, "{statistic}");
    assert!(chi_squared(&found, &[0.3, 0.25, 0.2, 0.15, 0.04, 0.06]) > 100.0);
}

#[test]
fn a_draft_that_agrees_saves_steps_and_one_that_does_not_saves_none() {
    let options = GenerationOptions::new(30).with_temperature(1.0).with_seed(3);
    let asked = |drafter: &dyn Fn(&'static Pairs) -> ModelDrafter<'static, Pairs>, shift| {
        drafted(&options, drafter(Box::leak(Box::new(model(shift))))).1
    };
    let draft = |model: &'static Pairs| ModelDrafter::new(model, &options).unwrap().with_tokens(4).with_confidence(0.0);
    // The prompt, and 29 tokens in parts of five: the first token comes with the prompt, the last is not read.
    assert_eq!(asked(&draft, 0.0), 1 + 6);
    let other = asked(&draft, 0.6);
    assert!(other > 7 && other < 25, "{other}");
    assert_eq!(drafted(&options, Stubborn(8, 3)).1, 30, "an id that the model does not know is no guess");
}

#[test]
fn a_text_that_repeats_itself_is_read_in_parts() {
    // 0 1 2 3 4 5 0 1 2 ..., which the model is sure of.
    let sure = Pairs::from_probabilities(6, |_, last| {
        std::array::from_fn::<f64, 6, _>(|id| if id as u32 == (last + 1) % 6 { 0.99 } else { 0.002 })
    });
    let options = GenerationOptions::new(60).greedy();
    let prompt = vec![vec![4, 5]];
    let mut tokens = TokenStream::new(&sure, prompt, &options).unwrap().with_drafter(PromptLookup::default());
    let ids: Vec<u32> = tokens.by_ref().filter_map(|step| step.unwrap()[0]).collect();
    assert_eq!(ids, (0..60).map(|id| id % 6).collect::<Vec<_>>());
    // Five steps until 5 comes again, and then parts that grow from six tokens to the ten of a guess.
    assert!(sure.rows_read().len() <= 14, "{:?}", sure.rows_read().len());
}

#[test]
fn a_model_without_room_is_read_step_by_step() {
    let counting = crate::mock::Successor::new(8);
    let options = GenerationOptions::new(5).greedy();
    let mut tokens = TokenStream::new(&counting, vec![vec![1]], &options).unwrap().with_drafter(Stubborn(3, 4));
    assert_eq!(tokens.by_ref().filter_map(|step| step.unwrap()[0]).collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    assert_eq!((counting.steps(), counting.room(&counting.prefill(vec![vec![1]]).unwrap().1)), (4, 0));
}

#[test]
fn a_draft_confident_of_nothing_guesses_nothing() {
    let flat = Pairs::from_probabilities(6, |_, _| [1.0 / 6.0; 6]);
    let options = GenerationOptions::new(9).with_temperature(1.0);
    let mut draft = ModelDrafter::new(&flat, &options).unwrap();
    assert_eq!(draft.guess(&History::new(&PROMPT, 5), 9).unwrap(), [0; 0]);
    let mut draft = draft.with_confidence(0.1).with_tokens(3);
    let found = draft.guess(&History::new(&PROMPT, 5), 9).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(draft.guess(&History::new(&PROMPT, 5), 2).unwrap(), found[..2], "it goes back and finds the same");
}

#[test]
fn a_draft_guesses_no_id_that_is_never_written() {
    // Its favourites are 5, then 4, then 3, each with at least half of what is left.
    let favourites = || Pairs::from_probabilities(6, |_, _| [0.01, 0.02, 0.02, 0.05, 0.1, 0.8]);
    let guessed = |draft: DraftModel<Pairs>| {
        let mut drafter = draft.drafter(draft.model(), &GenerationOptions::new(9).greedy()).unwrap();
        drafter.guess(&History::new(&PROMPT, 5), 9).unwrap()
    };
    let banning = |text: &str| serde_json::from_str::<GenerationDefaults>(text).unwrap();
    let (fifth, fourth) = (banning(r#"{"suppress_tokens": [5]}"#), banning(r#"{"bad_words_ids": [[4], [9], [3, 3]]}"#));
    assert_eq!(guessed(DraftModel::new(favourites(), 6, 2)), [5, 5]);
    assert_eq!(guessed(DraftModel::new(favourites(), 5, 2)), [4, 4], "the tokenizer has five ids");
    assert_eq!(guessed(DraftModel::new(favourites(), 6, 3).without_banned(&fifth)), [4, 4, 4]);
    assert_eq!(guessed(DraftModel::new(favourites(), 6, 2).without_banned(&fifth).without_banned(&fourth)), [3, 3]);
    assert_eq!(guessed(DraftModel::new(favourites(), 5, 1).without_banned(&fourth)), [3]);
}
