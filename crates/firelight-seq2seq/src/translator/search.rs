//! The search of translations: sources of similar length together, or one at a time where tokens are guessed.

use std::collections::BTreeSet;

use firelight_data::{Batching, longest_first};
use firelight_generation::{
    BeamOptions, GenerationError, GenerationOptions, Hypothesis, StopStrings, WithVocabulary, beam_search,
};
use firelight_storage::{InputError, TaskError};

use super::guessed::drawn;
use super::sentences::require_one_best;
use super::{TranslateOptions, Translator};

/// The hypotheses of a source, best first, or why there are none.
pub(super) type Found = Result<Vec<Hypothesis>, TaskError>;

impl Translator {
    /// The hypotheses of every source, those of similar length searched together, or why a source has none. `observe` hears after every batch which
    /// sources were in it. If the model or the device fails, that is the error of all sources that are left.
    pub(super) fn search(
        &self,
        sources: &[Vec<u32>],
        options: &TranslateOptions,
        mut observe: impl FnMut(&[usize]),
    ) -> Result<Vec<Found>, TaskError> {
        let beams = self.beams(options)?;
        let draws = options.draws.as_ref().map(|draws| draws.options(&beams));
        let mut found: Vec<Found> = sources.iter().map(|_| Ok(Vec::new())).collect();
        let mut batches = self.together(sources.iter().map(Vec::len), options).into_iter();
        while let Some(batch) = batches.next() {
            let prompt = batch.iter().map(|&index| sources[index].clone()).collect();
            match self.each(prompt, &beams, draws.as_ref()) {
                Ok(all) => {
                    batch.iter().zip(all).for_each(|(&index, best)| found[index] = best.map_err(TaskError::from))
                }
                Err(error) => {
                    let left = batch.into_iter().chain(batches.by_ref().flatten());
                    left.for_each(|index| found[index] = Err(TaskError::new(false, error.to_string())));
                    break;
                }
            }
            observe(&batch);
        }
        Ok(found)
    }

    /// Which sources of these lengths are searched together, the longest first; empty ones are in no batch.
    pub(super) fn together(&self, lengths: impl Iterator<Item = usize>, options: &TranslateOptions) -> Vec<Vec<usize>> {
        let max_tokens = Batching::TOKENS_TO_READ / options.beams.max(1);
        // Each batch is a search of its own, which costs more than padding.
        longest_first(lengths, max_tokens, if self.guesser.is_some() { 1 } else { options.batch }, 1.0)
    }

    /// The hypotheses of each source. If all sources together fail, each is tried alone, so that only those fail for which no token is left.
    ///
    /// # Errors
    /// If the model or the device fails, which is the error of no source.
    fn each(
        &self,
        sources: Vec<Vec<u32>>,
        beams: &BeamOptions,
        draws: Option<&GenerationOptions>,
    ) -> Result<Vec<Result<Vec<Hypothesis>, GenerationError>>, GenerationError> {
        match self.best(sources.clone(), beams, draws) {
            Ok(found) => Ok(found.into_iter().map(Ok).collect()),
            Err(error) if !error.is_user_error() => Err(error),
            Err(error) if sources.len() == 1 => Ok(vec![Err(error)]),
            Err(_) => {
                let alone = |source: Vec<u32>| Ok(self.each(vec![source], beams, draws)?.swap_remove(0));
                sources.into_iter().map(alone).collect()
            }
        }
    }

    /// The hypotheses of sources that are searched together, or drawn.
    fn best(
        &self,
        sources: Vec<Vec<u32>>,
        beams: &BeamOptions,
        draws: Option<&GenerationOptions>,
    ) -> Result<Vec<Vec<Hypothesis>>, GenerationError> {
        let size = self.vocabulary.target().vocab_size();
        let model = WithVocabulary::new(&self.model, size).with_defaults(&self.defaults);
        if let Some(draws) = draws {
            let found = drawn(&model, sources, draws, beams.length_penalty)?;
            return Ok(found.into_iter().map(|target| vec![target]).collect());
        }
        let Some(guesser) = &self.guesser else { return beam_search(&model, sources, beams) };
        let is_joint = self.vocabulary.is_joint();
        let alone = |source: Vec<u32>| Ok(vec![guesser.write(&model, source, is_joint, beams)?]);
        sources.into_iter().map(alone).collect()
    }

    /// The options of the search.
    pub(super) fn beams(&self, options: &TranslateOptions) -> Result<BeamOptions, TaskError> {
        let places = self.model.max_target_len() - usize::from(self.forced_first().is_some());
        let mut beams = BeamOptions::new(options.max_new_tokens.map_or(places, |most| most.min(places)))
            .with_beams(options.beams)
            .with_length_penalty(options.length_penalty)
            .with_n_best(options.n_best)
            .with_groups(options.groups, options.diversity_penalty)
            .with_early_stopping(options.early_stopping)
            .with_processing(options.processing.clone())
            .with_stop_tokens(self.stop_tokens(&options.end_tokens))
            .with_stop_strings(options.stop_strings.clone());
        beams.logprobs = options.logprobs;
        self.defaults.add_to(&mut beams.processing, self.vocabulary.target().vocab_size());
        require_one_best(options)?;
        beams.validate()?;
        StopStrings::add_to(&mut beams.processing, &self.vocabulary.target().stream(), &options.stop_strings);
        if let Some(draws) = &options.draws {
            require_one_beam(options)?;
            draws.options(&beams).validate()?;
        }
        self.guesser.as_ref().map_or(Ok(()), |guesser| guesser.check(options))?;
        Ok(beams)
    }

    /// The first token that the makers of the model force, which takes a place of the target.
    pub(crate) fn forced_first(&self) -> Option<u32> {
        self.defaults.first(self.vocabulary.target().vocab_size())
    }

    /// The end tokens of the model, and others.
    fn stop_tokens(&self, others: &[u32]) -> Vec<u32> {
        let ends = [self.vocabulary.ends().target].into_iter().chain(self.defaults.end_tokens().iter().copied());
        let ends = ends.chain(others.iter().copied());
        ends.collect::<BTreeSet<u32>>().into_iter().collect()
    }
}

/// What is drawn is one text.
fn require_one_beam(options: &TranslateOptions) -> Result<(), InputError> {
    match options.beams {
        0 | 1 => Ok(()),
        beams => Err(InputError::new(format!("tokens are drawn, but {beams} beams are searched"))
            .advise("take one beam (--beams 1), or leave out temperature and seed")),
    }
}
