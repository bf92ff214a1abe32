//! The model that `firelight bench prefill|decode` measures as a GGUF file, on which another program can be timed.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use firelight::data::{Tokenizer, TokenizerConfig};
use firelight::language::{LanguageModel, LanguageModelConfig};
use firelight::pretrained::{Structure, export_gguf};
use firelight::storage::{Checkpoint, Existing, ModelFolder, save_weights};

use super::dtype::Dtype;
use crate::failure::Mistake;
use crate::output;

/// Tokens of the smallest tokenizer that llama.cpp loads: all bytes, and a pair of them.
const TOKENS: usize = 257;

/// A text with such a pair.
const TEXT: &str = "aa aa aa";

/// Writes a model, whose parameters are still floats, with its matrices in `dtype`. Its tokenizer knows bytes; the other ids are tokens that
/// no text has.
///
/// # Errors
/// If the vocabulary holds no bytes, or a file cannot be written.
pub(super) fn keep(config: &LanguageModelConfig, model: &LanguageModel, dtype: Dtype, file: &Path) -> Result<()> {
    let size = config.vocab_size;
    let small = || {
        format!(
            "--keep needs {TOKENS} tokens for the bytes of a tokenizer, and this shape has {size}: take --config gpt2"
        )
    };
    ensure!(size >= TOKENS, Mistake(small()));
    // Beside the file, where there has to be room for it anyway.
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let scratch = tempfile::tempdir_in(parent).with_context(|| format!("cannot write into `{}`", parent.display()))?;
    let run = ModelFolder::create(scratch.path().join("model"), Existing::Refuse)?;
    Tokenizer::train(&TokenizerConfig::Bpe { vocab_size: TOKENS }, TEXT)?.save(run.tokenizer())?;
    save_weights(model, run.weights_path(&Checkpoint::Last))?;
    Structure::Language(config.clone()).write(&run)?; // Last, for it makes the folder one of a model.
    let told = export_gguf(run.path(), &Checkpoint::Last, file, &dtype.to_string())?;
    told.iter().for_each(|told| output::note(format_args!("{told}")));
    output::note(format_args!("written: {}", file.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::shape::llama;
    use super::*;
    use burn::tensor::{Device, Int, Tensor};
    use firelight::kernels::Difference;
    use firelight::language::{BlockMix, TextGenerator};
    use firelight::nn::{Init, ParamBuilder, Pass, SequenceInput, TransformerConfig, WeightInit, weights_of};
    use firelight::pretrained::run_folder;

    /// Logits far apart: no rounding decides which token is the most probable.
    fn far(stack: TransformerConfig) -> TransformerConfig {
        stack.with_init(WeightInit { weight: Init::Normal { std: 0.2 }, scale_residual: false })
    }

    fn drawn(config: &LanguageModelConfig) -> LanguageModel {
        config.init_with(&ParamBuilder::new(&Device::flex(), 0))
    }

    /// The file of such a model in a folder.
    fn kept(config: &LanguageModelConfig, dtype: &str, home: &Path) -> PathBuf {
        let file = home.join(format!("{dtype}.gguf"));
        keep(config, &drawn(config), dtype.parse().unwrap(), &file).unwrap();
        file
    }

    /// The model of a file, as every command reads it.
    fn read(file: &Path, home: &Path) -> TextGenerator {
        let run = run_folder(file, &home.join("cache"), |_| ()).unwrap();
        TextGenerator::load_from(run, &Checkpoint::Last, &Device::flex()).unwrap()
    }

    fn greedy(model: &LanguageModel) -> Vec<i64> {
        let mut cache = model.cache();
        let mut tokens = Tensor::<2, Int>::from_ints([[7, 260, 1, 299]], &Device::flex());
        let mut ids = Vec::new();
        for _ in 0..6 {
            let last = tokens.dims()[1] - 1;
            let hidden = model.hidden(tokens, &SequenceInput::default(), &mut Pass::cached(&mut cache));
            tokens = model.logits(hidden.narrow(1, last, 1)).argmax(2).squeeze_dim(2);
            ids.extend(tokens.clone().try_into_vec_as::<i64>().unwrap());
        }
        ids
    }

    fn logits(model: &LanguageModel) -> Vec<f32> {
        let tokens = Tensor::<2, Int>::from_ints([[7, 260, 1, 299]], &Device::flex());
        model.forward(tokens).try_into_vec_as::<f32>().unwrap()
    }

    #[test]
    fn a_kept_model_comes_back_and_chooses_the_same_ids() {
        let gpt = LanguageModelConfig::new(300, 64, 4, 2).with_max_seq_len(16).with_transformer(far);
        for config in [llama(gpt.clone(), 2, 96), gpt] {
            let home = tempfile::tempdir().unwrap();
            let file = kept(&config, "f32", home.path());
            let found = read(&file, home.path());
            assert_eq!((found.tokenizer().vocab_size(), found.tokenizer().token(256)), (TOKENS, Some("aa".into())));
            // llama.cpp counts the tokens of a list.
            let last = fs::read(&file).unwrap().windows(8).filter(|bytes| **bytes == *b"[PAD299]").count();
            assert_eq!(last, 1);
            assert_eq!(greedy(found.model()), greedy(&drawn(&config)));
            let apart = Difference::between(&logits(found.model()), &logits(&drawn(&config)));
            assert!(apart.relative(0.0) < 1e-4, "{apart:?}");
        }
    }

    /// The embedding and the head of `q4_k` have more bits in both.
    #[test]
    fn a_file_in_blocks_holds_the_blocks_that_are_measured() {
        let config = llama(LanguageModelConfig::new(300, 256, 4, 1).with_max_seq_len(16), 2, 256);
        for dtype in ["q8_0", "q4_k"] {
            let home = tempfile::tempdir().unwrap();
            let found = read(&kept(&config, dtype, home.path()), home.path());
            let dtype: Dtype = dtype.parse().unwrap();
            let Dtype::Blocks(format) = dtype else { panic!("no blocks") };
            let measured = dtype.convert(drawn(&config)).unwrap();
            assert_eq!(weights_of(found.model()), weights_of(&measured));
            assert_eq!(weights_of(&measured).len(), BlockMix::new(format).report(&drawn(&config)).formats.len());
            assert_eq!(logits(found.model()), logits(&measured));
        }
    }

    #[test]
    fn a_vocabulary_without_bytes_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (config, file) = (LanguageModelConfig::new(65, 32, 2, 1), home.path().join("a.gguf"));
        let error = keep(&config, &drawn(&config), "f32".parse().unwrap(), &file).unwrap_err().to_string();
        assert!(error.contains("257 tokens") && error.contains("has 65"), "{error}");
        assert!(!file.exists());
    }
}
