//! What an encoder-decoder shows after its training: translations of validation sources.

use anyhow::Result;
use firelight::data::Pair;
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::seq2seq::{Evaluation, Seq2Seq, TrainedRun, TranslateOptions, Translator};
use firelight::storage::Checkpoint;
use firelight::training::{RecipeOf, Sample};

use super::super::evaluate::{Evaluate, Found};
use super::super::score::Score;
use super::{SAMPLES, Shown};

impl Shown for Seq2Seq {
    const DATA: &'static str = "a folder of parallel files, such as train.de and train.en; or a file of records";
    const SHOWS: &'static str = "predictions for validation sources";
    const COMMANDS: &'static [&'static str] = &["translate", "score"];
    const WRITES: bool = true;
    const TAKES_PAIRS: bool = true;

    fn next(folder: &str) -> String {
        format!("translate a text with: firelight translate {folder} --text TEXT")
    }

    fn samples(run: &TrainedRun, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let translator = Translator::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let pairs: Vec<_> = run.corpus.validation().iter().take(SAMPLES).collect();
        let sources: Vec<&str> = pairs.iter().map(|pair| pair.source.as_str()).collect();
        let found = translator.translate(&sources)?;
        let sample = |(pair, found): (&&Pair, String)| {
            Sample::new(format!("\"{}\"", pair.source), found).expecting(&pair.target)
        };
        Ok(pairs.iter().zip(found).map(sample).collect())
    }

    fn cost(_: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize) {
        let stacks = [&config.stacks.encoder, &config.stacks.decoder];
        let lengths = stacks.map(|stack| length.unwrap_or(stack.max_seq_len));
        (config.init_with(&ParamBuilder::counting()).cost(lengths), lengths[1])
    }

    fn options(asked: &Evaluate) -> Result<TranslateOptions> {
        let usual = TranslateOptions::default();
        let beams = asked.beams.unwrap_or(usual.beams);
        let length_penalty = asked.length_penalty.unwrap_or(usual.length_penalty);
        Ok(TranslateOptions { beams, length_penalty, ..usual })
    }

    fn score(asked: &Score) -> Result<()> {
        asked.pairs()
    }
}

impl Found for Evaluation {
    fn in_words(&self) -> String {
        format!(
            "loss            {:.4} nats per token\nperplexity      {:.3}\nBLEU            {:.2} ({})\nchrF            {:.2}\n\
             exact match     {:.1} %\nROUGE-1, -2, -L {:.2}, {:.2}, {:.2}\ntoken accuracy  {:.2} %\ntime            {:.1} seconds\n",
            self.loss,
            self.perplexity,
            self.bleu,
            self.signature,
            self.chrf,
            self.exact_match,
            self.rouge1,
            self.rouge2,
            self.rouge_l,
            100.0 * self.token_accuracy,
            self.seconds
        )
    }
}
