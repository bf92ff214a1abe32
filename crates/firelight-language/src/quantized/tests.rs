use super::*;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor};
use firelight_core::{Init, ParamBuilder, WeightInit, WeightLayout};
use firelight_data::{Tokenizer, TokenizerConfig};
use firelight_generation::GenerationOptions;
use firelight_kernels::Difference;
use firelight_storage::Existing;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

// All on flex: other devices make floats of blocks.
fn config(d_model: usize) -> LanguageModelConfig {
    let wide = WeightInit { weight: Init::Normal { std: 0.2 }, scale_residual: false };
    let config = LanguageModelConfig::new(9, d_model, 4, 2).with_max_seq_len(12);
    config.with_transformer(|stack| stack.with_init(wide))
}

fn generator(config: &LanguageModelConfig) -> TextGenerator {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
    TextGenerator::new(config.init_with(&ParamBuilder::new(&Device::flex(), 0)), tokenizer)
}

fn logits(model: &LanguageModel) -> Vec<f32> {
    let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2, 7, 0], [3, 3, 0, 8, 4]], &Device::flex());
    model.forward(tokens).try_into_vec_as::<f32>().unwrap()
}

/// A run folder of floats.
fn saved(generator: &TextGenerator, config: &LanguageModelConfig, path: &Path) -> ModelFolder {
    let folder = ModelFolder::create(path, Existing::Refuse).unwrap();
    generator.tokenizer().save(folder.tokenizer()).unwrap();
    folder.write_config(crate::TASK, config).unwrap();
    save_weights(generator.model(), folder.weights_path(&Checkpoint::Last)).unwrap();
    folder
}

fn load(folder: &ModelFolder) -> Result<TextGenerator, TaskError> {
    TextGenerator::load_from(folder.path(), &Checkpoint::Last, &Device::flex())
}

fn load_error(folder: &ModelFolder) -> String {
    let error = load(folder).unwrap_err();
    assert!(error.is_user_error(), "{error}");
    error.to_string()
}

#[test]
fn logits_of_eight_bits_are_near_those_of_floats_and_four_bits_are_farther() {
    for tied in [true, false] {
        let config = config(64).with_tied(tied);
        let floats = logits(generator(&config).model());
        let apart = |format| {
            let model = generator(&config).quantize(&BlockMix::new(format));
            Difference::between(&logits(model.model()), &floats).absolute
        };
        let largest = floats.iter().fold(0.0_f64, |largest, logit| largest.max(f64::from(logit.abs())));
        let [eight, four] = [BlockFormat::Q8_0, BlockFormat::Q4_0].map(apart);
        assert!(eight > 0.0 && eight < 0.1 * largest, "{eight} of {largest}");
        assert!(four > eight, "{four} is not above {eight}");
    }
}

#[test]
fn the_cache_and_the_texts_beside_it_change_no_text() {
    let options = GenerationOptions::new(20).greedy();
    for (d_model, format) in [(64, BlockFormat::Q8_0), (64, BlockFormat::Q4_0), (256, BlockFormat::Q4K)] {
        let quantized = || generator(&config(d_model)).quantize(&BlockMix::new(format));
        let alone = |prompt: &str| quantized().generate(prompt, &options).unwrap();
        assert_eq!(quantized().without_cache().generate("abc", &options).unwrap(), alone("abc"), "{format:?}");
        let prompts = ["abc", "cab", "bca"];
        let found = quantized().generate_each(&prompts, &options);
        let found = found.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        assert_eq!(found, prompts.map(alone), "{format:?}");
    }
}

#[test]
fn embedding_and_head_have_more_bits_than_layers_of_q4_k() {
    let mix = BlockMix::new(BlockFormat::Q4K);
    let told = mix.report(&config(256).with_tied(false).init(&Device::flex()));
    for (path, format) in &told.formats {
        let is_end = ["embedding.weight", "head.weight"].contains(&path.as_str());
        assert_eq!(*format, if is_end { BlockFormat::Q6K } else { BlockFormat::Q4K }, "{path}");
    }
    // Two layers of six matrices, and both ends.
    assert_eq!((told.formats.len(), told.kept.len()), (14, 0));
    let mix = mix.with_ends(BlockFormat::Q8_0);
    assert_eq!(entry("head.weight", 32).mixed(mix.layers, mix.ends), Ok(BlockFormat::Q8_0));
}

fn entry(path: &str, width: usize) -> WeightEntry {
    WeightEntry { path: path.into(), rows: 3, width, layout: WeightLayout::Columns, format: None }
}

