use super::*;
use crate::attention::KeyValues;
use crate::state::RecurrentState;

/// A layer for each number of tokens that its queries look back.
fn cache(max_lookback: impl IntoIterator<Item = Option<usize>>, capacity: usize) -> Cache {
    let state = |max_lookback| KeyValues::new(max_lookback, capacity).boxed();
    Cache::new(max_lookback.into_iter().map(state), capacity)
}

fn append(cache: &mut Cache, layer: usize, key: Tensor<4>, value: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
    cache.layer(layer).state.expect_mut::<KeyValues>().append(key, value)
}

fn row(values: &[f32], device: &Device) -> Tensor<4> {
    Tensor::<1>::from_floats(values, device).reshape([1, 1, values.len(), 1])
}

#[test]
fn a_truncated_cache_goes_on_as_if_the_rest_had_never_been() {
    let device = Device::default();
    let mut cache = cache([None], 4);
    cache.extend_padding(Some(Tensor::from_bool([[true, false, false]], &device)), [1, 3]);
    append(&mut cache, 0, row(&[1.0, 2.0, 3.0], &device), row(&[1.0, 2.0, 3.0], &device));
    cache.truncate(9);
    assert_eq!(cache.len(), 3);
    cache.truncate(1);
    let padding = cache.extend_padding(None, [1, 1]).expect("a padded token");
    assert_eq!(padding.into_data().iter::<bool>().collect::<Vec<_>>(), [true, false]);
    let (key, _) = append(&mut cache, 0, row(&[7.0], &device), row(&[7.0], &device));
    assert_eq!(key.try_to_vec_as::<f32>().expect("a host copy"), [1.0, 7.0]);
    cache.truncate(0);
    assert!(cache.is_empty());
}

