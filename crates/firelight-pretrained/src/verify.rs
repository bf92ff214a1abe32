//! How far the outputs of a model are from those that another program computed.

use crate::{Array, Arrays, Numbers};

/// What was found of one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Its name.
    pub name: String,
    /// The largest difference of two numbers; infinite where the output is missing, empty, of another shape or NaN, or where ids differ.
    pub largest: f64,
    /// What is allowed.
    pub allowed: f64,
}

impl Comparison {
    /// Whether the difference is within what is allowed.
    pub fn agrees(&self) -> bool {
        self.largest.is_finite() && self.largest <= self.allowed
    }
}

/// Compares every output that is expected. Allowed is `tolerance`, or a tenth of it times the largest number of the output, whichever is
/// more; ids and infinities must be the same. Where `mask`, the argument `attention_mask`, is 0, the vectors and scores of that token are not looked
/// at: they mean nothing.
///
/// ```
/// use firelight_pretrained::{Array, Arrays, Numbers, compare};
///
/// let arrays = |number: f32| {
///     let mut arrays = Arrays::default();
///     arrays.insert("logits", Array { shape: vec![1, 2], numbers: Numbers::Floats(vec![100.0, number]) });
///     arrays
/// };
/// let found = compare(&arrays(1.0), &arrays(1.0005), None, 1e-4);
/// assert!(found[0].agrees() && found[0].largest > 4e-4);
/// assert!(!compare(&arrays(1.0), &arrays(f32::NAN), None, 1e-4)[0].agrees());
/// assert!(!compare(&Arrays::default(), &arrays(1.0), None, 1e-4)[0].agrees());
/// ```
pub fn compare(found: &Arrays, expected: &Arrays, mask: Option<&Array>, tolerance: f64) -> Vec<Comparison> {
    expected.iter().map(|output| compared(found, output, mask, tolerance)).collect()
}

/// As [`compare`], with the mask that each output has among the arguments of the pass: what a decoder puts out `decoder_attention_mask`, where
/// there is one, what a model of images and texts says of an image none, everything else `attention_mask`.
///
/// ```
/// use firelight_pretrained::{Array, Arrays, Numbers, compare_outputs};
///
/// let arrays = |name: &str, numbers: Numbers| {
///     let mut arrays = Arrays::default();
///     arrays.insert(name, Array { shape: vec![1, 2], numbers });
///     arrays
/// };
/// let logits = |second: f32| arrays("logits", Numbers::Floats(vec![1.0, second]));
/// let inputs = arrays("attention_mask", Numbers::Integers(vec![1, 0])); // The second token is padding.
/// assert!(compare_outputs(&logits(2.0), &logits(3.0), &inputs, 1e-4)[0].agrees());
/// ```
pub fn compare_outputs(found: &Arrays, expected: &Arrays, inputs: &Arrays, tolerance: f64) -> Vec<Comparison> {
    expected.iter().map(|output| compared(found, output, mask_of(output.0, inputs), tolerance)).collect()
}

fn mask_of<'a>(name: &str, inputs: &'a Arrays) -> Option<&'a Array> {
    let has = |argument: &str| inputs.get(argument).is_some();
    if has("decoder_input_ids") && !name.starts_with("encoder_") {
        return inputs.get("decoder_attention_mask");
    }
    let is_of_text = !has("pixel_values") || name.starts_with("text_model_output.");
    // A pooled vector is of no token, however many numbers it has.
    inputs.get("attention_mask").filter(|_| is_of_text && !name.ends_with("pooler_output"))
}

fn compared(found: &Arrays, (name, expected): (&str, &Array), mask: Option<&Array>, tolerance: f64) -> Comparison {
    let allowed = tolerance.max(tolerance * 0.1 * largest(expected));
    let largest = found.get(name).map_or(f64::INFINITY, |found| difference(found, expected, mask));
    Comparison { name: name.into(), largest, allowed }
}

/// The largest finite number: by an infinite one everything would be allowed.
fn largest(array: &Array) -> f64 {
    match &array.numbers {
        Numbers::Floats(numbers) => {
            let finite = numbers.iter().map(|number| f64::from(number.abs())).filter(|number| number.is_finite());
            finite.fold(0.0, f64::max)
        }
        Numbers::Integers(_) => 0.0,
    }
}

fn difference(found: &Array, expected: &Array, mask: Option<&Array>) -> f64 {
    if found.shape != expected.shape || expected.shape.contains(&0) {
        return f64::INFINITY;
    }
    match (&found.numbers, &expected.numbers) {
        (Numbers::Floats(found), Numbers::Floats(numbers)) => {
            let hidden = hidden(&expected.shape, mask);
            let pairs = found.iter().zip(numbers).enumerate().filter(|(index, _)| !hidden(*index));
            pairs.map(|(_, (a, b))| distance(*a, *b)).fold(0.0, f64::max)
        }
        (found, expected) => {
            if found == expected {
                0.0
            } else {
                f64::INFINITY
            }
        }
    }
}

/// Infinite where one is NaN, which a maximum would overlook; none between the same infinities.
fn distance(a: f32, b: f32) -> f64 {
    if a == b {
        return 0.0;
    }
    let distance = (f64::from(a) - f64::from(b)).abs();
    if distance.is_nan() { f64::INFINITY } else { distance }
}

