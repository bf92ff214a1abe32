//! Everything that a stack must hold to, in one call.

mod slopes;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Gradients, Int, Tensor, TensorData};
use firelight_kernels::PairRule;

use super::batches::names;
use super::{
    Violation, batch_independence, causality, compare, documents, gradients, noise, padding, parts_equal_whole, some,
    verdict,
};
use crate::cache::Cache;
use crate::layer::Layer;
use crate::pass::Pass;
use crate::transformer::{SequenceInput, Transformer};

/// A stack of built-in or custom layers must pass every check of this module that applies to it: [`causality`] and caches where its
/// patterns or `rule` hide the future, [`padding`] on both sides, [`batch_independence`], packed [`documents`], [`gradients`]. Rows of a
/// cache must be moved, repeated, forgotten and joined as whole texts are, documents included. The gradients of all parameters that are
/// trained must be slopes, too, each in a random direction. A pass that recomputes its layers must have the gradients of one that does
/// not, to the bit.
///
/// `rule` hides pairs in every layer beside what the patterns hide; [`PairRule::Full`] hides none. `x` is `[B, T, D]` with 6
/// tokens or more, on a device without autodiff. A stack whose patterns count padding, as chunks and global tokens do, bears
/// none on the left and does not pass.
///
/// # Errors
/// The first violation.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use firelight_core::invariants::{Violation, stack};
/// use firelight_core::{PairRule, TransformerConfig};
///
/// let device = Device::flex();
/// let x = Tensor::random([2, 7, 8], Distribution::Default, &device);
/// stack(&TransformerConfig::new(8, 2, 2).init(&device), &PairRule::Full, x, 1e-4)?;
/// # Ok::<(), Violation>(())
/// ```
pub fn stack<L: Layer + 'static>(
    stack: &Transformer<L>,
    rule: &PairRule,
    x: Tensor<3>,
    tolerance: f64,
) -> Result<(), Violation> {
    let subject = Subject { stack, input: SequenceInput::default().with_rule(rule.clone()), tolerance };
    batch_independence(|x| subject.whole(x), x.clone(), tolerance)?;
    padding(|x, flags| subject.padded(x, flags), x.clone(), [2, 3], tolerance)?;
    documents(|x, names| subject.packed(x, names), x.clone(), &subject.lengths(&x), tolerance)?;
    if stack.is_causal() || rule.is_causal() {
        causality(|x| subject.whole(x), x.clone(), tolerance)?;
        subject.caches(&x)?;
    }
    let trained = stack.clone().fork(&x.device().autodiff()).train();
    let trained = Subject { stack: &trained, ..subject };
    gradients(|x| trained.whole(x).powi_scalar(3).mean(), x.clone().narrow(1, 0, 6), 1e-2)?;
    trained.parameter_gradients(&x)?;
    trained.recomputation(&x)
}

/// What is checked.
struct Subject<'a, L: Layer> {
    stack: &'a Transformer<L>,
    input: SequenceInput,
    tolerance: f64,
}

impl<L: Layer + 'static> Subject<'_, L> {
    fn whole(&self, x: Tensor<3>) -> Tensor<3> {
        self.stack.forward(x, &self.input, &mut Pass::default())
    }

    fn padded(&self, x: Tensor<3>, flags: Tensor<2, Bool>) -> Tensor<3> {
        self.stack.forward(x, &self.input.clone().with_padding(flags), &mut Pass::default())
    }

    fn packed(&self, x: Tensor<3>, names: Tensor<2, Int>) -> Tensor<3> {
        self.stack.forward(x, &self.input.clone().with_documents(names), &mut Pass::default())
    }

    /// The documents that `x` is taken for, one of a single token between two others.
    fn lengths(&self, x: &Tensor<3>) -> [usize; 3] {
        [3, 1, x.dims()[1] - 4]
    }

    fn extend(&self, cache: &mut Cache, x: Tensor<3>) -> Tensor<3> {
        self.stack.forward(x, &self.input, &mut Pass::cached(cache))
    }