#[test]
fn what_stays_floats_is_told_and_bytes_are_counted() {
    let config = config(64);
    let model = config.init(&Device::flex());
    let told = BlockMix::new(BlockFormat::Q6K).report(&model);
    // Of widths 64 and 256 the latter is of whole blocks: the second matrix of both feed-forward networks.
    let paths = ["transformer.blocks.0.feed_forward.down.weight", "transformer.blocks.1.feed_forward.down.weight"];
    assert_eq!(told.formats.keys().collect::<Vec<_>>(), paths);
    let reason = "its rows of 64 numbers are not of whole blocks of q6_k, which hold 256";
    assert!(told.kept.len() == 11 && told.kept.iter().all(|kept| kept.reason == reason), "{told:?}");
    // 64 rows of 210 bytes each in the place of 256 floats.
    let before = model.report().total() * 4;
    assert_eq!((told.bytes_before, told.bytes_after), (before, before - 2 * 64 * (1024 - 210)));
    let router = entry("transformer.blocks.0.feed_forward.router.weight", 64);
    let router = router.mixed(BlockFormat::Q8_0, BlockFormat::Q8_0);
    assert!(router.unwrap_err().contains("router"));
}

#[test]
fn a_model_in_blocks_comes_back_from_its_folder_to_the_bit_under_the_same_paths() {
    let home = tempfile::tempdir().unwrap();
    for (name, d_model, tied, format) in
        [("a", 64, true, BlockFormat::Q8_0), ("b", 64, false, BlockFormat::Q4_0), ("c", 256, false, BlockFormat::Q4K)]
    {
        let config = config(d_model).with_tied(tied);
        let run = saved(&generator(&config), &config, &home.path().join(format!("{name}-floats")));
        let quantized = load(&run).unwrap().quantize(&BlockMix::new(format));
        let folder = quantized.save_quantized(&run, home.path().join(name)).unwrap();
        let again = load(&folder).unwrap();
        assert_eq!(weights_of(again.model()), weights_of(quantized.model()));
        assert_eq!(logits(again.model()), logits(quantized.model()));
        assert_eq!(keys(&folder), keys(&run));
        assert!(again.score("abc", &crate::ScoreOptions::default()).unwrap().perplexity() > 1.0);

        // What is quantised is not quantised again.
        assert_eq!(logits(again.quantize(&BlockMix::new(BlockFormat::Q4_0)).model()), logits(quantized.model()));
    }
}

/// The keys of the weights file of a folder.
fn keys(folder: &ModelFolder) -> Vec<String> {
    let bytes = std::fs::read(folder.weights_path(&Checkpoint::Last)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut names: Vec<String> = tensors.names().iter().map(ToString::to_string).collect();
    names.sort_unstable();
    names
}

#[test]
fn half_precision_leaves_blocks_alone() {
    let model = config(64).init_with(&ParamBuilder::new(&Device::flex(), 0)); // Others may lack the type.
    let quantized = BlockMix::new(BlockFormat::Q8_0).apply(model);
    let half = quantized.clone().cast(FloatDType::BF16);
    assert_eq!(weights_of(&half), weights_of(&quantized));
    let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2]], &Device::flex());
    let (found, expected) = (half.forward(tokens.clone()), quantized.forward(tokens));
    assert_eq!((found.dtype(), expected.dtype()), (DType::BF16, DType::F32));
    let numbers = |logits: Tensor<3>| logits.try_into_vec_as::<f32>().unwrap();
    let apart = Difference::between(&numbers(found), &numbers(expected));
    assert!(apart.relative(0.0) < 0.05, "{apart:?}");
}

#[test]
#[allow(deprecated)] // Burn's older CPU backend multiplies no blocks.
fn another_device_has_the_numbers_of_the_blocks_as_floats() {
    let home = tempfile::tempdir().unwrap();
    let config = config(64);
    let run = saved(&generator(&config), &config, &home.path().join("floats"));
    let quantized = load(&run).unwrap().quantize(&BlockMix::new(BlockFormat::Q8_0));
    let folder = quantized.save_quantized(&run, home.path().join("blocks")).unwrap();
    let loaded = TextGenerator::load_from(folder.path(), &Checkpoint::Last, &Device::ndarray()).unwrap();
    assert!(weights_of(loaded.model()).iter().all(|weight| weight.format.is_none()));
    let weight = |generator: &TextGenerator| generator.model().embedding.weight.val().into_data();
    weight(&loaded).assert_eq(&weight(&quantized), true);
    assert_eq!(loaded.model().embedding.weight.device(), Device::ndarray());
}

