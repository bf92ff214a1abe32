//! What a pre-trained encoder shows after its training: which validation text is nearest to another one.

use std::slice;

use anyhow::Result;
use firelight::classification::{Embedder, MaskedLanguage, cosine_similarities};
use firelight::device::NamedDevice;
use firelight::nn::{Cost, ParamBuilder};
use firelight::storage::Checkpoint;
use firelight::training::{RecipeOf, Sample, TrainedRun};

use super::Shown;

/// How many texts are compared with the first.
const TEXTS: usize = 100;

impl Shown for MaskedLanguage {
    const DATA: &'static str = "a folder with a .txt file or a file of records for each split; or one such file";
    const SHOWS: &'static str = "the nearest validation text by cosine similarity";
    const COMMANDS: &'static [&'static str] = &["fill-mask", "embed"];

    fn next(folder: &str) -> String {
        format!(
            "fill masks with: firelight fill-mask {folder} --text TEXT, begin a classifier with: firelight train texts --data DIR --from \
             {folder}"
        )
    }

    fn samples(run: &TrainedRun<Self>, chosen: &NamedDevice) -> Result<Vec<Sample>> {
        let embedder = Embedder::load_from(run.folder.path(), &Checkpoint::Last, &chosen.device)?;
        let mut texts = run.corpus.validation_texts();
        texts.truncate(TEXTS);
        let vectors = embedder.embed(&texts)?;
        let Some((first, others)) = vectors.split_first() else { return Ok(Vec::new()) };
        let cosines = cosine_similarities(slice::from_ref(first), others).concat();
        let nearest = (0..cosines.len()).max_by(|&a, &b| cosines[a].total_cmp(&cosines[b]));
        let sample = |index: usize| Sample::new(format!("nearest to \"{}\"", texts[0]), texts[index + 1]);
        Ok(nearest.map(sample).into_iter().collect())
    }

    fn cost(recipe: &RecipeOf<Self>, config: &Self::Config, length: Option<usize>) -> (Cost, usize) {
        let length = length.unwrap_or(config.encoder.transformer.max_seq_len);
        let model = config.init_with(&ParamBuilder::counting());
        (model.cost(length, recipe.data.masking.ratio), length)
    }
}
