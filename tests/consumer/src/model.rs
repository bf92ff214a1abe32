//! A classifier of this project's own: Burn's embedding and head, Firelight's encoder, and between them Firelight's
//! attention, through which one trained query reads the whole sequence.

use burn::module::{Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use firelight_core::{
    Attention, AttentionConfig, EncoderOutput, Layer, LayerPass, PairRule, Pass, PositionConfig, SequenceInput,
    Transformer, TransformerBlock, TransformerConfig,
};

use crate::data::{Batch, LETTERS, VOCABULARY};

/// Width of the encoder.
pub const D_MODEL: usize = 32;

/// Tokens to classes.
#[derive(Module, Debug)]
pub struct Classifier<L: Layer = TransformerBlock> {
    embedding: Embedding,
    encoder: Transformer<L>,
    #[module(skip)]
    rule: PairRule,
    query: Param<Tensor<3>>,
    pooling: Attention,
    head: Linear,
}

impl Classifier {
    /// Burn's layers begin as Burn lets them begin, Firelight's by their own seed.
    pub fn new(device: &Device) -> Self {
        let encoder =
            TransformerConfig::encoder(D_MODEL, 4, 2).with_n_kv_heads(2).with_position(PositionConfig::rotary());
        Self::around(encoder.init(device), PairRule::Full, device)
    }
}

impl<L: Layer + 'static> Classifier<L> {
    /// A classifier around an encoder of width [`D_MODEL`], in all of whose layers `rule` hides pairs.
    pub fn around(encoder: Transformer<L>, rule: PairRule, device: &Device) -> Self {
        Self {
            embedding: EmbeddingConfig::new(VOCABULARY, D_MODEL).init(device),
            encoder: encoder.fork(device).train(),
            rule,
            query: Param::from_tensor(Tensor::random([1, 1, D_MODEL], Distribution::Default, device)),
            pooling: AttentionConfig::new(D_MODEL, 4).init(device),
            head: LinearConfig::new(D_MODEL, LETTERS).init(device),
        }
    }

    /// `[B, T] -> [B, LETTERS]`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let [batch, _] = tokens.dims();
        let x = self.embedding.forward(tokens); // [B, T, D]
        let x = self.encoder.forward(x, &SequenceInput::default().with_rule(self.rule.clone()), &mut Pass::default());
        let query = self.query.val().expand([batch, 1, D_MODEL]);
        let pooled = self.pooling.forward_cross(query, &EncoderOutput::new(x), &mut LayerPass::default()); // [B, 1, D]
        self.head.forward(pooled.squeeze_dim::<2>(1))
    }

    /// Loss and logits, as Burn's metrics read them.
    pub fn classify(&self, batch: Batch) -> ClassificationOutput {
        let logits = self.forward(batch.tokens);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        ClassificationOutput::new(loss.forward(logits.clone(), batch.classes.clone()), logits, batch.classes)
    }
}

impl<L: Layer + 'static> TrainStep for Classifier<L> {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl<L: Layer + 'static> InferenceStep for Classifier<L> {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch)
    }
}