/// Which numbers of an array belong to padding: those of its rows, of shape `[B, T, ...]`, or of its queries, `[B, H, T, K]`.
fn hidden<'a>(shape: &[usize], mask: Option<&'a Array>) -> impl Fn(usize) -> bool + 'a {
    let places = mask.and_then(|mask| match (&mask.numbers, &mask.shape[..]) {
        (Numbers::Integers(flags), &[rows, length]) => Some((flags, [rows, length])),
        _ => None,
    });
    let per_place = places.as_ref().and_then(|(_, [rows, length])| match shape {
        [b, t, rest @ ..] if b == rows && t == length && rest.len() < 2 => Some((1, rest.iter().product::<usize>())),
        [b, heads, t, keys] if b == rows && t == length => Some((*heads, *keys)),
        _ => None,
    });
    move |index| match (places, per_place) {
        (Some((flags, [_, length])), Some((heads, width))) => {
            let (row, place) = (index / (heads * length * width), index / width % length);
            flags[row * length + place] == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(shape: &[usize], numbers: Vec<f32>) -> Array {
        Array { shape: shape.to_vec(), numbers: Numbers::Floats(numbers) }
    }

    #[test]
    fn padding_is_not_compared() {
        let mask = Array { shape: vec![2, 2], numbers: Numbers::Integers(vec![1, 0, 1, 1]) };
        let of = |array: Array| {
            let mut arrays = Arrays::default();
            arrays.insert("x", array);
            arrays
        };
        let agree = |one: Array, other: Array| compare(&of(one), &of(other), Some(&mask), 1e-4)[0].agrees();
        let numbered = |count: usize, at: usize| {
            let mut numbers = vec![0.0; count];
            numbers[at] = 1.0;
            numbers
        };
        // [B, T, C]: the second token of the first row.
        for (at, same) in [(0, false), (1, false), (2, true), (3, true), (4, false), (7, false)] {
            assert_eq!(agree(floats(&[2, 2, 2], numbered(8, at)), floats(&[2, 2, 2], vec![0.0; 8])), same, "{at}");
        }
        // [B, H, T, K]: its queries in three heads.
        for (at, same) in [(0, false), (2, true), (3, true), (4, false), (6, true), (11, true), (14, false)] {
            assert_eq!(
                agree(floats(&[2, 3, 2, 2], numbered(24, at)), floats(&[2, 3, 2, 2], vec![0.0; 24])),
                same,
                "{at}"
            );
        }
        assert!(!agree(floats(&[2, 3], vec![0.0; 6]), floats(&[3, 2], vec![0.0; 6])), "shapes differ");
        assert!(!agree(floats(&[2, 3], numbered(6, 5)), floats(&[2, 3], vec![0.0; 6])), "no places of tokens");
    }

    #[test]
    fn every_output_has_the_mask_of_its_own_tokens() {
        let flags = |flags: [i64; 2]| Array { shape: vec![1, 2], numbers: Numbers::Integers(flags.to_vec()) };
        let inputs = |given: &[&str]| {
            let mut inputs = Arrays::default();
            inputs.insert("attention_mask", flags([1, 0]));
            given.iter().for_each(|name| inputs.insert(name, flags([0, 1])));
            inputs
        };
        let (text, pair) = (inputs(&[]), inputs(&["decoder_input_ids"]));
        let (masked, images) = (inputs(&["decoder_input_ids", "decoder_attention_mask"]), inputs(&["pixel_values"]));
        for (inputs, name, expected) in [
            (&text, "logits", Some([1, 0])),
            (&text, "pooler_output", None),
            (&pair, "logits", None),
            (&pair, "encoder_attentions.0", Some([1, 0])),
            (&masked, "logits", Some([0, 1])),
            (&masked, "cross_attentions.0", Some([0, 1])),
            (&masked, "encoder_last_hidden_state", Some([1, 0])),
            (&images, "logits_per_text", None),
            (&images, "vision_model_output.last_hidden_state", None),
            (&images, "text_model_output.last_hidden_state", Some([1, 0])),
        ] {
            assert_eq!(mask_of(name, inputs).cloned(), expected.map(flags), "{name}");
        }
    }

    #[test]
    fn an_infinite_number_excuses_no_other() {
        let agree = |found: Vec<f32>, expected: Vec<f32>| {
            let of = |numbers: Vec<f32>| {
                let mut arrays = Arrays::default();
                arrays.insert("x", floats(&[numbers.len()], numbers));
                arrays
            };
            compare(&of(found), &of(expected), None, 1e-4)[0].agrees()
        };
        let hidden = vec![f32::NEG_INFINITY, 1.0];
        assert!(agree(hidden.clone(), hidden.clone()));
        for other in
            [vec![0.0, 1.0], vec![f32::NEG_INFINITY, 2.0], vec![f32::INFINITY, 1.0], vec![f32::NAN, 1.0], vec![1.0]]
        {
            assert!(!agree(other.clone(), hidden.clone()), "{other:?}");
        }
        assert!(!agree(Vec::new(), Vec::new()), "nothing is compared");
    }

    #[test]
    fn ids_are_the_same_or_not() {
        let of = |last| {
            let mut arrays = Arrays::default();
            arrays.insert("greedy", Array { shape: vec![2], numbers: Numbers::Integers(vec![3, last]) });
            arrays
        };
        assert!(compare(&of(1), &of(1), None, 1e-4)[0].agrees());
        assert!(!compare(&of(1), &of(2), None, 1e9)[0].agrees());
    }
}
