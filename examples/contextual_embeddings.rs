//! One word in five sentences: the vectors that an encoder makes of "bank", and how similar they are. A bank of money is nearer to other
//! banks of money than to that of a river, though the word, and what goes into the model for it, is the same.
//!
//! Command: cargo run --release -p firelight-examples --example contextual_embeddings -- all-MiniLM-L6-v2/ bank.svg
//! (a folder as Hugging Face has it, or a name on its hub)
//! Time: a second, once it is built.
//! Expect: a table of cosines and a picture of it; the first two sentences are nearer to one another than to the next two.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use burn::tensor::{Device, Int, Tensor};
use firelight::classification::{TextEncoder, TextInput, cosine_similarities};
use firelight::data::Tokenizer;
use firelight::nn::Pass;
use firelight::pretrained::{AutoModel, PublishedModel, locate};
use firelight::storage::{InputError, TaskError, write_atomic};

const WORD: &str = "bank";

const SENTENCES: [&str; 5] = [
    "She opened an account at the bank to save her money.",
    "The bank raised the interest on every loan.",
    "They sat on the bank of the river and watched the water.",
    "The river left its bank after the rain.",
    "You can bank on him to be late.",
];

/// Pixels of a field of the picture.
const FIELD: usize = 64;

fn main() -> std::process::ExitCode {
    firelight_examples::report(run)
}

fn run() -> Result<()> {
    let [model, picture] = firelight_examples::words("MODEL PICTURE.svg")?;
    let found = similarities(&locate(model, |line| eprintln!("{line}"))?)?;
    print!("{}", table(&found));
    Ok(write_atomic(picture, svg(&found))?)
}

/// The cosines of the vectors of the word, sentence by sentence.
fn similarities(folder: &Path) -> Result<Vec<Vec<f64>>, TaskError> {
    let checkpoint = PublishedModel::open(folder)?;
    let refused =
        |problem: &str| TaskError::from(InputError::in_file(folder, problem).advise("give an encoder such as BERT"));
    let encoder = match checkpoint.load(&Device::default())? {
        AutoModel::Encoder(model) => model.encoder,
        AutoModel::Masked(model) => model.encoder,
        _ => return Err(refused("holds no encoder of texts")),
    };
    let tokenizer = checkpoint.tokenizer()?.ok_or_else(|| refused("holds no tokenizer"))?;
    let vectors = SENTENCES.iter().map(|sentence| vector(&encoder, &tokenizer, sentence));
    let vectors = vectors.collect::<Result<Option<Vec<_>>, _>>()?;
    let vectors = vectors.ok_or_else(|| refused("has a tokenizer that splits the word"))?;
    Ok(cosine_similarities(&vectors, &vectors))
}

/// The vector of the word in a sentence; none where it is no token of its own.
fn vector(encoder: &TextEncoder, tokenizer: &Tokenizer, sentence: &str) -> Result<Option<Vec<f32>>, TaskError> {
    let ids = tokenizer.encode(sentence)?;
    let ids = tokenizer.frame().map_or_else(|| ids.clone(), |frame| frame.put(&ids, None).0);
    let is_word = |id: &u32| tokenizer.decode(&[*id]).trim() == WORD;
    let Some(place) = ids.iter().position(is_word) else { return Ok(None) };
    let ids: Vec<i64> = ids.into_iter().map(i64::from).collect();
    let ids = Tensor::<1, Int>::from_ints(&ids[..], &encoder.embedding.weight.device()).unsqueeze(); // [1, T]
    let hidden = encoder.forward(&TextInput::new(ids), &mut Pass::default()); // [1, T, D]
    let vector = hidden.narrow(1, place, 1).try_into_vec_as::<f32>();
    Ok(Some(vector.map_err(TaskError::device("the vector of a word"))?))
}

fn table(similarities: &[Vec<f64>]) -> String {
    let mut text = String::new();
    for (row, sentence) in similarities.iter().zip(SENTENCES) {
        row.iter().for_each(|cosine| write!(text, "{cosine:6.3}").expect("a string takes all"));
        let _ = writeln!(text, "  {sentence}");
    }
    text
}

/// A field for each pair, the darker the nearer.
fn svg(similarities: &[Vec<f64>]) -> String {
    let (side, width) = (FIELD * SENTENCES.len(), FIELD * SENTENCES.len() + 480);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{side}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"{width}\" height=\"{side}\" fill=\"white\"/>\n"
    );
    for (y, (row, sentence)) in similarities.iter().zip(SENTENCES).enumerate() {
        let middle = y * FIELD + FIELD / 2 + 5;
        for (x, cosine) in row.iter().enumerate() {
            let (left, top, shade) = (x * FIELD, y * FIELD, 235.0 - 190.0 * cosine.clamp(0.0, 1.0));
            let ink = if shade < 130.0 { "white" } else { "black" };
            let _ = writeln!(
                text,
                "<rect x=\"{left}\" y=\"{top}\" width=\"{FIELD}\" height=\"{FIELD}\" fill=\"rgb({shade:.0},{shade:.0},240)\"/>\n\
                 <text x=\"{}\" y=\"{middle}\" text-anchor=\"middle\" fill=\"{ink}\">{cosine:.2}</text>",
                left + FIELD / 2,
            );
        }
        let _ = writeln!(text, "<text x=\"{}\" y=\"{middle}\">{sentence}</text>", side + 12);
    }
    text + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_encoder_is_told_and_a_picture_has_a_field_for_each_pair() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/pretrained/gpt2-plain");
        assert!(similarities(&fixture).unwrap_err().to_string().contains("holds no encoder of texts"));
        let found = vec![vec![1.0, 0.5, 0.2, 0.1, -0.3]; 5];
        assert_eq!(svg(&found).matches("<rect").count(), 26);
        assert!(table(&found).starts_with(" 1.000 0.500 0.200 0.100-0.300  She opened"));
    }
}
