//! Replaced-token detection: what a small generator would have put behind the masks stands in the text, and the model is to
//! tell of every token whether it is the text's own. Source: Clark et al. 2020, ELECTRA, section 2
//! (<https://arxiv.org/abs/2003.10555>).

use super::{MaskedText, NoiseSeed, STREAM};
use crate::dice::Dice;

/// Keeps these draws apart from the mask of the same item.
const DRAWS: u64 = STREAM ^ 2;

/// Numbers from 0 to below 1 that decide which tokens a generator's probabilities give for the item's `count` chosen places.
pub fn generator_draws(seed: NoiseSeed, count: usize) -> Vec<f64> {
    let dice = &mut Dice::of(&[seed.seed, seed.epoch, seed.index, DRAWS]);
    (0..count).map(|_| dice.fraction()).collect()
}

/// The text with the generator's tokens, and which of its tokens are replaced. A token that the generator got right is not.
///
/// `sampled` are the generator's tokens for the chosen places of `masked`, in their order.
///
/// # Panics
/// Panics if the texts have different lengths or if there are not as many tokens as chosen places.
pub fn replaced_tokens(ids: &[u32], masked: &MaskedText, sampled: &[u32]) -> (Vec<u32>, Vec<bool>) {
    assert_eq!(ids.len(), masked.chosen.len(), "a mask tells about every token of its text");
    let places = masked.chosen.iter().filter(|chosen| **chosen).count();
    assert_eq!(places, sampled.len(), "a token for each of the {places} chosen places");
    let mut sampled = sampled.iter();
    let token = |(&id, &chosen): (&u32, &bool)| if chosen { sampled.next().copied().unwrap_or(id) } else { id };
    let corrupted: Vec<u32> = ids.iter().zip(&masked.chosen).map(token).collect();
    let replaced = corrupted.iter().zip(ids).map(|(found, id)| found != id).collect();
    (corrupted, replaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_papers_figure_comes_out() {
        // Figure 2: the chef cooked the meal; `the` and `cooked` are masked, the generator says `the` and `ate`.
        let (the, chef, cooked, meal, ate, mask) = (1, 2, 3, 4, 5, 9);
        let masked =
            MaskedText { inputs: vec![mask, chef, mask, the, meal], chosen: vec![true, false, true, false, false] };
        let (corrupted, replaced) = replaced_tokens(&[the, chef, cooked, the, meal], &masked, &[the, ate]);
        assert_eq!(corrupted, [the, chef, ate, the, meal]);
        assert_eq!(replaced, [false, false, true, false, false]);
    }

    #[test]
    fn draws_are_a_function_of_seed_epoch_and_item() {
        let at = |epoch, index| generator_draws(NoiseSeed { seed: 7, epoch, index }, 3);
        assert_eq!(at(0, 0), at(0, 0));
        assert!(at(0, 0) != at(1, 0) && at(0, 0) != at(0, 1) && at(0, 0).iter().all(|draw| (0.0..1.0).contains(draw)));
    }

    #[test]
    #[should_panic(expected = "a token for each of the 1 chosen places")]
    fn places_without_a_token_panic() {
        replaced_tokens(&[1], &MaskedText { inputs: vec![0], chosen: vec![true] }, &[]);
    }

    proptest! {
        #[test]
        fn only_chosen_places_change(tokens in prop::collection::vec((0_u32..9, any::<bool>(), 0_u32..9), 0..40)) {
            let ids: Vec<u32> = tokens.iter().map(|(id, ..)| *id).collect();
            let chosen: Vec<bool> = tokens.iter().map(|(_, chosen, _)| *chosen).collect();
            let sampled: Vec<u32> = tokens.iter().filter(|(_, chosen, _)| *chosen).map(|(.., token)| *token).collect();
            let (corrupted, replaced) = replaced_tokens(&ids, &MaskedText { inputs: ids.clone(), chosen }, &sampled);
            prop_assert_eq!([corrupted.len(), replaced.len()], [tokens.len(); 2]);
            for (((id, chosen, token), found), replaced) in tokens.iter().zip(corrupted).zip(replaced) {
                prop_assert_eq!(found, if *chosen { *token } else { *id });
                prop_assert_eq!(replaced, found != *id);
            }
        }
    }
}
