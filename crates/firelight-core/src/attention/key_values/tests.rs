//! Buffers that are filled, rolled on, cut and joined.

use super::*;
use burn::tensor::{Device, TensorData};

fn row(values: &[f32], device: &Device) -> Tensor<4> {
    Tensor::<1>::from_floats(values, device).reshape([1, 1, values.len(), 1])
}

fn extend(layer: &mut KeyValues, values: &[f32]) -> Vec<f32> {
    let device = Device::default();
    let (key, value) = layer.append(row(values, &device), row(values, &device));
    key.clone().into_data().assert_eq(&value.into_data(), true);
    key.try_to_vec_as::<f32>().expect("a host copy")
}

fn room(layer: &KeyValues) -> usize {
    layer.buffers.as_ref().expect("filled").0.length()
}

#[test]
fn steps_append_and_an_emptied_state_serves_another_batch() {
    let device = Device::default();
    let mut layer = KeyValues::new(None, 4);
    layer.append(row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
    let (key, _) = layer.append(row(&[3.0], &device), row(&[3.0], &device));
    key.into_data().assert_eq(&TensorData::from([[[[1.0f32], [2.0], [3.0]]]]), false);
    assert_eq!(layer.len, 3);
    layer.truncate(0);
    assert_eq!(layer.len, 0);
    // Emptied, it serves another batch size.
    let two = Tensor::<4>::ones([2, 1, 1, 1], &device);
    assert_eq!(layer.append(two.clone(), two).0.dims(), [2, 1, 1, 1]);
}

#[test]
fn buffers_grow_and_keep_what_they_hold() {
    let mut layer = KeyValues::new(None, 150);
    let values: Vec<f32> = (0..150).map(|i| i as f32).collect();
    let mut rooms = Vec::new();
    for (i, part) in values.chunks(30).enumerate() {
        assert_eq!(extend(&mut layer, part), values[..30 * (i + 1)]);
        rooms.push(room(&layer));
    }
    assert_eq!(rooms, [32, 64, 128, 128, 150]);
}

#[test]
fn a_rolling_buffer_has_a_bound_and_all_that_is_in_sight() {
    let values: Vec<f32> = (0..2000).map(|i| i as f32).collect();
    // A window of 20 back; parts below, at and above what a buffer holds.
    for part in [1, 7, 64, 100, 148, 149, 400] {
        let mut layer = KeyValues::new(Some(20), usize::MAX);
        let mut start: usize = 0;
        for part in values.chunks(part) {
            let end = start + part.len();
            assert_eq!(extend(&mut layer, part), values[start.saturating_sub(20)..end]);
            assert!(room(&layer) <= 20 + 2 * KeyValues::SPARE, "{}", room(&layer));
            start = end;
        }
        assert_eq!(layer.bytes(), 4 * 2 * (20 + 2 * KeyValues::SPARE));
    }
}

#[test]
fn the_last_64_tokens_of_a_rolling_buffer_can_be_forgotten_at_any_time() {
    for part in [1, 7, 64, 100, 400] {
        let mut layer = KeyValues::new(Some(20), usize::MAX);
        let mut length: usize = 0;
        while length < 1200 {
            let new: Vec<f32> = (length..length + part).map(|i| i as f32).collect();
            extend(&mut layer, &new);
            length += part;
            let back = length.saturating_sub(64);
            assert!(layer.can_truncate(back), "{length} tokens in parts of {part}");
            let mut guess = layer.clone();
            guess.truncate(back);
            let mut expected: Vec<f32> = (back.saturating_sub(20)..back).map(|i| i as f32).collect();
            expected.push(-1.0);
            assert_eq!(extend(&mut guess, &[-1.0]), expected);
        }
        assert!(!layer.can_truncate(500) && layer.can_truncate(0));
    }
}

#[test]
fn a_window_longer_than_the_capacity_is_a_full_cache() {
    let mut layer = KeyValues::new(Some(usize::MAX), 100);
    let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
    extend(&mut layer, &values[..90]);
    assert_eq!(extend(&mut layer, &values[90..]), values);
    assert!(layer.can_truncate(1) && room(&layer) == 100);
}

#[test]
fn rows_are_reordered_and_repeated() {
    let device = Device::default();
    let mut layer = KeyValues::new(None, 1);
    let batch = Tensor::<1>::from_floats([1.0, 2.0], &device).reshape([2, 1, 1, 1]);
    layer.append(batch.clone(), batch);
    layer.select_rows(&Tensor::from_ints([1, 1, 0], &device));
    let (keys, _) = layer.buffers.expect("filled");
    assert_eq!(keys.floats().try_to_vec_as::<f32>().expect("a host copy"), [2.0, 2.0, 1.0]);
}

#[test]
#[should_panic(expected = "a cache of 1 tokens cannot hold 2")]
fn a_full_cache_panics() {
    extend(&mut KeyValues::new(None, 1), &[1.0, 2.0]);
}

#[test]
#[should_panic(expected = "a state of d_head = 1 was given d_head = 2: the cache was made for another stack")]
fn a_state_of_other_widths_panics() {
    let mut state = KeyValues::new(None, 4);
    extend(&mut state, &[1.0]);
    let wide = Tensor::zeros([1, 1, 1, 2], &Device::default());
    state.append(wide.clone(), wide);
}

#[test]
fn joined_rows_end_together_and_go_on_as_they_would_alone() {
    // All of a text, and the last 20 tokens of one: before and after they begin to forget.
    for (max_lookback, lengths) in [(None, [3, 7]), (None, [7, 3]), (Some(20), [5, 400]), (Some(20), [400, 290])] {
        let states = lengths.map(|length| {
            let mut state = KeyValues::new(max_lookback, 1000);
            (0..length).for_each(|i| drop(extend(&mut state, &[i as f32])));
            state
        });
        let [mut joined, other] = states.clone();
        joined.join(other.boxed());
        let longest = lengths[0].max(lengths[1]);
        assert_eq!(joined.len(), longest);
        let two = Tensor::<4>::from_floats([[[[-1.0]]], [[[-2.0]]]], &Device::default());
        let (keys, _) = joined.append(two.clone(), two);
        for (row, (mut alone, new)) in states.into_iter().zip([-1.0, -2.0]).enumerate() {
            let expected = extend(&mut alone, &[new]);
            let found = keys.clone().narrow(0, row, 1).try_to_vec_as::<f32>().expect("a host copy");
            assert!(found.ends_with(&expected), "{found:?} ends with {expected:?}");
        }
    }
}

#[test]
fn a_state_that_has_read_nothing_adds_no_rows() {
    let mut emptied = KeyValues::new(None, 4);
    extend(&mut emptied, &[7.0, 8.0]);
    emptied.truncate(0);
    let mut full = KeyValues::new(None, 4);
    extend(&mut full, &[1.0]);
    for (mut one, other) in [(emptied.clone(), full.clone()), (full, emptied)] {
        one.join(other.boxed());
        assert_eq!(extend(&mut one, &[2.0]), [1.0, 2.0]);
    }
}

#[test]
#[should_panic(
    expected = "a state that keeps all tokens is no RecurrentState<4>: the cache was made for another stack"
)]
fn a_state_of_another_kind_is_refused() {
    let mut state = KeyValues::new(None, 1).boxed();
    state.expect_mut::<crate::state::RecurrentState<4>>();
}
