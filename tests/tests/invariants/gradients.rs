//! Autodiff against slopes.

use crate::support::Noise;
use crate::support::grid::{cross_decoder_pairs, decoder_pairs, encoder_pairs};
use crate::support::slopes::assert_gradients_are_slopes;

#[test]
fn gradients_are_slopes() {
    let mut noise = Noise::new(6);
    for config in [decoder_pairs(), encoder_pairs(), cross_decoder_pairs()].concat() {
        assert_gradients_are_slopes(&config, 4, &mut noise);
    }
}
