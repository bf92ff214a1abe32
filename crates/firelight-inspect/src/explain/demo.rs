//! The worked examples of tutorials, computed by the modules that models are made of. `docs/worked-numbers.md` has more of such numbers.

mod unscaled;

use burn::module::Param;
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use firelight_core::{
    Attention, AttentionConfig, AttentionContext, AttentionMask, Hooks, Linear, PositionScheme, Positions, Projection,
    SeparateProjection, Sinusoidal,
};
use firelight_storage::TaskError;

use self::unscaled::{bank_and_loan, soft_look_up, without_weights};
use super::attention::Computed;
use super::{Explanation, Step, Table, TableKind};
use crate::text_model::{lacking, rows};

/// The width of a head in the example without scaling.
const WIDE: usize = 512;

/// The positions whose similarity is shown.
const PLACES: [usize; 3] = [0, 1, 50];

/// The examples, computed on a device: three tokens with small queries, keys and values, the same with a causal mask, a soft look-up,
/// self-attention without weights, two words that read each other, temperature, a softmax that saturates where scores are not scaled, two
/// heads side by side, sinusoidal positions and how alike they are. All but the positions can be checked by hand.
///
/// # Errors
/// If the device fails.
pub fn worked_examples(device: &Device) -> Result<Explanation, TaskError> {
    let parts = [
        three_tokens(device)?,
        causal(device)?,
        soft_look_up(device)?,
        without_weights(device)?,
        bank_and_loan(device)?,
        temperature(device)?,
        saturation(device)?,
        two_heads(device)?,
        positions(device)?,
        similarity(device)?,
    ];
    Ok(Explanation { title: "Attention by worked examples".into(), steps: parts.concat() })
}

fn names(tokens: [&str; 3]) -> Vec<String> {
    tokens.map(String::from).to_vec()
}

/// The tokens of the first two examples.
fn tokens() -> Vec<String> {
    names(["the", "cat", "sat"])
}

/// Their vectors, `[1, 3, 2]`.
fn embedded(device: &Device) -> Tensor<3> {
    Tensor::from_floats([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], device)
}

/// A projection without a bias.
fn linear(weight: Tensor<2>) -> Linear {
    Linear { weight: Param::from_tensor(weight).into(), bias: None, adapter: None }
}

/// An attention of the width of these matrices, whose output projection changes nothing.
fn attention(heads: usize, [query, key, value]: [Tensor<2>; 3]) -> Attention {
    let (width, device) = (query.dims()[1], query.device());
    let mut attention = AttentionConfig::new(width, heads).with_bias(false).init(&device);
    let [query, key, value] = [query, key, value].map(linear);
    attention.projection = Projection::Separate(SeparateProjection { query, key, value });
    attention.output = linear(Tensor::eye(width, &device));
    attention
}

/// Queries as they are, keys with their two channels exchanged, values doubled.
fn exchanging(device: &Device) -> Attention {
    let exchanged = Tensor::from_floats([[0.0, 1.0], [1.0, 0.0]], device);
    attention(1, [Tensor::eye(2, device), exchanged, Tensor::<2>::eye(2, device) * 2.0])
}

/// What an attention computes of `x`, its queries times a factor.
fn computed(attention: &Attention, x: Tensor<3>, mask: AttentionMask, factor: f64) -> Result<Computed, TaskError> {
    let context = AttentionContext::masked(mask);
    let hooks = Hooks::new().edit("blocks.0.attention.query", move |query: Tensor<4>| query * factor);
    let mut hooks = Computed::recorded(hooks, 0);
    let (_, found) =
        hooks.run(|pass| attention.forward(x, &context, &mut pass.layer(0))).map_err(lacking("the example"))?;
    Computed::of(&found, 0).map_err(lacking("the example"))
}

fn three_tokens(device: &Device) -> Result<Vec<Step>, TaskError> {
    let x = embedded(device);
    let remark = "Three tokens of two channels. The example projects queries by [[1, 0], [0, 1]], which changes nothing, keys by [[0, 1], [1, 0]], \
                  which exchanges the channels, and values by [[2, 0], [0, 2]], which doubles them.";
    let mut steps = vec![Step::new("three tokens: x", remark, vec![Table::vectors("x", &tokens(), rows(x.clone())?)])];
    let all = computed(&exchanging(device), x, AttentionMask::none(), 1.0)?;
    steps.extend(all.steps(&tokens(), 0, "three tokens: ")?);
    Ok(steps)
}

