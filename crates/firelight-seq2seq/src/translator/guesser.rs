//! What guesses the next tokens of a translation, so that the model reads several at once.

use firelight_generation::{
    BeamOptions, DraftModel, EarlyStopping, GenerationDefaults, GenerationError, Hypothesis, PromptLookup,
    WithVocabulary,
};
use firelight_storage::{InputError, TaskError};

use super::draft::drafted;
use super::guessed::{SourceLookup, guessed};
use super::{TranslateOptions, Translator};
use crate::model::Seq2SeqModel;

/// What guesses the next tokens.
#[derive(Debug)]
pub(super) enum Guesser {
    Lookup(PromptLookup),
    Draft(DraftModel<Seq2SeqModel>),
}

impl Translator {
    /// Guesses that the last tokens go on as they did where they stood before, in the target and, where both sides have one tokenizer, in
    /// the source; the translations stay the same.
    ///
    /// Lines are then translated one at a time, and scores leave penalties out. The options must ask for one beam
    /// ([`TranslateOptions::greedy`]), for early stopping that is not [`EarlyStopping::Never`], and for no draws and no constraint.
    pub fn with_lookup(mut self, lookup: PromptLookup) -> Self {
        self.guesser = Some(Guesser::Lookup(lookup));
        self
    }

    /// Guesses up to `tokens` tokens with a smaller translator; the translations stay the same. The restrictions of
    /// [`with_lookup`](Self::with_lookup) apply. A line that is too long for the draft is translated without guesses.
    ///
    /// ```no_run
    /// use firelight_seq2seq::{TranslateOptions, Translator};
    ///
    /// let translator = Translator::load("runs/large")?.with_draft(Translator::load("runs/small")?, 8)?;
    /// let found = translator.translate_with(&["Der Hund rennt."], &TranslateOptions::greedy(), |_| ())?;
    /// println!("{}", found[0][0].text);
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    ///
    /// # Errors
    /// If the draft has other tokens than the model, of the target or of the source.
    pub fn with_draft(mut self, draft: Self, tokens: usize) -> Result<Self, TaskError> {
        let (own, others) = (&self.vocabulary, &draft.vocabulary);
        own.target().agrees_with("target of the draft", others.target())?;
        own.source().agrees_with("source of the draft", others.source())?;
        let guesses = DraftModel::new(draft.model, own.target().vocab_size(), tokens);
        let guesses = guesses.without_banned(&self.defaults).without_banned(&draft.defaults);
        self.guesser = Some(Guesser::Draft(guesses));
        Ok(self)
    }
}

impl Guesser {
    /// Never guesses what these defaults ban.
    pub(super) fn without_banned(self, defaults: &GenerationDefaults) -> Self {
        match self {
            Self::Draft(draft) => Self::Draft(draft.without_banned(defaults)),
            lookup => lookup,
        }
    }

    /// The translation of one source. Where both sides have one tokenizer, which is `joint`, a look-up looks into the source, too.
    pub(super) fn write(
        &self,
        model: &WithVocabulary<'_, Seq2SeqModel>,
        source: Vec<u32>,
        joint: bool,
        options: &BeamOptions,
    ) -> Result<Hypothesis, GenerationError> {
        match self {
            Self::Lookup(lookup) => {
                let known = if joint { source.clone() } else { Vec::new() };
                guessed(model, source, SourceLookup { lookup: *lookup, source: known }, options)
            }
            Self::Draft(draft) => drafted(model, source, draft, options),
        }
    }

    /// Guesses write one text, up to its first end token.
    pub(super) fn check(&self, options: &TranslateOptions) -> Result<(), InputError> {
        let beams = format!("but {} beams are searched", options.beams);
        let refused = [
            (options.beams > 1, beams.as_str(), "search with one beam (--beams 1)"),
            (
                options.early_stopping == EarlyStopping::Never,
                "and end with it, but early stopping is `never`",
                "stop early (--early-stopping heuristic)",
            ),
            (options.draws.is_some(), "and greedy, but tokens are drawn", "leave out the options of draws"),
            (
                options.processing.constraint.is_some(),
                "without a constraint, but there is one",
                "leave the constraint out",
            ),
        ];
        let Some((_, problem, advice)) = refused.into_iter().find(|(refused, ..)| *refused) else { return Ok(()) };
        let problem = format!("guesses ({}) are for one text at a time, {problem}", self.option());
        Err(InputError::new(problem).advise(format!("{advice}, or translate without guesses")))
    }

    /// The option of the command that asks for it.
    fn option(&self) -> &'static str {
        match self {
            Self::Lookup(_) => "--prompt-lookup",
            Self::Draft(_) => "--draft",
        }
    }
}

#[cfg(test)]
mod tests;