    /// The last `count` outputs of whole texts are those that were `found`.
    fn last(&self, property: &'static str, texts: Tensor<3>, count: usize, found: Tensor<3>) -> Result<(), Violation> {
        let length = texts.dims()[1];
        let expected = self.whole(texts).narrow(1, length - count, count);
        compare(property, format!("the last {count} tokens"), expected, found, self.tolerance)
    }

    /// What caches can do, those that keep what is needed and those that keep all.
    fn caches(&self, x: &Tensor<3>) -> Result<(), Violation> {
        let capacity = 2 * x.dims()[1];
        for empty in [self.stack.cache(capacity), self.stack.full_cache(capacity)] {
            for part in [1, 4] {
                let mut cache = empty.clone();
                let step = |x| self.extend(&mut cache, x);
                parts_equal_whole(|x| self.whole(x), step, x.clone(), part, self.tolerance)?;
            }
            self.rows_are_moved(empty.clone(), x)?;
            self.tokens_are_forgotten(empty.clone(), x)?;
            self.caches_are_joined([empty.clone(), empty], x)?;
        }
        // Sums tell no documents apart.
        let empty = self.stack.full_cache(capacity);
        [1, 4].into_iter().try_for_each(|part| self.documents_are_continued(empty.clone(), x, part))?;
        self.documents_are_joined([empty.clone(), empty], x)
    }

    /// The rows in another order, one of them twice.
    fn rows_are_moved(&self, mut cache: Cache, x: &Tensor<3>) -> Result<(), Violation> {
        let [batch, length, _] = x.dims();
        self.extend(&mut cache, x.clone().narrow(1, 0, length - 2));
        let order: Vec<i64> = (0..batch as i64).rev().chain([0]).collect();
        let order = Tensor::<1, Int>::from_data(TensorData::new(order, [batch + 1]), &x.device());
        cache.select_rows(&order);
        let texts = x.clone().select(0, order);
        let found = self.extend(&mut cache, texts.clone().narrow(1, length - 2, 2));
        self.last("rows of a cache are moved and repeated", texts, 2, found)
    }

    /// Tokens that never belonged to the text are taken back, with as many before them as the cache must.
    fn tokens_are_forgotten(&self, mut cache: Cache, x: &Tensor<3>) -> Result<(), Violation> {
        let [batch, length, width] = x.dims();
        self.extend(&mut cache, x.clone().narrow(1, 0, length - 3));
        self.extend(&mut cache, noise([batch, 2, width], 3, &x.device()));
        let back = if cache.can_truncate(length - 3) { length - 3 } else { 0 };
        cache.truncate(back);
        let found = self.extend(&mut cache, x.clone().narrow(1, back, length - back));
        self.last("what a cache forgets was never there", x.clone(), length - back, found)
    }

    /// The caches of texts of unequal length.
    fn caches_are_joined(&self, [mut cache, mut other]: [Cache; 2], x: &Tensor<3>) -> Result<(), Violation> {
        let [batch, length, _] = x.dims();
        let later = x.clone().narrow(1, 2, length - 2);
        self.extend(&mut cache, later.clone().narrow(1, 0, length - 4));
        self.extend(&mut other, x.clone().narrow(1, 0, length - 2));
        cache.join(other);
        let found = self.extend(&mut cache, x.clone().narrow(1, length - 2, 2).repeat_dim(0, 2));
        let property = "joined caches go on as each would alone";
        self.last(property, later, 2, found.clone().narrow(0, 0, batch))?;
        self.last(property, x.clone(), 2, found.narrow(0, batch, batch))
    }

    /// Packed documents in parts, which begin within documents and between them.
    fn documents_are_continued(&self, mut cache: Cache, x: &Tensor<3>, part: usize) -> Result<(), Violation> {
        let names = names(&self.lengths(x), x.dims()[0], &x.device());
        let step = |x: Tensor<3>| {
            let input = self.input.clone().with_documents(names.clone().narrow(1, cache.len(), x.dims()[1]));
            self.stack.forward(x, &input, &mut Pass::cached(&mut cache))
        };
        parts_equal_whole(|x| self.packed(x, names.clone()), step, x.clone(), part, self.tolerance)
    }