/// From the mask on; what stands before is the same.
fn causal(device: &Device) -> Result<Vec<Step>, TaskError> {
    let all = computed(&exchanging(device), embedded(device), AttentionMask::causal(), 1.0)?;
    Ok(all.steps(&tokens(), 0, "causal mask: ")?.split_off(3))
}

fn temperature(device: &Device) -> Result<Vec<Step>, TaskError> {
    let logits = Tensor::<2>::from_floats([[2.0, 1.0, 0.5, -0.5]], device);
    let (temperatures, columns) = ([0.5, 1.0, 2.0], ["a", "b", "c", "d"].map(String::from));
    let each = |temperature: f64| softmax(logits.clone() / temperature, 1);
    let weights = rows(Tensor::cat(temperatures.map(each).to_vec(), 0))?;
    let labels = temperatures.map(|temperature| format!("T = {temperature}"));
    let scores = Table::pairs("scores", [&["T = 1".to_string()], &columns], rows(logits)?).as_scores();
    let weights = Table::pairs("softmax(scores / T)", [&labels, &columns], weights);
    let remark = "Scores divided by a temperature before the softmax: a low one sharpens the weights, a high one flattens them. Attention divides \
                  by sqrt(d_k) in the same place.";
    Ok(vec![Step::new("temperature", remark, vec![scores, weights])])
}

/// Three keys of 1 and -1 whose sums are 22, 0 and -22: about one standard deviation of a sum of 512 such numbers, `sqrt(512)`.
fn wide_keys(device: &Device) -> Tensor<3> {
    let key = |ones: usize| {
        let ones_first =
            Tensor::cat(vec![Tensor::<1>::ones([ones], device), -Tensor::<1>::ones([WIDE - ones], device)], 0);
        ones_first.reshape([1, 1, WIDE])
    };
    Tensor::cat([11, 0, -11].map(|more: isize| key((WIDE / 2).saturating_add_signed(more))).to_vec(), 1)
}

fn saturation(device: &Device) -> Result<Vec<Step>, TaskError> {
    let eye = || Tensor::<2>::eye(WIDE, device);
    // The query of every token is all ones: zeros times x, and a bias of 1.
    let mut layer = attention(1, [eye(), eye(), eye()]);
    if let Projection::Separate(parts) = &mut layer.projection {
        parts.query = Linear { bias: Some(Param::from_tensor(Tensor::ones([WIDE], device))), ..linear(eye() * 0.0) };
    }
    let labels = names(["key 1", "key 2", "key 3"]);
    let query = ["query".to_string()];
    let one = |step: &Step, name: &str| {
        let table = &step.tables[0];
        Table::pairs(name, [&query, &labels], vec![table.values[0].clone()])
    };
    let of = |factor: f64| computed(&layer, wide_keys(device), AttentionMask::none(), factor)?.steps(&labels, 0, "");
    let (scaled, plain) = (of(1.0)?, of((WIDE as f64).sqrt())?);
    let dots = Table { kind: TableKind::Scores, ..one(&scaled[1], "Q K^T") };
    let tables = vec![dots, one(&plain[4], "softmax(Q K^T)"), one(&scaled[4], "softmax(Q K^T / sqrt(d_k))")];
    let remark = "A query of 512 ones and three keys of 1 and -1. Dot products of such vectors spread by sqrt(512) = 22.6: here 22, 0 and -22. Without \
                  scaling the first key takes all, and the gradient of the softmax, w (1 - w), vanishes; divided by sqrt(d_k) each has a share.";
    Ok(vec![Step::new("saturation at d_k = 512", remark, tables)])
}

