//! Every variant there and back: a configuration as text, the weights as a safetensors file and as Burn's own record.

use std::path::Path;

use burn::config::{Config, config_to_json};
use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::{Int, Tensor, TensorData};
use firelight::nn::{
    EmbeddingScale, EncoderDecoder, EncoderDecoderConfig, EncoderOutput, HeadOptions, ImagePooling, LmHead,
    LmHeadConfig, ParamBuilder, Pass, PatchPosition, SequenceInput, TokenEmbedding, TokenEmbeddingConfig, Transformer,
    TransformerConfig, VisionTransformerConfig,
};
use firelight::storage::{load_weights, save_weights};
use tempfile::TempDir;

use crate::support::grid::{cross_decoder_pairs, decoder_pairs, encoder_pairs};
use crate::support::{Noise, device};

/// `config` through the text of a file, as Burn saves and loads it.
fn read_back<C: Config>(config: &C) -> C {
    C::load_binary(config_to_json(config).as_bytes()).unwrap()
}

/// The models that `init` builds of two seeds are the same after the weights of one went to a file and into the other,
/// and the same again through Burn's record.
fn assert_survives<M: Module>(
    folder: &Path,
    init: impl Fn(&ParamBuilder) -> M,
    run: impl Fn(&M) -> TensorData,
    what: &dyn std::fmt::Debug,
) {
    let [saved, other] = [1, 2].map(|seed| init(&ParamBuilder::new(&device(), seed)));
    run(&saved); // In its first pass a parameter is made, which a GPU fuses otherwise with what reads it.
    let expected = run(&saved);
    assert!(expected.iter::<f32>().all(f32::is_finite), "{what:?}");
    assert!(run(&other) != expected, "another seed is another model: {what:?}");

    let path = folder.join("model.safetensors");
    save_weights(&saved, &path).unwrap();
    let mut loaded = other.clone();
    load_weights(&mut loaded, &path).unwrap();
    assert!(run(&loaded) == expected, "safetensors: {what:?}");

    let bytes = saved.into_record().into_bytes().unwrap();
    let recorded = other.try_load_record(ModuleRecord::from_bytes(bytes).unwrap()).unwrap();
    assert!(run(&recorded) == expected, "record: {what:?}");
}

fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn every_stack_survives() {
    let (home, mut noise) = (home(), Noise::new(31));
    for config in decoder_pairs().into_iter().chain(encoder_pairs()).chain(cross_decoder_pairs()) {
        let (x, memory) = (noise.tensor([2, 6, 16]), noise.tensor([2, 4, 16]));
        let back = read_back(&config);
        assert_eq!(back, config);
        let run = |model: &Transformer| {
            let input = SequenceInput::default().with_encoder_output(EncoderOutput::new(memory.clone()));
            model.forward(x.clone(), &input, &mut Pass::default()).into_data()
        };
        assert_survives(home.path(), |params| back.init_with(params), run, &config);
    }
}

#[test]
fn both_stacks_together_survive() {
    let (home, mut noise) = (home(), Noise::new(33));
    let (source, target) = (noise.tensor([2, 4, 16]), noise.tensor([2, 6, 16]));
    let config = EncoderDecoderConfig::new(16, 4, 1);
    let back = read_back(&config);
    assert_eq!(back, config);
    let run = |model: &EncoderDecoder| {
        let input = SequenceInput::default();
        model.forward(source.clone(), &input, target.clone(), &input).into_data()
    };
    assert_survives(home.path(), |params| back.init_with(params), run, &config);
}

#[derive(Module, Debug)]
struct Ends {
    embedding: TokenEmbedding,
    head: LmHead,
}

#[test]
fn every_embedding_and_head_survives() {
    let home = home();
    let options = HeadOptions::default().with_bias(true).with_scale(0.5).with_soft_cap(Some(3.0));
    for (scale, options) in [
        (EmbeddingScale::None, HeadOptions::default()),
        (EmbeddingScale::SqrtWidth, options),
        (EmbeddingScale::Constant(12.0), options.with_bias(false)),
    ] {
        for tied in [true, false] {
            survives_between_its_ends(home.path(), scale, options, tied);
        }
    }
}

fn survives_between_its_ends(home: &Path, scale: EmbeddingScale, options: HeadOptions, tied: bool) {
    let embedding = TokenEmbeddingConfig::new(11, 8).with_scale(scale);
    let head = LmHeadConfig::new(8, 11).with_tied(tied).with_options(options);
    let back = (read_back(&embedding), read_back(&head));
    assert_eq!(back, (embedding, head));
    let init = |params: &ParamBuilder| Ends {
        embedding: back.0.init_with(&params.scope("embedding")),
        head: back.1.init_with(&params.scope("head")),
    };
    let run = |ends: &Ends| {
        let tokens = Tensor::<2, Int>::from_ints([[3, 10, 0, 7]], &device());
        ends.head.forward(ends.embedding.forward(tokens), &ends.embedding).into_data()
    };
    assert_survives(home, init, run, &back);
}

#[test]
fn every_vision_transformer_survives() {
    let (home, mut noise) = (home(), Noise::new(32));
    for pooling in
        [ImagePooling::ClassToken, ImagePooling::Mean, ImagePooling::Distilled, ImagePooling::ClassOfDistilled]
    {
        for position in [PatchPosition::Learned, PatchPosition::Sinusoidal2d] {
            let config = VisionTransformerConfig::new(8, 4, 3, TransformerConfig::encoder(16, 2, 1))
                .with_pooling(pooling)
                .with_patch_position(position);
            let back = read_back(&config);
            assert_eq!(back, config);
            let images = noise.tensor([2 * 3, 8, 8]).reshape([2, 3, 8, 8]);
            let run = |model: &firelight::nn::VisionTransformer| model.forward(images.clone()).into_data();
            assert_survives(home.path(), |params| back.init_with(params), run, &back);
        }
    }
}
