//! A classifier of this project's own: Burn's embedding and head, Firelight's encoder, and between them Firelight's
//! attention, through which one trained query reads the whole sequence.

use burn::module::{Module, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Int, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use firelight_core::{
    Attention, AttentionConfig, LayerPass, Memory, Pass, PositionConfig, SequenceInput, Transformer, TransformerConfig,
};

use crate::data::{Batch, LETTERS, VOCABULARY};

const D_MODEL: usize = 32;

/// Tokens to classes.
#[derive(Module, Debug)]
pub struct Classifier {
    embedding: Embedding,
    encoder: Transformer,
    query: Param<Tensor<3>>,
    pooling: Attention,
    head: Linear,
}

impl Classifier {
    /// Burn's layers begin as Burn lets them begin, Firelight's by their own seed.
    pub fn new(device: &Device) -> Self {
        let encoder =
            TransformerConfig::encoder(D_MODEL, 4, 2).with_n_kv_heads(2).with_position(PositionConfig::rotary());
        Self {
            embedding: EmbeddingConfig::new(VOCABULARY, D_MODEL).init(device),
            encoder: encoder.init(device),
            query: Param::from_tensor(Tensor::random([1, 1, D_MODEL], Distribution::Default, device)),
            pooling: AttentionConfig::new(D_MODEL, 4).init(device),
            head: LinearConfig::new(D_MODEL, LETTERS).init(device),
        }
    }

    /// `[B, T] -> [B, LETTERS]`.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let [batch, _] = tokens.dims();
        let x = self.embedding.forward(tokens); // [B, T, D]
        let x = self.encoder.forward(x, &SequenceInput::default(), &mut Pass::default());
        let query = self.query.val().expand([batch, 1, D_MODEL]);
        let pooled = self.pooling.forward_cross(query, &Memory::new(x), &mut LayerPass::default()); // [B, 1, D]
        self.head.forward(pooled.squeeze_dim::<2>(1))
    }

    /// Loss and logits, as Burn's metrics read them.
    pub fn classify(&self, batch: Batch) -> ClassificationOutput {
        let logits = self.forward(batch.tokens);
        let loss = CrossEntropyLossConfig::new().init(&logits.device());
        ClassificationOutput::new(loss.forward(logits.clone(), batch.classes.clone()), logits, batch.classes)
    }
}

impl TrainStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch)
    }
}