/// Four channels in two heads: the first two channels of every token are what head 0 sees.
fn two_heads(device: &Device) -> Result<Vec<Step>, TaskError> {
    let x = Tensor::<3>::from_floats([[[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 0.0], [1.0, 1.0, 0.0, 2.0]]], device);
    let eye = || Tensor::<2>::eye(4, device);
    let all = computed(&attention(2, [eye(), eye(), eye()]), x.clone(), AttentionMask::none(), 1.0)?;
    let mut tables = vec![Table::vectors("x", &tokens(), rows(x)?)];
    for head in 0..all.heads() {
        let steps = all.steps(&tokens(), head, "")?;
        let named = |table: &Table| Table { name: format!("head {head}: {}", table.name), ..table.clone() };
        tables.extend([&steps[0].tables[0], &steps[4].tables[0], &steps[5].tables[0]].map(named));
    }
    let remark = "Queries, keys and values of four channels are cut into two heads of two: each has scores and weights of its own. What the heads \
                  found stands side by side again, four channels wide, before the output projection.";
    Ok(vec![Step::new("two heads", remark, tables)])
}

fn positions(device: &Device) -> Result<Vec<Step>, TaskError> {
    let (places, width) = (5, 8);
    let nothing = Tensor::<3>::zeros([1, places, width], device);
    let vectors = Sinusoidal::new(width).embed(nothing, &Positions::Contiguous { start: 0, len: places });
    let labels: Vec<String> = (0..places).map(|place| format!("position {place}")).collect();
    let remark = "A pair of channels is the sine and the cosine of one angle, the position by 10000^(2i/d): the first pair turns by one radian a token, \
                  later ones more slowly.";
    Ok(vec![Step::new("sinusoidal positions", remark, vec![Table::vectors("PE", &labels, rows(vectors)?)])])
}

