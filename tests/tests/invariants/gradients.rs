//! Autodiff against slopes.

use std::collections::BTreeSet;

use crate::support::Noise;
use crate::support::grid::{cross_decoder_pairs, decoder_pairs, encoder_pairs, language_models};
use crate::support::slopes::{assert_gradients_are_slopes, assert_gradients_of_a_loss_are_slopes};

#[test]
fn gradients_are_slopes() {
    let (mut noise, mut of_final_norms) = (Noise::new(6), BTreeSet::new());
    for config in [decoder_pairs(), encoder_pairs(), cross_decoder_pairs()].concat() {
        let gradients = assert_gradients_are_slopes(&config, 4, &mut noise);
        of_final_norms.extend(gradients.into_keys().filter(|path| path.starts_with("stack.norm.")));
    }
    assert_eq!(Vec::from_iter(of_final_norms), ["stack.norm.beta", "stack.norm.gamma"]);
}

#[test]
fn gradients_of_the_loss_of_a_language_model_are_slopes() {
    let (mut noise, mut of_heads) = (Noise::new(7), BTreeSet::new());
    for config in language_models() {
        let gradients = assert_gradients_of_a_loss_are_slopes(&config, &mut noise);
        of_heads.extend(gradients.into_keys().filter(|path| path.starts_with("model.head.")));
    }
    assert_eq!(Vec::from_iter(of_heads), ["model.head.bias", "model.head.weight"]);
}
