//! What a language model does at inference: it reads a prompt, and continues it with a cache.

use anyhow::{Result, bail};
use burn::tensor::{Device, Int, Tensor};
use firelight::kernels::awake;
use firelight::language::LanguageModel;
use firelight::nn::{Cache, ParamBuilder, Pass, SequenceInput};

use super::Bench;
use super::keep::keep;
use super::workload::{Step, ids};
use crate::failure::Mistake;

/// Tokens of a prompt that is only read, where the context holds as many.
const PREFILL: usize = 512;
/// Tokens of a prompt that is continued, and of its continuation.
const DECODE: [usize; 2] = [128, 64];

/// Reads a prompt.
pub(super) fn prefill(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let inference = Inference::new(bench, device)?;
    let length = PREFILL.min(inference.model.max_seq_len());
    let prompt = ids([1, length], inference.model.vocab_size(), device);
    Ok((length, Box::new(move || read(inference.next(prompt.clone(), &mut inference.model.cache())))))
}

/// Reads a prompt and continues it.
pub(super) fn decode(bench: &Bench, device: &Device) -> Result<(usize, Step)> {
    let inference = Inference::new(bench, device)?;
    let ([prompt, length], context) = (DECODE, inference.model.max_seq_len());
    if prompt + length > context {
        let needed = prompt + length;
        bail!(Mistake(format!(
            "`bench decode` takes {needed} tokens, and the context of this shape is {context}: take gpt2"
        )));
    }
    let prompt = ids([1, prompt], inference.model.vocab_size(), device);
    let step: Step = Box::new(move || {
        let mut cache = inference.model.cache();
        let mut token = inference.next(prompt.clone(), &mut cache);
        for _ in 1..length {
            token = inference.next(token, &mut cache);
        }
        read(token)
    });
    Ok((length, step))
}

/// A language model whose parameters lie in the type that it computes in.
struct Inference {
    model: LanguageModel,
}

impl Inference {
    fn new(bench: &Bench, device: &Device) -> Result<Self> {
        let config = bench.shape().config()?;
        let model = config.init_with(&ParamBuilder::new(device, 0));
        if let Some(file) = &bench.keep {
            keep(&config, &model, bench.dtype, file)?;
        }
        Ok(Self { model: bench.dtype.convert(model)? })
    }

    /// The most probable token after the last of `tokens`, `[1, T] -> [1, 1]`.
    fn next(&self, tokens: Tensor<2, Int>, cache: &mut Cache) -> Tensor<2, Int> {
        let (last, mut pass) = (tokens.dims()[1] - 1, Pass::cached(cache));
        awake(&tokens.device(), || {
            let hidden = self.model.hidden(tokens, &SequenceInput::default(), &mut pass).narrow(1, last, 1);
            self.model.logits(hidden).argmax(2).squeeze_dim(2)
        })
    }
}

/// Waits for a result, which a lazy backend might else never compute.
fn read(result: Tensor<2, Int>) -> Result<()> {
    result.try_into_data()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::{Module, ModuleVisitor, Param};
    use burn::tensor::DType;
    use clap::Parser;
    use firelight::nn::weights_of;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    struct Types(Vec<DType>);

    impl ModuleVisitor for Types {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(param.val().dtype());
        }
    }

    #[test]
    fn parameters_lie_in_the_type_that_is_asked_for() {
        for (name, dtype) in [("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)] {
            let bench = Line::parse_from(["firelight", "decode", "--config", "baby", "--dtype", name]).bench;
            let inference = Inference::new(&bench, &Device::flex()).unwrap();
            let mut types = Types(Vec::new());
            inference.model.visit(&mut types);
            assert!(types.0.len() > 8 && types.0.iter().all(|found| *found == dtype), "{name}: {:?}", types.0);
        }
    }

    #[test]
    fn matrices_lie_in_the_blocks_that_are_asked_for() {
        // Four layers of six matrices, and the table; of whole blocks of 256 is the last matrix of a layer alone, with rows of 512.
        for (name, matrices) in [("q8_0", 25), ("q4_0", 25), ("q4_k", 4), ("q6_k", 4)] {
            let bench = Line::parse_from(["firelight", "prefill", "--config", "baby", "--dtype", name]).bench;
            let inference = Inference::new(&bench, &Device::flex()).unwrap();
            let formats = weights_of(&inference.model).into_iter().filter_map(|weight| weight.format);
            let names: Vec<&str> = formats.map(|format| format.name()).collect();
            assert_eq!(names, vec![name; matrices]);
        }
    }
}