fn similarity(device: &Device) -> Result<Vec<Step>, TaskError> {
    let (width, len) = (64, PLACES[2] + 1);
    let all =
        Sinusoidal::new(width).embed(Tensor::zeros([1, len, width], device), &Positions::Contiguous { start: 0, len });
    let vectors = Tensor::cat(PLACES.map(|place| all.clone().narrow(1, place, 1)).to_vec(), 1); // [1, 3, D]
    // A sine and a cosine of one angle have a square sum of 1, so that all vectors have the length sqrt(D / 2).
    let cosines = vectors.clone().matmul(vectors.transpose()) / (width as f64 / 2.0);
    let labels = PLACES.map(|place| format!("position {place}"));
    let columns = PLACES.map(|place| place.to_string());
    let table = Table::pairs("cosines", [&labels, &columns], rows(cosines)?);
    let remark = "The cosine of the angle between the vectors of two positions, of 64 channels. It depends on their distance alone: neighbours are alike, \
                  positions far apart less so.";
    Ok(vec![Step::new("similarity of positions", remark, vec![table])])
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn near(found: &[f64], expected: &[f64], tolerance: f64) {
        let fits = found.len() == expected.len();
        let close = found.iter().zip(expected).all(|(a, b)| a == b || (a - b).abs() <= tolerance);
        assert!(fits && close, "{found:?}, and by hand {expected:?}");
    }

    /// The numbers of a table, and of the step that it stands in.
    pub(super) fn table<'a>(steps: &'a [Step], title: &str, place: usize) -> &'a Table {
        let step = steps.iter().find(|step| step.title == title).unwrap_or_else(|| panic!("no {title}"));
        &step.tables[place]
    }

    #[test]
    fn three_tokens_are_as_by_hand() {
        let steps = three_tokens(&Device::default()).unwrap();
        let numbers = |title: &str, place| table(&steps, &format!("three tokens: {title}"), place).values.concat();
        near(&numbers("Q, K, V", 1), &[0.0, 1.0, 1.0, 0.0, 1.0, 1.0], 1e-6);
        near(&numbers("scores", 0), &[0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 2.0], 1e-6);
        let root = 0.5f64.sqrt();
        near(&numbers("scaling", 0)[..3], &[0.0, root, root], 1e-6);
        // exp .7071 = 2.0281: 1 / 5.0562 and 2.0281 / 5.0562. The last row: 2.0281 / 8.1695 and 4.1133 / 8.1695.
        let weights = numbers("softmax", 0);
        near(&weights, &[0.1978, 0.4011, 0.4011, 0.4011, 0.1978, 0.4011, 0.2483, 0.2483, 0.5035], 1e-4);
        near(&numbers("weighted sum", 0), &[1.1978, 1.6044, 1.6044, 1.1978, 1.5035, 1.5035], 2e-4);
        assert!(table(&steps, "three tokens: mask", 0).values.concat().iter().all(|score| score.is_finite()));
        let softmax = steps.iter().find(|step| step.title == "three tokens: softmax").unwrap();
        assert!(!softmax.remark.contains("sinks"), "the scores explain the weights");
    }

    #[test]
    fn a_causal_mask_hides_three_pairs() {
        let steps = causal(&Device::default()).unwrap();
        let masked = table(&steps, "causal mask: mask", 0);
        assert_eq!(masked.kind, TableKind::Scores);
        let hidden: Vec<bool> = masked.values.concat().iter().map(|score| score.is_infinite()).collect();
        assert_eq!(hidden, [false, true, true, false, false, true, false, false, false]);
        assert!(steps[0].remark.starts_with("3 pairs are hidden"));
        // The second row: 2.0281 / 3.0281 and 1 / 3.0281 of the values [2, 0] and [0, 2].
        let weights = table(&steps, "causal mask: softmax", 0).values.concat();
        near(&weights[..6], &[1.0, 0.0, 0.0, 0.6698, 0.3302, 0.0], 1e-4);
        let sums = table(&steps, "causal mask: weighted sum", 0).values.concat();
        near(&sums[..4], &[2.0, 0.0, 1.3395, 0.6605], 2e-4);
    }

    #[test]
    fn temperatures_sharpen_and_flatten() {
        let steps = temperature(&Device::default()).unwrap();
        let values = &table(&steps, "temperature", 1).values;
        near(&values[0], &[0.839, 0.114, 0.042, 0.006], 6e-4);
        near(&values[1], &[0.598, 0.220, 0.133, 0.049], 6e-4);
        near(&values[2], &[0.423, 0.256, 0.200, 0.121], 6e-4);
    }

    #[test]
    fn a_wide_softmax_saturates_without_scaling() {
        let steps = saturation(&Device::default()).unwrap();
        let numbers = |place| table(&steps, "saturation at d_k = 512", place).values.concat();
        near(&numbers(0), &[22.0, 0.0, -22.0], 1e-3);
        // exp -22 = 2.79e-10; scaled exp .9723 = 2.644, 1 and .3782 of 4.0222.
        near(&numbers(1), &[1.0, 2.8e-10, 0.0], 1e-9);
        assert!(numbers(1)[1] > 1e-10 && numbers(1)[1] < 1e-9);
        near(&numbers(2), &[0.6573, 0.2486, 0.0940], 1e-4);
    }

    #[test]
    fn heads_see_their_own_channels() {
        let steps = two_heads(&Device::default()).unwrap();
        let numbers = |place| table(&steps, "two heads", place).values.concat();
        near(&numbers(1), &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], 1e-6); // Queries of head 0.
        near(&numbers(4), &[0.0, 2.0, 2.0, 0.0, 0.0, 2.0], 1e-6); // Those of head 1.
        // Head 1, first row: the scores 4, 0 and 4, by sqrt 2 2.8284: exp 16.9188 of 34.8376.
        near(&numbers(5)[..3], &[0.4856, 0.0287, 0.4856], 1e-4);
        assert_eq!(steps[0].tables[4].name, "head 1: Q");
    }

    #[test]
    fn positions_are_sines_and_cosines() {
        let steps = positions(&Device::default()).unwrap();
        let values = &table(&steps, "sinusoidal positions", 0).values;
        near(&values[1][..2], &[1f64.sin(), 1f64.cos()], 1e-5);
        near(&values[0], &[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0], 1e-6);
        near(&values[2][2..4], &[0.2f64.sin(), 0.2f64.cos()], 1e-5); // 10000^(2/8) = 10.
    }

    #[test]
    fn near_positions_are_more_alike_than_far_ones() {
        let steps = similarity(&Device::default()).unwrap();
        let values = &table(&steps, "similarity of positions", 0).values;
        near(&values[0], &[1.0, 0.966, 0.490], 5e-4);
        near(&[values[1][0], values[1][1], values[2][0]], &[0.966, 1.0, 0.490], 5e-4);
    }
}
