//! What attention sees of a compressed past.

use super::{AttentionConfig, KeyValues, rotate};
use crate::cache::Cache;
use crate::context::AttentionContext;
use crate::heads::{merge_heads, split_heads};
use crate::init::ParamBuilder;
use crate::pass::Pass;
use crate::position::{PositionScheme, Positions, RotaryConfig};
use crate::state::{Compression, State};
use burn::tensor::{Device, Distribution, Tensor};
use firelight_kernels::{AttentionMask, AttentionOptions, assert_close, attention};

fn compressing(recent: usize, rate: usize) -> KeyValues {
    let mut state = KeyValues::new(None, 1000);
    assert!(state.compress(Compression { recent, rate }));
    state
}

/// The keys that the queries of new tokens see, whose values are ten times as large.
fn extend(state: &mut KeyValues, keys: &[f32]) -> Vec<f32> {
    let row = Tensor::<1>::from_floats(keys, &Device::default()).reshape([1, 1, keys.len(), 1]);
    let (keys, values) = state.append(row.clone(), row * 10.0);
    assert_close(&values, &(keys.clone() * 10.0), 1e-3);
    keys.try_to_vec_as::<f32>().expect("a host copy")
}

#[test]
fn two_old_tokens_become_their_mean_before_the_next_pass() {
    let mut state = compressing(2, 2);
    assert_eq!(extend(&mut state, &[1.0, 2.0, 3.0, 4.0, 5.0]), [1.0, 2.0, 3.0, 4.0, 5.0]);
    // 3 of 5 are old: a set of two, and one that waits.
    assert_eq!(state.keys(1), 1..6);
    assert_eq!(extend(&mut state, &[6.0]), [1.5, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(extend(&mut state, &[7.0]), [1.5, 3.5, 5.0, 6.0, 7.0]);
    assert_eq!(extend(&mut state, &[8.0, 9.0]), [1.5, 3.5, 5.0, 6.0, 7.0, 8.0, 9.0]);
    assert_eq!((state.len(), state.keys(1)), (9, 3..10));
    assert_eq!(state.keeps(), "the last 2 tokens and the mean of every 2 before them");
}

#[test]
fn what_looks_back_a_short_way_is_not_compressed() {
    let mut state = KeyValues::new(Some(3), 1000);
    assert!(!state.compress(Compression { recent: 1, rate: 2 }));
    (0..9).for_each(|i| drop(extend(&mut state, &[i as f32])));
    assert_eq!(state.keys(1), 6..10);
}

/// The means of all whole sets of old tokens, then the others.
fn slowly(tokens: &[f32], Compression { recent, rate }: Compression) -> Vec<f32> {
    let sets = tokens[..tokens.len().saturating_sub(recent)].chunks_exact(rate);
    let means: Vec<f32> = sets.map(|set| set.iter().sum::<f32>() / rate as f32).collect();
    [&means[..], &tokens[rate * means.len()..]].concat()
}

#[test]
fn any_parts_leave_whole_sets_and_a_memory_with_a_bound() {
    let tokens: Vec<f32> = (0..300).map(|i| i as f32).collect();
    for (recent, rate, part) in [(5, 2, 1), (16, 4, 1), (16, 4, 3), (7, 3, 11), (1, 10, 4), (40, 16, 50), (9, 1, 1)] {
        let (compression, mut state, mut start) = (Compression { recent, rate }, compressing(recent, rate), 0);
        for part in tokens.chunks(part) {
            let expected = [slowly(&tokens[..start], compression), part.to_vec()].concat();
            assert_close(&extend(&mut state, part), &expected, 1e-3);
            let keys = compression.keys(start);
            assert_eq!(keys + part.len(), expected.len());
            if keys < start {
                let room = (keys + part.len() + rate).next_multiple_of(16);
                assert!(state.bytes() <= 2 * 4 * room, "{} bytes, {start} tokens, {compression:?}", state.bytes());
            }
            start += part.len();
        }
    }
}

#[test]
fn tokens_of_one_pass_are_read_as_one_by_one_while_there_is_room() {
    for compression in [Compression { recent: 4, rate: 3 }, Compression { recent: 1, rate: 5 }] {
        for len in 0..40 {
            let same = (1..).take_while(|more| compression.first(len + more) == compression.first(len));
            assert_eq!(compression.room(len), same.count() + 1, "{compression:?} behind {len}");
        }
    }
}

#[test]
fn a_state_goes_back_to_the_last_pass_and_no_further_than_it_is_compressed() {
    let mut state = compressing(4, 2);
    (0..20).for_each(|i| drop(extend(&mut state, &[i as f32])));
    let back: Vec<usize> = (0..=20).filter(|&len| state.can_truncate(len)).collect();
    // Behind 19 tokens 7 sets were old, as they are behind 18.
    assert_eq!(back, [0, 18, 19, 20]);
    let mut guess = state.clone();
    extend(&mut guess, &[-1.0, -2.0, -3.0]);
    guess.truncate(20);
    for new in [20.0, 21.0] {
        assert_eq!(extend(&mut guess, &[new]), extend(&mut state, &[new]));
    }
    guess.truncate(0);
    assert_eq!(extend(&mut guess, &[5.0]), [5.0]);
}

#[test]
#[should_panic(expected = "texts of 3 and 2 tokens cannot join where the past is compressed")]
fn texts_of_other_lengths_do_not_join() {
    let [mut one, mut other] = [compressing(4, 2), compressing(4, 2)];
    extend(&mut one, &[1.0, 2.0, 3.0]);
    extend(&mut other, &[1.0, 2.0]);
    one.join(other.boxed());
}

#[test]
fn attention_to_a_compressed_past_is_attention_to_means_of_keys_that_were_turned() {
    let (device, length) = (Device::default(), 9);
    let layer = AttentionConfig::new(8, 2).init_with(&ParamBuilder::new(&device, 0));
    let rotary = RotaryConfig::default().init(4);
    let x = Tensor::<3>::random([2, length, 8], Distribution::Normal(0.0, 1.0), &device);
    let context = |start: usize, length: usize| AttentionContext {
        rotation: rotary.rotation(&Positions::contiguous(start, length), &device),
        ..AttentionContext::masked(AttentionMask::causal())
    };
    let mut cache = Cache::new([compressing(3, 2).boxed()], length);
    let mut read = |start: usize, length: usize| {
        let x = x.clone().narrow(1, start, length);
        layer.forward(x, &context(start, length), &mut Pass::cached(&mut cache).layer(0))
    };
    read(0, 8);
    let found = read(8, 1);

    let [query, key, value] = layer.projection.project(x.clone()).map(|x| split_heads(x, 2));
    let query = rotate(query, &context(0, length)).narrow(2, 8, 1);
    let key = rotate(key, &context(0, length));
    // 5 of 8 tokens are old and make two sets.
    let mean = |x: &Tensor<4>, start: usize| x.clone().narrow(2, start, 2).mean_dim(2);
    let pooled = |x: Tensor<4>| Tensor::cat(vec![mean(&x, 0), mean(&x, 2), x.narrow(2, 4, 5)], 2);
    let heads = attention(query, pooled(key), pooled(value), &AttentionOptions::default());
    assert_close(&found, &layer.output.forward(merge_heads(heads)), 1e-5);
}