    /// The caches of texts of unequal length and of several documents, the last of which goes on.
    fn documents_are_joined(&self, [mut cache, mut other]: [Cache; 2], x: &Tensor<3>) -> Result<(), Violation> {
        let [batch, length, _] = x.dims();
        let texts = [x.clone().narrow(1, 2, length - 2), x.clone()];
        let part = |text: &Tensor<3>, read: usize, cache: Option<&mut Cache>| {
            let last = text.dims()[1] - 3;
            let names: Vec<i64> = (0..read).map(|token| (token.min(last) / 2) as i64).collect();
            let names = Tensor::<2, Int>::from_data(TensorData::new(names, [1, read]), &x.device());
            let input = self.input.clone().with_documents(names.expand([batch, read]));
            self.stack.forward(
                text.clone().narrow(1, 0, read),
                &input,
                &mut cache.map_or_else(Pass::default, Pass::cached),
            )
        };
        part(&texts[0], length - 4, Some(&mut cache));
        part(&texts[1], length - 2, Some(&mut other));
        cache.join(other);
        let found = self.extend(&mut cache, x.clone().narrow(1, length - 2, 2).repeat_dim(0, 2));
        for (index, text) in texts.iter().enumerate() {
            let whole = text.dims()[1];
            let expected = part(text, whole, None).narrow(1, whole - 2, 2);
            let (location, found) = (format!("text {index}"), found.clone().narrow(0, index * batch, batch));
            compare("joined documents go on as each would alone", location, expected, found, self.tolerance)?;
        }
        Ok(())
    }

    /// Recomputed gradients, of all parameters and of `x`, where texts end in padding.
    fn recomputation(&self, x: &Tensor<3>) -> Result<(), Violation> {
        let property = "recomputed gradients are the same to the bit";
        let expected = self.gradients(x, false);
        some(
            property,
            "gradients of parameters",
            expected.iter().skip(1).filter_map(|(_, found)| found.as_ref()).count(),
        )?;
        for ((name, found), (_, expected)) in self.gradients(x, true).into_iter().zip(expected) {
            let difference = if found == expected { 0.0 } else { f64::INFINITY };
            verdict(property, name, difference, 0.0)?;
        }
        Ok(())
    }

    fn gradients(&self, x: &Tensor<3>, recomputes: bool) -> Vec<(String, Option<TensorData>)> {
        let [batch, length, _] = x.dims();
        let x = Tensor::from_data(x.to_data(), &x.device().autodiff()).require_grad();
        let tokens = Tensor::<1, Int>::arange(0..length as i64, &x.device()).reshape([1, length]);
        let last = tokens.greater_equal_scalar(length as i64 - 1).expand([batch, length]);
        let mut pass = Pass::default().with_recomputation(recomputes);
        let output = self.stack.forward(x.clone(), &self.input.clone().with_padding(last), &mut pass);
        let gradients = output.narrow(1, 0, length - 1).powi_scalar(3).sum().backward();
        let mut all = Collected { found: vec![("x".into(), x.grad(&gradients).map(Tensor::into_data))], gradients };
        self.stack.visit(&mut all);
        all.found
    }
}

/// The gradients of the parameters that were visited.
struct Collected {
    gradients: Gradients,
    found: Vec<(String, Option<TensorData>)>,
}

