//! What weights are multiplied by: which of their errors count.
//!
//! Of the output of a linear map the mean squared error is `Σ d_i d_j E[x_i x_j]` over the errors `d` of the weights of a sum. What is kept of
//! `E[x xᵀ]` is its diagonal, the mean square of each input, as the importance matrix of llama.cpp does
//! (<https://github.com/ggml-org/llama.cpp>, `tools/imatrix`).

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use burn::module::{Module, ParamId};
use burn::tensor::Tensor;

use super::convert::weights_with_ids;
use crate::error::{Checks, ConfigError};

// A weight does not know its path, nor what it is a part of: it tells its inputs under the identity of its parameter.
thread_local! {
    /// What weights have been multiplied by since it was asked for; none while nobody asks.
    static INPUTS: RefCell<Option<HashMap<ParamId, Squares>>> = const { RefCell::new(None) };
}

/// How much the errors of the numbers of a row count, for every column of a matrix: the mean square of what the column is multiplied by. By
/// the paths of the weights.
pub type Importance = BTreeMap<String, Vec<f32>>;

/// Measures what the weights of a module are multiplied by while `run` runs, on this thread. What runs in [`awake`](firelight_kernels::awake), as
/// all generation does, may run on another one and is then not measured: call this within, or the model itself. Returns what `run` does, and the importance of
/// each weight that was multiplied with; a weight that was not, such as an expert that no token was sent to, has none.
///
/// The means are those of all rows that a weight met, in the order in which it met them, so that two runs give the same bits. Weights that read
/// the same vectors have each their own, alike ones. A tied head is measured where its vectors come in, whether logits are formed or not.
/// Whoever does not call this pays nothing for it.
///
/// # Errors
/// Lists the weights that were multiplied by NaN or infinity, or by numbers whose mean square is beyond single precision.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{LinearConfig, importance_of};
///
/// let layer = LinearConfig::new(2, 3).init(&Device::flex());
/// let x = Tensor::<2>::from_floats([[1.0, 0.0], [3.0, -2.0]], &Device::flex());
/// let (y, importance) = importance_of(&layer, || layer.forward(x))?;
/// assert_eq!(y.dims(), [2, 3]);
/// assert_eq!(importance["weight"], [5.0, 2.0]); // (1 + 9) / 2 and (0 + 4) / 2
/// # Ok::<(), firelight_core::ConfigError>(())
/// ```
pub fn importance_of<M: Module, R>(module: &M, run: impl FnOnce() -> R) -> Result<(R, Importance), ConfigError> {
    let noting = Noting::begin();
    let result = run();
    let inputs = noting.end();
    let (mut importance, mut checks) = (Importance::new(), Checks::default());
    for (entry, id) in weights_with_ids(module) {
        // A table that stands where a linear map is expected is multiplied along its other side.
        let Some(squares) = inputs.get(&id).filter(|squares| squares.sums.len() == entry.width) else { continue };
        let means = squares.means();
        let are_finite = means.iter().all(|mean| mean.is_finite());
        checks =
            checks.require(are_finite, || format!("`{}` is multiplied by numbers that are not finite", entry.path));
        importance.insert(entry.path, means);
    }
    checks.finish()?;
    Ok((result, importance))
}

/// Takes down an input, `[..., I]`, of a weight, where somebody asks.
pub(super) fn note<const D: usize>(weight: ParamId, x: &Tensor<D>) {
    if INPUTS.with_borrow(Option::is_none) {
        return;
    }
    let width = x.dims()[D - 1];
    let numbers = x.clone().without_autodiff().try_into_vec_as::<f32>().expect("numbers of the device");
    INPUTS.with_borrow_mut(|inputs| {
        if let Some(inputs) = inputs.as_mut().filter(|_| !numbers.is_empty()) {
            inputs.entry(weight).or_default().add(&numbers, width);
        }
    });
}

/// Sums of squares, and of how many rows.
#[derive(Debug, Default)]
struct Squares {
    rows: usize,
    sums: Vec<f64>,
}