#[test]
fn blocks_are_loaded_beside_half_precision() {
    let home = tempfile::tempdir().unwrap();
    let config = config(64);
    let run = saved(&generator(&config), &config, &home.path().join("floats"));
    let quantized = load(&run).unwrap().quantize(&BlockMix::new(BlockFormat::Q8_0));
    let folder = quantized.save_quantized(&run, home.path().join("blocks")).unwrap();

    let device = Device::flex(); // Others may lack the type.
    let loaded = TextGenerator::load_in(folder.path(), &Checkpoint::Last, &device, FloatDType::BF16).unwrap();
    let blocks = TextGenerator::load_from(folder.path(), &Checkpoint::Last, &device).unwrap();
    let cast = blocks.model().clone().cast(FloatDType::BF16);
    assert_eq!(weights_of(loaded.model()), weights_of(blocks.model()));
    let tokens = Tensor::<2, Int>::from_ints([[1, 5, 2]], &device);
    let [found, expected] = [loaded.model(), &cast].map(|model| model.forward(tokens.clone()));
    assert_eq!(found.dtype(), DType::BF16);
    found.into_data().assert_eq(&expected.into_data(), true);
}

/// Writes a tensor of bytes again as 32-bit integers.
fn as_integers(folder: &ModelFolder, key: &str) {
    let path = folder.weights_path(&Checkpoint::Last);
    let bytes = std::fs::read(&path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let numbers = tensors.tensor(key).unwrap().data().iter().map(|&byte| i32::from(byte));
    let numbers: Vec<u8> = numbers.flat_map(i32::to_le_bytes).collect();
    let views = tensors.tensors().into_iter().map(|(name, view)| match name == key {
        true => (name, TensorView::new(Dtype::I32, view.shape().to_vec(), &numbers).unwrap()),
        false => (name, view),
    });
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn integers_in_the_place_of_blocks_are_refused_before_a_token_is_written() {
    let home = tempfile::tempdir().unwrap();
    let config = config(64);
    let run = saved(&generator(&config), &config, &home.path().join("floats"));
    let quantized = load(&run).unwrap().quantize(&BlockMix::new(BlockFormat::Q8_0));
    let folder = quantized.save_quantized(&run, home.path().join("blocks")).unwrap();
    as_integers(&folder, "embedding.weight");
    let error = load_error(&folder);
    assert!(error.contains("model.safetensors` does not fit the model"), "{error}");
    assert!(
        error.contains("embedding.weight (expected blocks of few bits, bytes of the type U8, found I32)"),
        "{error}"
    );
}

#[test]
fn a_file_that_does_not_fit_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let config = config(64);
    let run = saved(&generator(&config), &config, &home.path().join("floats"));
    let none = load(&run).unwrap().save_quantized(&run, home.path().join("none")).unwrap_err();
    assert!(none.to_string().starts_with("no matrix of the model is in blocks"), "{none}");

    let quantized = load(&run).unwrap().quantize(&BlockMix::new(BlockFormat::Q8_0));
    let folder = quantized.save_quantized(&run, home.path().join("blocks")).unwrap();
    let whole = folder.read_quantization().unwrap().unwrap();
    let with = |path: &str, name: &str| {
        let mut names = whole.clone();
        names.insert(path.into(), name.into());
        folder.write_quantization(&names).unwrap();
        load_error(&folder)
    };
    let error = with("head.weight", "q8_0");
    assert!(error.contains("quantization.json` does not fit the model: `head.weight` is no matrix"), "{error}");
    let error = with("embedding.weight", "q5_9");
    assert!(error.contains("the unknown format `q5_9` for `embedding.weight`: expected one of q8_0, "), "{error}");
    let error = with("embedding.weight", "q4_k");
    assert!(error.contains("`embedding.weight` has rows of 64 numbers: blocks of q4_k hold 256"), "{error}");
    let error = with("embedding.weight", "q4_0");
    assert!(error.contains("embedding.weight (expected [9, 36], found [9, 68])"), "{error}");

    let mut names = whole.clone();
    names.remove("embedding.weight");
    folder.write_quantization(&names).unwrap();
    assert!(load_error(&folder).contains("holds `embedding.weight` in blocks of few bits where floats are expected"));
    std::fs::remove_file(folder.quantization()).unwrap();
    assert!(load_error(&folder).contains("in blocks of few bits where floats are expected"));

    run.write_quantization(&whole).unwrap();
    assert!(load_error(&run).contains("found F32"));
}
