//! Several prompts, as many decoded together as fit into the context side by side.

use std::ops::{ControlFlow, Range};

use firelight_data::TextStream;
use firelight_generation::{Autoregressive, GeneratedText, GenerationOptions, TokenStream, decode_texts};
use firelight_storage::TaskError;

use super::{ReadPrompt, TextGenerator};
use crate::inference::CacheKind;

/// The most texts that are continued together: each needs a cache of its own.
pub(super) const TOGETHER: usize = 16;

/// The least number of tokens that prompts begin with alike so that these are read once. What is behind them is then read row by row, which
/// costs a pass for each row.
const SHARED: usize = 16;

impl TextGenerator {
    /// Continues several prompts and decodes as many of them together as fit. Each text, and each error, is the one that the prompt
    /// would get alone, up to rounding.
    pub fn generate_each<S: AsRef<str>>(
        &self,
        prompts: &[S],
        options: &GenerationOptions,
    ) -> Vec<Result<GeneratedText, TaskError>> {
        self.generate_each_with(prompts, &vec![options.clone(); prompts.len()])
    }

    /// As [`generate_each`](Self::generate_each), with options for each prompt.
    ///
    /// ```no_run
    /// use firelight_generation::GenerationOptions;
    /// use firelight_language::TextGenerator;
    ///
    /// let generator = TextGenerator::load("runs/stories-1")?;
    /// let options = [GenerationOptions::new(20).greedy(), GenerationOptions::new(50).with_temperature(0.8)];
    /// for text in generator.generate_each_with(&["Once upon", "The fox"], &options) {
    ///     println!("{}", text?.text);
    /// }
    /// # Ok::<(), firelight_storage::TaskError>(())
    /// ```
    ///
    /// # Panics
    /// If there are not as many options as prompts.
    pub fn generate_each_with<S: AsRef<str>>(
        &self,
        prompts: &[S],
        options: &[GenerationOptions],
    ) -> Vec<Result<GeneratedText, TaskError>> {
        assert_eq!(prompts.len(), options.len(), "options for each prompt");
        let read: Vec<_> = prompts.iter().map(|prompt| self.read(prompt.as_ref())).collect();
        let lengths: Vec<usize> =
            read.iter().map(|read| read.as_ref().map_or(0, |(prompt, _)| prompt[0].len())).collect();
        let new = options.iter().map(|options| options.max_new_tokens).max().unwrap_or(0);
        let together = |group: Range<usize>| self.together(&read[group.clone()], &options[group]);
        self.in_groups(&lengths, (TOGETHER, new), together, |row| self.generate(prompts[row].as_ref(), &options[row]))
    }

    /// Continues prompts of the given lengths, at most so many together, by at most so many new tokens. `together` continues a group, unless it
    /// has one prompt alone or one of them fails; then `alone` continues each.
    pub(super) fn in_groups(
        &self,
        lengths: &[usize],
        (most, new): (usize, usize),
        together: impl Fn(Range<usize>) -> Option<Vec<GeneratedText>>,
        alone: impl Fn(usize) -> Result<GeneratedText, TaskError>,
    ) -> Vec<Result<GeneratedText, TaskError>> {
        let room = (new.saturating_add(self.forced()), self.model.max_seq_len());
        let continues = |past, len| self.model.cache_stays_valid(past, len);
        let mut found = Vec::new();
        for group in groups(lengths, most, room, continues) {
            match together(group.clone()) {
                Some(texts) => found.extend(texts.into_iter().map(Ok)),
                None => found.extend(group.map(&alone)),
            }
        }
        found
    }

    /// Continues the prompts of a group together. `None` for a single prompt, and if any of them fails: generating them one by one
    /// tells which.
    fn together(
        &self,
        group: &[Result<ReadPrompt, TaskError>],
        options: &[GenerationOptions],
    ) -> Option<Vec<GeneratedText>> {
        let rows = group.iter().map(|read| read.as_ref().ok().cloned()).collect::<Option<Vec<_>>>();
        let rows = rows.filter(|rows| rows.len() > 1)?;
        let options: Vec<GenerationOptions> = options.iter().map(|options| self.until_end(options)).collect();
        let (prompts, streams): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let (prompts, decoder) = (prompts.concat(), self.decoder());
        let model = self.real(&decoder);
        let tokens = match self.shares(&prompts) {
            true => TokenStream::of_rows_sharing(&model, prompts, &options),
            false => TokenStream::of_rows(&model, prompts, &options),
        };
        written(tokens.ok()?, streams)
    }

    /// Whether what all prompts begin with is read once. Other caches than the plain one hold the past of a part in another form than the part is
    /// read in, and a forced token stands behind the beginning.
    fn shares(&self, prompts: &[Vec<u32>]) -> bool {
        let begins = |prompt: &Vec<u32>| prompt.len() > SHARED && prompt[..SHARED] == prompts[0][..SHARED];
        self.cache == CacheKind::Plain && self.forced() == 0 && prompts.iter().all(begins)
    }
}

fn written<M: Autoregressive>(mut tokens: TokenStream<'_, M>, streams: Vec<TextStream>) -> Option<Vec<GeneratedText>> {
    decode_texts(&mut tokens, streams, |_, _| ControlFlow::Continue(())).ok()
}

/// Groups neighbouring prompts, given by their lengths, that can be continued together by `new` tokens each, a forced one
/// included: at most `most` of them, and the longest text of a group must fit into the context. `continues(past, len)` must hold from the
/// shortest prompt to the longest text: rotary frequencies that depend on the length would change in between.
fn groups(
    lengths: &[usize],
    most: usize,
    (new, context): (usize, usize),
    continues: impl Fn(usize, usize) -> bool,
) -> Vec<Range<usize>> {
    let mut groups: Vec<Range<usize>> = Vec::new();
    for (place, &length) in lengths.iter().enumerate() {
        let fits = |group: &Range<usize>| {
            let all = || lengths[group.clone()].iter().copied().chain([length]);
            let (shortest, longest) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
            let end = longest.saturating_add(new);
            group.len() < most && end <= context && continues(shortest, end)
        };
        match groups.last_mut().filter(|group| fits(group)) {
            Some(group) => group.end = place + 1,
            None => groups.push(place..place + 1),
        }
    }
    groups
}

#[cfg(test)]
mod tests;