#[test]
fn padding_is_known_of_every_token_from_the_first_padded_one_on() {
    let device = Device::default();
    let mut cache = cache([None], 4);
    assert!(cache.extend_padding(None, [1, 2]).is_none());
    append(&mut cache, 0, row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
    let padding = Tensor::<2, Bool>::from_bool([[true]], &device);
    let whole = cache.extend_padding(Some(padding), [1, 1]).expect("a padded token");
    assert_eq!(whole.into_data().iter::<bool>().collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn a_token_without_a_document_belongs_to_the_last_one() {
    let device = Device::default();
    let mut cache = cache([None], 4);
    let documents = Tensor::<2, Int>::from_ints([[4, 7]], &device);
    cache.extend_documents(Some(documents), [1, 2]);
    append(&mut cache, 0, row(&[1.0, 2.0], &device), row(&[1.0, 2.0], &device));
    let whole = cache.extend_documents(None, [1, 1]).expect("documents");
    assert_eq!(whole.try_to_vec_as::<i64>().expect("a host copy"), [4, 7, 7]);
}

#[test]
fn selected_tokens_take_other_rows_and_leave_the_memory_where_it_is() {
    let device = Device::default();
    let two = |a: f32, b: f32| Tensor::<1>::from_floats([a, b], &device).reshape([2, 1, 1, 1]);
    let rows = Tensor::<1, Int>::from_ints([1, 1], &device);
    let selected = |select: fn(&mut Cache, &Tensor<1, Int>)| {
        let mut cache = cache([None], 4);
        cache.extend_padding(Some(Tensor::from_bool([[false], [true]], &device)), [2, 1]);
        append(&mut cache, 0, two(1.0, 2.0), two(3.0, 4.0));
        let padding = Some(Tensor::from_bool([[false], [true]], &device));
        cache.layer(0).cross(|| CrossKeyValues { key: two(5.0, 6.0), value: two(7.0, 8.0), padding });
        select(&mut cache, &rows);
        let padding = cache.extend_padding(None, [2, 1]).expect("a padded token").into_data();
        let (key, _) = append(&mut cache, 0, two(9.0, 9.0), two(9.0, 9.0));
        let cross = cache.layer(0).cross(|| unreachable!("it is remembered"));
        let numbers = |x: Tensor<4>| x.try_to_vec_as::<f32>().expect("a host copy");
        let hidden = cross.padding.expect("a padded source").into_data().iter::<bool>().collect::<Vec<_>>();
        (padding.iter::<bool>().collect::<Vec<_>>(), numbers(key), (numbers(cross.key), hidden))
    };
    let padding = vec![true, false, true, false];
    let tokens = vec![2.0, 9.0, 2.0, 9.0];
    let memory = |keys: [f32; 2], padding: [bool; 2]| (keys.to_vec(), padding.to_vec());
    let kept = memory([5.0, 6.0], [false, true]);
    assert_eq!(selected(Cache::select_tokens), (padding.clone(), tokens.clone(), kept));
    assert_eq!(selected(Cache::select_rows), (padding, tokens, memory([6.0, 6.0], [true, true])));
}

/// A cache of one layer that has read some tokens, of one row.
fn read(documents: Option<&[i64]>, length: usize) -> Cache {
    let device = Device::default();
    let mut cache = cache([None], 9);
    cache.begin([1, length], &device);
    let documents = documents.map(|names| Tensor::<1, Int>::from_data(names, &device).unsqueeze());
    cache.extend_documents(documents, [1, length]);
    append(&mut cache, 0, row(&vec![1.0; length], &device), row(&vec![1.0; length], &device));
    cache
}

#[test]
fn the_padding_of_joined_rows_is_of_no_document_of_theirs() {
    let names = |one: Cache, other: Cache| {
        let mut joined = one;
        joined.join(other);
        let rows = joined.batch.as_ref().expect("rows").0;
        let names = joined.extend_documents(None, [rows, 1])?;
        Some(names.try_to_vec_as::<i64>().expect("a host copy"))
    };
    let short = || read(Some(&[4, 7]), 2);
    assert_eq!(names(short(), read(Some(&[5, 5, 3]), 3)), Some(vec![2, 4, 7, 7, 5, 5, 3, 3]));
    // A text without documents is one, whose name is not that of the padding.
    assert_eq!(names(short(), read(None, 3)), Some(vec![3, 4, 7, 7, 4, 4, 4, 4]));
    assert_eq!(names(read(None, 1), short()), Some(vec![3, 4, 4, 4, 7, 7]));
    assert_eq!(names(read(None, 1), read(None, 2)), None);
    // What has read nothing, or has forgotten all, adds no rows.
    let mut emptied = read(Some(&[9]), 1);
    emptied.truncate(0);
    for empty in [emptied, cache([None], 9)] {
        assert_eq!(names(empty.clone(), short()), Some(vec![4, 7, 7]));
        assert_eq!(names(short(), empty), Some(vec![4, 7, 7]));
    }
}

/// A row that stands at these places of two axes.
fn placed<const L: usize>(places: [[f32; 2]; L]) -> Cache {
    let (mut cache, device) = (cache([None], 9), Device::default());
    cache.begin([1, L], &device);
    cache.extend_coordinates(Some(Tensor::<2>::from_floats(places, &device).unsqueeze()), [1, L]);
    append(&mut cache, 0, row(&[1.0; L], &device), row(&[1.0; L], &device));
    cache
}

/// Where all tokens stand once each row has read `length` more, the two coordinates of each beside each other.
fn places_with(mut cache: Cache, length: usize) -> Vec<f32> {
    let rows = cache.batch.as_ref().expect("rows").0;
    cache.extend_documents(None, [rows, length]);
    cache.extend_padding(None, [rows, length]);
    let places = cache.extend_coordinates(None, [rows, length]).expect("coordinates");
    places.try_to_vec_as::<f32>().expect("a host copy")
}

fn joined(mut one: Cache, other: Cache) -> Cache {
    one.join(other);
    one
}

#[test]
fn joined_rows_count_on_from_their_own_coordinates() {
    let image = || placed([[0.0, 0.0], [1.0, 4.0]]);
    assert_eq!(places_with(image(), 2), [0.0, 0.0, 1.0, 4.0, 5.0, 5.0, 6.0, 6.0]);
    // The padding of the image stands where its first token does, the text at its places.
    let expected = [0.0, 0.0, 0.0, 0.0, 1.0, 4.0, 5.0, 5.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0];
    assert_eq!(places_with(joined(image(), read(None, 3)), 1), expected);
    let expected = [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 4.0, 5.0, 5.0];
    assert_eq!(places_with(joined(read(None, 1), image()), 1), expected);
    // The second document of a text begins at 0, and goes on from its own last place, not from that of the first.
    let expected = [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 0.0, 0.0, 1.0, 1.0];
    let text = joined(read(Some(&[7, 7, 7, 2]), 4), image());
    assert_eq!(places_with(text, 1)[..10], expected);
    // What has read nothing adds no rows.
    assert_eq!(places_with(joined(cache([None], 9), image()), 1), [0.0, 0.0, 1.0, 4.0, 5.0, 5.0]);
}

#[test]
fn padding_behind_an_image_is_not_counted() {
    let mut cache = placed([[0.0, 0.0], [1.0, 4.0]]);
    let padding = Tensor::from_bool([[true, false, false]], &Device::default());
    cache.extend_padding(Some(padding), [1, 3]);
    let places = cache.extend_coordinates(None, [1, 3]).expect("coordinates").narrow(1, 2, 3);
    assert_eq!(places.try_to_vec_as::<f32>().expect("a host copy"), [5.0, 5.0, 5.0, 5.0, 6.0, 6.0]);
}

#[test]
#[should_panic(expected = "caches of 2 and 3 coordinates a token cannot be joined")]
fn coordinates_of_other_axes_do_not_join() {
    let mut three = cache([None], 9);
    three.coordinates = Some(Tensor::zeros([1, 1, 3], &Device::default()));
    joined(placed([[0.0, 0.0]]), three);
}

#[test]
#[should_panic(expected = "caches of 1 and 2 layers cannot be joined")]
fn caches_of_other_layers_do_not_join() {
    joined(cache([None], 9), cache([None, None], 9));
}

#[test]
#[should_panic(
    expected = "layer 1 has all tokens in one cache and the last 2 tokens in the other: they cannot be joined"
)]
fn states_of_other_kinds_do_not_join() {
    joined(cache([None, None], 9), cache([None, Some(2)], 9));
}

/// A recurrence that has read nothing.
fn recurrent(sizes: [(&'static str, usize); 2]) -> Cache {
    Cache::new([RecurrentState::<3>::new(9).with_sizes(sizes).boxed()], 9)
}

#[test]
#[should_panic(expected = "layer 0 has d_value = 3 in one cache and d_value = 4 in the other: they cannot be joined")]
fn states_of_other_sizes_do_not_join() {
    joined(recurrent([("d_key", 2), ("d_value", 3)]), recurrent([("d_key", 2), ("d_value", 4)]));
}

#[test]
#[should_panic(expected = "layer 0 has d_head = 1 in one cache and d_head = 2 in the other: they cannot be joined")]
fn keys_of_other_widths_do_not_join() {
    let (mut other, two) = (cache([None], 9), Tensor::zeros([1, 1, 1, 2], &Device::default()));
    append(&mut other, 0, two.clone(), two);
    joined(read(None, 2), other);
}

#[test]
#[should_panic(expected = "a cache of 1 rows cannot be continued by 2")]
fn other_rows_do_not_continue_a_cache() {
    read(None, 2).begin([2, 3], &Device::default());
}

#[test]
fn joined_rows_remember_the_shortest_and_the_longest_text() {
    let lengths = |one: Cache, other: Cache| joined(one, other).lengths();
    assert_eq!(lengths(read(None, 2), read(None, 5)), Some([2, 5]));
    assert_eq!(lengths(cache([None], 9), read(None, 5)), Some([5, 5]));
}

#[test]
fn a_mixed_cache_goes_back_as_far_as_its_shortest_layer() {
    let device = Device::default();
    let mut cache = cache([None, Some(2)], 1000);
    let steps = |cache: &mut Cache, count| {
        for _ in 0..count {
            for layer in 0..2 {
                append(cache, layer, row(&[1.0], &device), row(&[1.0], &device));
            }
        }
    };
    steps(&mut cache, 300);
    assert_eq!((cache.keys(0, 3), cache.keys(1, 3)), (0..303, 298..303));
    assert!(cache.can_truncate(300 - 64) && !cache.can_truncate(100) && cache.can_truncate(0));
    cache.truncate(300 - 64);
    assert_eq!((cache.len(), cache.keys(1, 1)), (236, 234..237));
    cache.truncate(0);
    assert!(cache.is_empty());
}

#[test]
#[should_panic(expected = "a cache of 300 tokens cannot go back to 100: layer 0 keeps the last 2 tokens")]
fn what_was_let_go_does_not_come_back() {
    let device = Device::default();
    let mut cache = cache([Some(2)], 1000);
    append(&mut cache, 0, row(&[1.0; 300], &device), row(&[1.0; 300], &device));
    cache.truncate(100);
}
