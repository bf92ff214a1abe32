//! `firelight visualize embeddings`: how similar the vectors are that a model makes of tokens.

use anyhow::Result;
use firelight::inspect::{EmbeddingQuestion, Figure, TextModel, embedding_figure};

use crate::commands::drawing::Drawing;
use crate::commands::trained_model::TrainedModel;

const EXAMPLES: &str = "\
Examples:
  firelight visualize embeddings bert-base-uncased --word bank --text \"the river bank\" --text \"the bank lends money\"
  firelight visualize embeddings gpt2 --text \"The cat sat on the mat\" --layer 6 --out cosines.html

--out takes .html, .svg and .png. With --word a vector is the mean over the tokens of the word, at each of its places; without it each token \
has one. A language model makes its vector of a word out of what stands before it.";

/// Draw the cosines of the vectors of a word in several texts, or of all tokens
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Embeddings {
    #[command(flatten)]
    model: TrainedModel,
    /// Text to read; may be repeated
    #[arg(long = "text", value_name = "TEXT", required = true)]
    texts: Vec<String>,
    /// Word whose vectors are compared, which stands in every text; by default all tokens
    #[arg(long, value_name = "WORD")]
    word: Option<String>,
    /// Layer after which vectors are read, counted from 0; by default the last, with its final norm
    #[arg(long, value_name = "N")]
    layer: Option<usize>,
    #[command(flatten)]
    drawing: Drawing,
}

impl Embeddings {
    pub(super) fn run(self) -> Result<()> {
        self.drawing.show_figure(|| self.figure())
    }

    fn figure(&self) -> Result<Figure> {
        let model = self.model.load(|folder, checkpoint, device| TextModel::open(&folder, checkpoint, device))?;
        let texts: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        let question = EmbeddingQuestion { word: self.word.as_deref(), layer: self.layer };
        Ok(embedding_figure(&model, &texts, &question)?)
    }
}
