//! One word in five sentences: the vectors that an encoder makes of "bank", and how similar they are. A bank of money is nearer to other
//! banks of money than to that of a river, though the word, and what goes into the model for it, is the same.
//!
//! Command: cargo run --release -p firelight-examples --example contextual_embeddings -- all-MiniLM-L6-v2/ bank.svg
//! (a run, a folder as Hugging Face has it, or a name on its hub)
//! Time: a second, once it is built.
//! Expect: a table of cosines and a picture of it; the first two sentences are nearer to one another than to the next two.

use anyhow::Result;
use burn::tensor::Device;
use firelight::inspect::{EmbeddingQuestion, Figure, TextModel, embedding_figure};
use firelight::pretrained::{import_cache, run_folder};
use firelight::storage::{Checkpoint, TaskError, write_atomic};

const WORD: &str = "bank";

const SENTENCES: [&str; 5] = [
    "She opened an account at the bank to save her money.",
    "The bank raised the interest on every loan.",
    "They sat on the bank of the river and watched the water.",
    "The river left its bank after the rain.",
    "You can bank on him to be late.",
];

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [model, picture] = firelight_examples::words("MODEL PICTURE.svg")?;
    let folder = run_folder(model, &import_cache(), |line| eprintln!("{line}"))?;
    let model = TextModel::open(&folder, &Checkpoint::Last, &Device::default())?;
    let found = similarities(&model)?;
    print!("{}", found.to_text());
    Ok(write_atomic(picture, found.to_svg())?)
}

/// The cosines of the vectors of the word, sentence by sentence: of the last layer, the mean over the tokens of the word.
fn similarities(model: &TextModel) -> Result<Figure, TaskError> {
    embedding_figure(model, &SENTENCES, &EmbeddingQuestion { word: Some(WORD), layer: None })
}

#[cfg(test)]
mod tests {
    use firelight::data::{Tokenizer, TokenizerConfig};
    use firelight::language::{LanguageModelConfig, TextGenerator};

    use super::*;

    #[test]
    fn a_model_of_bytes_has_a_vector_of_the_word_in_each_sentence() {
        let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::default());
        let tokenizer = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        let found = similarities(&TextModel::from(TextGenerator::new(model, tokenizer))).unwrap();
        let cosines = &found.maps[0].values;
        assert!(cosines.len() == 5 && cosines.iter().all(|row| row.len() == 5));
        assert!((0..5).all(|place| (cosines[place][place] - 1.0).abs() < 1e-5));
        assert!(found.to_text().contains("1: ") && found.to_svg().matches("<title>").count() == 25);
        // Before the word stands something else in each sentence.
        assert!(cosines[0][1] < 1.0 - 1e-6, "{cosines:?}");
    }
}
