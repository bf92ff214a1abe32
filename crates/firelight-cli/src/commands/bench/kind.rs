//! The kinds of layers that `firelight bench attention --kinds` compares.

use std::fmt;
use std::str::FromStr;

use burn::nn::LstmConfig;
use burn::tensor::{Device, Tensor};
use firelight::kernels::{AttentionMask, PairRule};
use firelight::nn::{
    Activation, AttentionConfig, AttentionContext, AttentionMechanism, FeedForwardConfig, GatedDeltaConfig,
    LayerContext, LayerPass, ParamBuilder, TokenMixer,
};

use super::HEADS;

/// Width of every layer: heads of 64.
const D_MODEL: usize = 64 * HEADS;

/// What a layer computes, `[B, T, D] -> [B, T, D]`.
pub(super) type Layer = Box<dyn Fn(Tensor<3>) -> Tensor<3> + Send + Sync>;

/// What a layer does with the tokens of a sequence. None of them reads a later token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Causal attention, by the kernels that the device has.
    Softmax,
    /// The same to so many tokens before.
    Window(usize),
    /// Causal attention whose scores are all in memory at once, `[B, H, T, T]`: the path without kernels of our own, which a process takes
    /// as a whole ([`variable`](Self::variable)).
    Reference,
    /// Linear attention.
    Linear,
    /// Gated DeltaNet.
    GatedDelta,
    /// A feed-forward network, which mixes no tokens: the control.
    FeedForward,
    /// Burn's LSTM.
    Lstm,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Window(before) => write!(f, "window:{before}"),
            Self::Softmax => f.write_str("softmax"),
            Self::Reference => f.write_str("reference"),
            Self::Linear => f.write_str("linear"),
            Self::GatedDelta => f.write_str("gated-delta"),
            Self::FeedForward => f.write_str("feed-forward"),
            Self::Lstm => f.write_str("lstm"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let window = || text.strip_prefix("window:").and_then(|before| before.parse().ok()).map(Self::Window);
        let known = [Self::Softmax, Self::Reference, Self::Linear, Self::GatedDelta, Self::FeedForward, Self::Lstm];
        let found = known.into_iter().find(|kind| kind.to_string() == text).or_else(window);
        found.ok_or_else(|| EXPECTED.into())
    }
}

const EXPECTED: &str =
    "expected softmax, window:N, reference, linear, gated-delta, feed-forward or lstm, as softmax,window:64,lstm";

impl Kind {
    /// The environment variable, with its value, by which a process computes as this kind asks for. Which kernels run is decided once
    /// in a process.
    pub(super) fn variable(self) -> Option<(&'static str, &'static str)> {
        (self == Self::Reference).then_some(("FIRELIGHT_KERNELS", "reference"))
    }

    /// The layer, with random weights of seed 0; those of the LSTM are drawn by the device.
    pub(super) fn layer(self, device: &Device) -> Layer {
        let (attention, params) = (AttentionConfig::new(D_MODEL, HEADS), ParamBuilder::new(device, 0));
        match self {
            Self::Softmax | Self::Reference => mixer(attention.init_with(&params), PairRule::Causal),
            Self::Window(before) => mixer(attention.init_with(&params), PairRule::window(before, 0)),
            Self::Linear => {
                mixer(attention.with_mechanism(AttentionMechanism::Linear).init_with(&params), PairRule::Causal)
            }
            Self::GatedDelta => mixer(GatedDeltaConfig::default().init_with(&attention, &params), PairRule::Causal),
            Self::FeedForward => {
                let network = FeedForwardConfig::new(D_MODEL, Activation::default()).init_with(&params);
                Box::new(move |x: Tensor<3>| network.forward(x))
            }
            Self::Lstm => {
                let lstm = LstmConfig::new(D_MODEL, D_MODEL, true).init(device);
                Box::new(move |x: Tensor<3>| lstm.forward(x, None).0)
            }
        }
    }
}

fn mixer(mixer: impl TokenMixer + Sync + 'static, rule: PairRule) -> Layer {
    let attention = AttentionContext::masked(AttentionMask::rule(rule));
    let context = LayerContext { attention, ..LayerContext::default() };
    Box::new(move |x: Tensor<3>| TokenMixer::forward(&mixer, x, &context, &mut LayerPass::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::Bench;
    use crate::commands::bench::workload::Workload;
    use burn::tensor::Distribution;
    use clap::Parser;

    const ALL: &str = "softmax,window:1,reference,linear,gated-delta,feed-forward,lstm";

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn kinds() -> Vec<Kind> {
        ALL.split(',').map(|kind| kind.parse().unwrap()).collect()
    }

    #[test]
    fn every_kind_has_the_name_that_it_prints() {
        assert_eq!(kinds().iter().map(Kind::to_string).collect::<Vec<_>>().join(","), ALL);
        assert_eq!("window:64".parse::<Kind>(), Ok(Kind::Window(64)));
        for text in ["", "Softmax", "window", "window:", "window:-1", "window:a", "gru"] {
            let error = text.parse::<Kind>().unwrap_err();
            assert!(
                error.contains("window:N, reference, linear, gated-delta, feed-forward or lstm"),
                "{text}: {error}"
            );
        }
    }

    /// The last token is another one: whatever reads no later token says the same of those before it.
    #[test]
    fn no_layer_reads_a_later_token_and_all_but_the_control_an_earlier_one() {
        let device = Device::flex();
        for kind in kinds() {
            let layer = kind.layer(&device);
            let x = Tensor::<3>::random([1, 3, D_MODEL], Distribution::Normal(0.0, 1.0), &device);
            let one = |first: usize, count: usize| layer(x.clone()).narrow(1, first, count);
            let shifted = |token: usize| {
                let offset = Tensor::<3>::ones([1, 1, D_MODEL], &device);
                let before = x.clone().narrow(1, token, 1);
                layer(x.clone().slice_assign([0..1, token..token + 1, 0..D_MODEL], before + offset))
            };
            let apart = |a: Tensor<3>, b: Tensor<3>| (a - b).abs().max().into_scalar::<f32>();
            assert_eq!(layer(x.clone()).dims(), [1, 3, D_MODEL]);
            assert!(apart(shifted(2).narrow(1, 0, 2), one(0, 2)) < 1e-5, "{kind}: a later token");
            let reads = apart(shifted(1).narrow(1, 2, 1), one(2, 1)) > 1e-4;
            assert_eq!(reads, kind != Kind::FeedForward, "{kind}: an earlier token");
            let window = apart(shifted(0).narrow(1, 2, 1), one(2, 1)) < 1e-5;
            assert_eq!(window, matches!(kind, Kind::FeedForward | Kind::Window(1)), "{kind}: beyond a window of 1");
        }
    }

    #[test]
    fn every_kind_is_a_step_that_can_be_repeated() {
        for kind in kinds() {
            let words = ["firelight", "attention", "--length", "4", "--kind", &kind.to_string()].map(str::to_string);
            let bench = Line::parse_from(words).bench;
            let mut workload = Workload::new(&bench, &Device::flex()).unwrap();
            workload.step().unwrap();
            workload.step().unwrap();
            assert_eq!((workload.name.as_str(), workload.tokens), (format!("{kind}-4").as_str(), 4));
        }
    }
}
