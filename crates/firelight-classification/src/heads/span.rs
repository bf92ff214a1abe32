//! A stretch of the text as the answer to a question: every token is scored as its first and as its last.
//!
//! Source: Devlin et al. 2019, §4.2 (<https://arxiv.org/abs/1810.04805>): the loss is the mean of the two cross-entropies, the
//! answer the span `i <= j` of the largest sum of scores.

use burn::module::Module;
use burn::tensor::activation::log_softmax;
use burn::tensor::{Bool, Int, Tensor, TensorReadError};
use firelight_core::{Init, Linear, LinearConfig, ParamBuilder};
use serde::{Deserialize, Serialize};

use super::transform::{HeadTransform, HeadTransformConfig};

/// The score of a token that is padding: no softmax gives it a weight, and no sum of two overflows.
const HIDDEN: f32 = -1e30;

/// Configuration of a [`SpanHead`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpanHeadConfig {
    /// Layers before the scores. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transform: Option<HeadTransformConfig>,
}

impl SpanHeadConfig {
    /// Builds the head for vectors of `d_model` numbers at the builder's path.
    pub fn init_with(&self, d_model: usize, init: Init, params: &ParamBuilder) -> SpanHead {
        let transform = |config: HeadTransformConfig| config.init_with(d_model, init, &params.scope("transform"));
        SpanHead {
            transform: self.transform.map(transform),
            output: LinearConfig::new(d_model, 2).with_init(init).init_with(&params.scope("output")),
        }
    }
}

/// Scores every token as the first and as the last of an answer.
#[derive(Module, Debug)]
pub struct SpanHead {
    /// Layers before the scores.
    pub transform: Option<HeadTransform>,
    /// `[D, 2]`.
    pub output: Linear,
}

impl SpanHead {
    /// # Shapes
    /// - `hidden`: `[B, T, D]`, `padding`: `[B, T]`, true where a text has ended
    pub fn forward(&self, hidden: Tensor<3>, padding: Option<&Tensor<2, Bool>>) -> SpanLogits {
        let hidden = self.transform.iter().fold(hidden, |hidden, transform| transform.forward(hidden));
        let scores = self.output.forward(hidden); // [B, T, 2]
        let side = |side: usize| -> Tensor<2> {
            let scores = scores.clone().narrow(2, side, 1).squeeze_dim(2);
            match padding {
                Some(padding) => scores.mask_fill(padding.clone(), HIDDEN),
                None => scores,
            }
        };
        SpanLogits { start: side(0), end: side(1) }
    }
}

/// How well each token begins and ends the answer.
#[derive(Debug, Clone)]
pub struct SpanLogits {
    /// `[B, T]`.
    pub start: Tensor<2>,
    /// `[B, T]`.
    pub end: Tensor<2>,
}

/// An answer: the tokens `start ..= end` of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Its first token.
    pub start: usize,
    /// Its last token.
    pub end: usize,
    /// The sum of the two scores.
    pub score: f32,
}

impl SpanLogits {
    /// The mean of the cross-entropies of first and last token, in nats, over the rows: `[1]`.
    ///
    /// # Shapes
    /// - `starts`, `ends`: `[B]`, each below `T` and no padding
    pub fn loss(&self, starts: Tensor<1, Int>, ends: Tensor<1, Int>) -> Tensor<1> {
        let side = |logits: &Tensor<2>, targets: Tensor<1, Int>| {
            log_softmax(logits.clone(), 1).gather(1, targets.unsqueeze_dim(1)).mean().neg()
        };
        (side(&self.start, starts) + side(&self.end, ends)) / 2.0
    }

    /// The best span of every row, of at most `max_len` tokens.
    ///
    /// # Errors
    /// If the device fails.
    pub fn best(&self, max_len: usize) -> Result<Vec<Span>, TensorReadError> {
        let seq_len = self.start.dims()[1];
        let [starts, ends] = [&self.start, &self.end].map(|side| side.clone().try_into_vec_as::<f32>());
        let (starts, ends) = (starts?, ends?);
        Ok(starts.chunks(seq_len).zip(ends.chunks(seq_len)).map(|(start, end)| best(start, end, max_len)).collect())
    }
}

fn best(starts: &[f32], ends: &[f32], max_len: usize) -> Span {
    let spans = (0..starts.len()).flat_map(|start| {
        let last = (start + max_len.max(1)).min(ends.len());
        (start..last).map(move |end| Span { start, end, score: starts[start] + ends[end] })
    });
    let first = Span { start: 0, end: 0, score: f32::NEG_INFINITY };
    spans.fold(first, |best, span| if span.score > best.score { span } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, TensorData};

    fn logits() -> SpanLogits {
        let device = Device::default();
        SpanLogits {
            start: Tensor::from_floats([[0.0, 1.0, 5.0, HIDDEN]], &device),
            end: Tensor::from_floats([[0.0, 4.0, 2.0, HIDDEN]], &device),
        }
    }

    #[test]
    fn an_answer_does_not_end_before_it_begins() {
        // Token 2 begins and token 1 ends best, but not together: 5 + 2 is more than 1 + 4.
        assert_eq!(logits().best(3).unwrap(), [Span { start: 2, end: 2, score: 7.0 }]);
        let device = Device::default();
        let shorter = SpanLogits { start: Tensor::from_floats([[3.0, 1.0, 0.0, HIDDEN]], &device), ..logits() };
        assert_eq!(shorter.best(4).unwrap()[0], Span { start: 0, end: 1, score: 7.0 });
        assert_eq!(shorter.best(1).unwrap()[0], Span { start: 1, end: 1, score: 5.0 });
    }

    #[test]
    fn the_loss_by_hand_is_the_mean_of_two_cross_entropies() {
        // ln(1 + e + e^5) - 5 and ln(1 + e^4 + e^2) - 4, padding left out.
        let device = Device::default();
        let [one, two] = [2, 1].map(|target| Tensor::from_data(TensorData::from([target]), &device));
        let expected = ((1.0 + 1f64.exp() + 5f64.exp()).ln() - 5.0 + (1.0 + 4f64.exp() + 2f64.exp()).ln() - 4.0) / 2.0;
        assert!((logits().loss(one, two).into_scalar::<f64>() - expected).abs() < 1e-6);
    }
}
