//! When a row ends. Asked by [`TokenStream`](crate::TokenStream) after every token.

use crate::GenerationOptions;

/// Why a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// It reached [`GenerationOptions::max_new_tokens`].
    MaxNewTokens,
    /// The model chose this one of [`GenerationOptions::stop_tokens`].
    StopToken(u32),
    /// The text reached a stop string: its index in [`GenerationOptions::stop_strings`].
    StopString(usize),
    /// The text satisfies its [`Constraint`](crate::Constraint), and nothing may follow.
    Complete,
    /// The caller stopped it.
    Caller,
    /// The text filled the context of the model.
    ContextFull,
    /// An error ended it, see [`GenerationError::Unfinished`](crate::GenerationError::Unfinished).
    Failed,
}

/// The criteria of one generation.
#[doc(alias = "stopping criteria")]
#[derive(Clone, Debug)]
pub struct StopCriteria {
    max_new_tokens: usize,
    stop_tokens: Vec<u32>,
    stop_strings: Vec<String>,
}

impl StopCriteria {
    /// The criteria that the options ask for.
    pub fn new(options: &GenerationOptions) -> Self {
        let GenerationOptions { max_new_tokens, stop_tokens, stop_strings, .. } = options.clone();
        Self { max_new_tokens, stop_tokens, stop_strings }
    }

    /// The strings that end a row.
    pub fn stop_strings(&self) -> &[String] {
        &self.stop_strings
    }

    /// How many tokens a row may still get when it has `len` new ones.
    pub fn room(&self, len: usize) -> usize {
        self.max_new_tokens.saturating_sub(len)
    }

    /// Whether the row that chose `id` ends here, without it.
    pub fn ends_with(&self, id: u32) -> Option<StopReason> {
        self.stop_tokens.contains(&id).then_some(StopReason::StopToken(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_token_ends_a_row_and_others_do_not() {
        let criteria = StopCriteria::new(&GenerationOptions::new(2).with_stop_tokens([3, 5]));
        assert_eq!(criteria.ends_with(5), Some(StopReason::StopToken(5)));
        assert_eq!(criteria.ends_with(4), None);
    }

    #[test]
    fn there_is_room_for_exactly_max_new_tokens() {
        let criteria = StopCriteria::new(&GenerationOptions::new(2));
        assert_eq!([0, 1, 2, 3].map(|len| criteria.room(len)), [2, 1, 0, 0]);
    }
}