impl Squares {
    fn add(&mut self, numbers: &[f32], width: usize) {
        self.sums.resize(width, 0.0);
        for row in numbers.chunks_exact(width) {
            self.sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
        }
        self.rows += numbers.len() / width;
    }

    fn means(&self) -> Vec<f32> {
        self.sums.iter().map(|sum| (sum / self.rows as f64) as f32).collect()
    }
}

/// Inputs are taken down as long as it lives. One within another takes them from it.
struct Noting {
    outer: Option<HashMap<ParamId, Squares>>,
}

impl Noting {
    fn begin() -> Self {
        Self { outer: INPUTS.replace(Some(HashMap::new())) }
    }

    fn end(self) -> HashMap<ParamId, Squares> {
        INPUTS.take().unwrap_or_default()
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        INPUTS.set(self.outer.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Activation, ExpertsConfig, FeedForwardConfig, Linear, LinearConfig, LmHeadConfig, ParamBuilder, Pass,
        TokenEmbeddingConfig, Weight, WeightEntry, quantize, quantize_by,
    };
    use burn::module::Param;
    use burn::tensor::{DType, Device, Distribution, FloatDType};
    use firelight_kernels::BlockFormat;

    fn params() -> ParamBuilder {
        ParamBuilder::new(&Device::default(), 3)
    }

    fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::default())
    }

    /// Sums of squared errors of outputs.
    fn loss(found: Tensor<2>, expected: Tensor<2>) -> f64 {
        let numbers = (found - expected).try_into_vec_as::<f32>().unwrap();
        numbers.into_iter().map(|number| f64::from(number).powi(2)).sum()
    }

    #[test]
    fn rows_of_all_passes_count_alike() {
        let layer = LinearConfig::new(3, 2).init_with(&params());
        let device = Device::default();
        let run = || {
            layer.forward(Tensor::<2>::from_floats([[1.0, -2.0, 0.0], [3.0, 0.0, 0.0]], &device));
            layer.forward(Tensor::<3>::from_floats([[[2.0, 1.0, 0.0]], [[0.0, 1.0, 4.0]]], &device));
        };
        // (1 + 9 + 4 + 0) / 4, (4 + 0 + 1 + 1) / 4, (0 + 0 + 0 + 16) / 4
        let expected = Importance::from([("weight".to_string(), vec![3.5, 1.5, 4.0])]);
        assert_eq!(importance_of(&layer, run).unwrap().1, expected);
        assert!(INPUTS.with_borrow(Option::is_none), "nothing is taken down afterwards");
        assert_eq!(importance_of(&layer, || ()).unwrap().1, Importance::new());
    }

    #[test]
    fn outputs_that_are_computed_apart_have_the_inputs_of_the_whole() {
        let layer = LinearConfig::new(3, 4).init_with(&params());
        let x = Tensor::<2>::from_floats([[1.0, -2.0, 5.0], [3.0, 0.0, 0.5]], &Device::default());
        let of = |run: &dyn Fn()| importance_of(&layer, run).unwrap().1;
        let parts = of(&|| [0, 2].into_iter().for_each(|from| drop(layer.forward_columns(x.clone(), from, from + 2))));
        assert_eq!(parts, of(&|| drop(layer.forward(x.clone()))));
    }

    #[test]
    fn a_tied_head_is_measured_by_the_vectors_that_come_in() {
        let embedding = TokenEmbeddingConfig::new(5, 3).init_with(&params().scope("embedding"));
        let head = LmHeadConfig::new(3, 5).init_with(&params().scope("head"));
        let hidden = Tensor::<3>::from_floats([[[1.0, 0.0, 2.0], [3.0, 2.0, 0.0]]], &Device::default());
        let ((), found) = importance_of(&embedding, || drop(head.lazy(hidden.clone(), &embedding))).unwrap();
        assert_eq!(found, Importance::from([("weight".to_string(), vec![5.0, 2.0, 2.0])]));
        // Rows that are looked up are multiplied by nothing.
        let tokens = Tensor::from_ints([[0, 4]], &Device::default());
        assert!(importance_of(&embedding, || embedding.forward(tokens)).unwrap().1.is_empty());
    }

    #[test]
    fn an_expert_has_the_rows_of_its_own_tokens() {
        let expert = FeedForwardConfig::new(4, Activation::SwiGlu).with_d_ff(4);
        let mut layer = ExpertsConfig::new(3).with_top_k(1).init_with(&expert, &params());
        // The sign of its first number chooses the expert of a token; nobody chooses the third.
        let rows = [[1.0, -1.0, 0.0], [0.0; 3], [0.0; 3], [0.0; 3]];
        layer.router.weight = Weight::of_map(Param::from_data(rows, &Device::default()));
        let tokens = [[[2.0, 1.0, 0.0, 0.0], [-1.0, 0.0, 3.0, 0.0], [4.0, 0.0, 0.0, 2.0]]];
        let tokens = Tensor::<3>::from_floats(tokens, &Device::default());
        let run = || layer.forward(tokens, None, &mut Pass::default().layer(0));
        let found = importance_of(&layer, run).unwrap().1;
        assert_eq!(found["router.weight"], [7.0, 1.0 / 3.0, 3.0, 4.0 / 3.0]);
        for part in ["gate", "up"] {
            assert_eq!(found[&format!("experts.0.{part}.weight")], [10.0, 0.5, 0.0, 2.0]);
            assert_eq!(found[&format!("experts.1.{part}.weight")], [1.0, 0.0, 9.0, 0.0]);
        }
        assert!(!found.keys().any(|path| path.starts_with("experts.2.")), "{found:?}");
    }

    #[test]
    fn numbers_that_are_not_finite_are_told_by_the_weight() {
        let layer = LinearConfig::new(2, 3).init_with(&params());
        for number in [f32::NAN, f32::INFINITY, 1e30] {
            let x = Tensor::<2>::from_floats([[1.0, number]], &Device::default());
            let error = importance_of(&layer, || layer.forward(x)).unwrap_err();
            assert_eq!(error.to_string(), "`weight` is multiplied by numbers that are not finite");
        }
    }

    #[test]
    fn half_precision_is_measured_as_it_is() {
        let device = Device::flex(); // Others may lack the type.
        let layer = crate::cast_parameters(LinearConfig::new(2, 3).init(&device), FloatDType::BF16);
        let x = Tensor::<2>::from_floats([[2.0, 3.0]], &device).cast(DType::BF16);
        assert_eq!(importance_of(&layer, || layer.forward(x)).unwrap().1["weight"], [4.0, 9.0]);
    }

    /// Numbers that two columns outweigh, one in each block of 32.
    fn with_outliers(rows: usize, width: usize) -> Tensor<2> {
        let scales: Vec<f32> = (0..width).map(|i| if i % 32 == 7 { 40.0 } else { 1.0 }).collect();
        random([rows, width]) * Tensor::<1>::from_floats(scales.as_slice(), &Device::default()).unsqueeze::<2>()
    }

    #[test]
    fn outputs_lose_less_where_the_large_inputs_are_known() {
        let layer = LinearConfig::new(256, 16).with_bias(false).with_init(crate::Init::Normal { std: 0.3 });
        let layer = layer.init_with(&params());
        let x = with_outliers(64, 256);
        let ((), importance) = importance_of(&layer, || drop(layer.forward(x.clone()))).unwrap();
        let product = |layer: &Linear| x.clone().matmul(layer.weight.val());
        for format in BlockFormat::ALL {
            let choose = |_: &WeightEntry| Some(format);
            let both = [quantize(layer.clone(), choose), quantize_by(layer.clone(), &importance, choose)];
            let [plain, calibrated] = both.map(|blocks| loss(product(&blocks), product(&layer)));
            assert!(calibrated < 0.8 * plain, "{format}: {calibrated} {plain}");
        }
    }
}
