//! The parameter counts of published models, composed from our parts. The stacks are counted without being built.

use burn::module::Module;
use firelight::nn::{
    Activation, AttentionConfig, Init, LinearConfig, NormConfig, NormPlacement, PositionConfig, TokenEmbeddingConfig,
    TransformerConfig, VisionTransformerConfig,
};

use crate::support::device;

fn embedding(n: usize, d_model: usize) -> usize {
    TokenEmbeddingConfig::new(n, d_model).with_init(Init::Zeros).init(&device()).num_params()
}

fn linear(d_in: usize, d_out: usize) -> usize {
    LinearConfig::new(d_in, d_out).with_init(Init::Zeros).init(&device()).num_params()
}

/// The stacks of Vaswani et al. 2017: post-norm, ReLU, no parameters for positions.
fn base(config: TransformerConfig) -> usize {
    let config = config.with_activation(Activation::Relu).with_norm_placement(NormPlacement::Post);
    config.with_position(PositionConfig::Sinusoidal).init(&device()).num_params()
}

#[test]
fn layers() {
    assert_eq!(AttentionConfig::new(64, 8).init(&device()).num_params(), 16_640);
    assert_eq!(base(TransformerConfig::encoder(512, 8, 1)), 3_152_384);
    assert_eq!(base(TransformerConfig::decoder(512, 8, 1)), 4_204_032);
}

#[test]
fn the_original_transformer() {
    let stacks = base(TransformerConfig::encoder(512, 8, 6)) + base(TransformerConfig::decoder(512, 8, 6));
    assert_eq!(stacks, 44_138_496);
    // Two vocabularies and a head with a bias of its own; or one matrix for all three.
    let untied = |vocab_size| 2 * embedding(vocab_size, 512) + stacks + linear(512, vocab_size);
    assert_eq!([37_000, 32_000].map(untied), [101_007_496, 93_322_496]);
    assert_eq!(embedding(37_000, 512) + stacks, 63_082_496);
}

#[test]
fn the_translator_of_multi30k() {
    // Learned positions to 100, 3 + 3 layers of 256 / 512.
    let stack = |config: TransformerConfig| {
        let config = config.with_d_ff(512).with_max_seq_len(100).with_activation(Activation::Relu);
        config.with_norm_placement(NormPlacement::Post).init(&device()).num_params()
    };
    let encoder = embedding(7853, 256) + stack(TransformerConfig::encoder(256, 8, 3));
    let decoder = embedding(5893, 256) + stack(TransformerConfig::decoder(256, 8, 3)) + linear(256, 5893);
    assert_eq!(encoder + decoder, 9_038_341);
}

#[test]
fn bert_base_with_its_pooler() {
    let stack = TransformerConfig::encoder(768, 12, 12).with_norm_placement(NormPlacement::Post).with_max_seq_len(512);
    let norm = NormConfig::layer().init(768, &device()).num_params();
    let embeddings = embedding(30_522, 768) + embedding(2, 768) + norm; // words, segments; the positions are the stack's
    assert_eq!(embeddings + stack.init(&device()).num_params() + linear(768, 768), 109_482_240);
}

#[test]
fn t5_small() {
    let stack = |config: TransformerConfig, bidirectional| {
        let config = config.with_activation(Activation::Relu).with_norm(NormConfig::rms()).with_bias(false);
        config.with_position(PositionConfig::t5(bidirectional)).init(&device()).num_params()
    };
    let encoder = stack(TransformerConfig::encoder(512, 8, 6), true);
    let decoder = stack(TransformerConfig::decoder(512, 8, 6), false);
    assert_eq!(embedding(32_128, 512) + encoder + decoder, 60_506_624);
}

#[test]
fn gpt_with_a_tied_head() {
    let stack = TransformerConfig::new(768, 12, 12).init(&device()).num_params();
    assert_eq!(embedding(50_257, 768) + stack, 124_439_808);
    assert_eq!(embedding(50_000, 768) + stack, 124_242_432);
}

#[test]
fn the_character_models_of_nano_gpt() {
    let unbiased = |config: TransformerConfig| {
        let config = config.with_bias(false).with_norm(NormConfig::Layer { epsilon: 1e-5, bias: false });
        config.init(&device()).num_params()
    };
    let gpu = embedding(65, 384) + unbiased(TransformerConfig::new(384, 6, 6).with_max_seq_len(256));
    assert_eq!((gpu, gpu - 256 * 384), (10_745_088, 10_646_784)); // nanoGPT does not count its positions
    let cpu = embedding(65, 128) + unbiased(TransformerConfig::new(128, 4, 4).with_max_seq_len(64));
    assert_eq!(cpu, 804_096);
}

#[test]
fn the_story_models_of_llama2_c() {
    let count = |vocab_size, config: TransformerConfig| {
        let config = config.with_activation(Activation::SwiGlu).with_norm(NormConfig::rms()).with_bias(false);
        embedding(vocab_size, config.d_model)
            + config.with_position(PositionConfig::rotary()).init(&device()).num_params()
    };
    assert_eq!(count(512, TransformerConfig::new(64, 8, 5).with_n_kv_heads(4).with_d_ff(172)), 260_032);
    assert_eq!(count(32_000, TransformerConfig::new(288, 6, 6).with_d_ff(768)), 15_191_712);
}

#[test]
fn vision_transformers() {
    let small = TransformerConfig::encoder(128, 8, 4).with_d_ff(512).with_activation(Activation::Gelu);
    assert_eq!(VisionTransformerConfig::new(32, 8, 10, small).init(&device()).num_params(), 821_642);
    // ViT-B/16 on 224 x 224 by its parts: patches, class token, one place for each, stack, head.
    let stack =
        TransformerConfig::encoder(768, 12, 12).with_position(PositionConfig::None).init(&device()).num_params();
    assert_eq!(linear(3 * 16 * 16, 768) + 768 + (14 * 14 + 1) * 768 + stack + linear(768, 1000), 86_567_656);
}