impl ModuleVisitor for Collected {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = format!("parameter {} of shape {:?}", self.found.len(), param.val().dims());
        self.found.push((name, param.val().grad(&self.gradients).map(Tensor::into_data)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Attention, Init, LayerContext, LayerPass, ParamBuilder, PositionConfig, RecurrentState, State, TokenMixer,
        TransformerConfig, WeightInit,
    };
    use burn::tensor::Device;

    /// The sum of all tokens up to each, of whatever document.
    #[derive(Module, Debug)]
    struct Sums {}

    impl TokenMixer for Sums {
        fn forward(&self, x: Tensor<3>, context: &LayerContext, _: &mut LayerPass) -> Tensor<3> {
            context.fill_padding(x, 0.0).cumsum(1)
        }

        fn state(&self, _: &PairRule, capacity: usize) -> Box<dyn State> {
            RecurrentState::<3>::new(capacity).boxed()
        }
    }

    /// Attention to tokens that a matrix has mapped before, which was forgotten by autodiff.
    #[derive(Module, Debug)]
    struct Detached {
        matrix: Param<Tensor<2>>,
        attention: Attention,
    }

    impl TokenMixer for Detached {
        fn forward(&self, x: Tensor<3>, context: &LayerContext, pass: &mut LayerPass) -> Tensor<3> {
            let mapped = x.matmul(self.matrix.val().detach().unsqueeze());
            self.attention.forward(mapped, &context.attention, pass)
        }

        fn state(&self, rule: &PairRule, capacity: usize) -> Box<dyn State> {
            self.attention.state(rule, capacity)
        }
    }

    fn verdict(config: &TransformerConfig, rule: &PairRule) -> Result<(), String> {
        let device = Device::flex();
        let outcome =
            stack(&config.init_with(&ParamBuilder::new(&device, 0)), rule, noise([2, 9, 8], 1, &device), 1e-4);
        outcome.map_err(|violation| violation.to_string())
    }

    #[test]
    fn our_stacks_hold_and_those_that_cannot_are_told_why() {
        let config = TransformerConfig::new(8, 2, 2).with_position(PositionConfig::rotary());
        assert_eq!(verdict(&config, &PairRule::Full), Ok(()));
        assert_eq!(verdict(&TransformerConfig::encoder(8, 2, 2), &PairRule::Full), Ok(()));
        assert_eq!(verdict(&TransformerConfig::encoder(8, 2, 2), &PairRule::Causal), Ok(()));
        // Chunks count the padding.
        let error = verdict(&config, &PairRule::Chunks { size: 4 }).expect_err("other chunks");
        assert!(error.starts_with("padding changes nothing: at row 0"), "{error}");
    }

    #[test]
    fn a_part_that_reads_other_documents_is_found() {
        let (device, config) = (Device::flex(), TransformerConfig::new(8, 2, 1).with_position(PositionConfig::None));
        let sums = config.init_layers(&ParamBuilder::new(&device, 0), |_, block, params| {
            block.init_parts(params, |_| Sums {}, |params| block.init_feed_forward(params))
        });
        let violation = stack(&sums, &PairRule::Full, noise([2, 9, 8], 1, &device), 1e-4).expect_err("one sum of all");
        assert_eq!((violation.property, &*violation.location), ("packed documents are strangers", "document 1"));
    }

    #[test]
    fn a_parameter_without_its_gradient_is_found() {
        let wide = WeightInit { weight: Init::Normal { std: 0.5 }, scale_residual: false };
        let config = TransformerConfig::new(8, 2, 1).with_position(PositionConfig::rotary()).with_init(wide);
        let device = Device::flex();
        let stack_with = |matrix: fn(&ParamBuilder) -> Param<Tensor<2>>| {
            config.init_layers(&ParamBuilder::new(&device, 0), |_, block, params| {
                let mixer = |params: &ParamBuilder| Detached {
                    matrix: matrix(params),
                    attention: block.attention.init_with(params),
                };
                block.init_parts(params, mixer, |params| block.init_feed_forward(params))
            })
        };
        let verdict = |built: Transformer<_>| stack(&built, &PairRule::Full, noise([2, 9, 8], 1, &device), 1e-4);
        let trained = stack_with(|params| params.param("matrix", [8, 8], Init::Normal { std: 0.5 }));
        let violation = verdict(trained).expect_err("the matrix is detached");
        assert_eq!(
            (violation.property, &*violation.location),
            ("the gradient is the slope", "parameter blocks.0.attention.matrix")
        );
        // What is not trained has no slope to be checked.
        let fixed =
            stack_with(|params| params.param("matrix", [8, 8], Init::Normal { std: 0.5 }).set_require_grad(false));
        assert_eq!(verdict(fixed), Ok(()));
    }
}
