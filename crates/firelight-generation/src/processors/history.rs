//! What processors know of a row.

use crate::draw::Draw;

/// The tokens of a row before the next one is chosen, with its random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct History<'a> {
    ids: &'a [u32],
    prompt: usize,
    draw: Draw,
}

impl<'a> History<'a> {
    /// The ids of a row, of which the first `prompt` were given.
    ///
    /// # Panics
    /// Panics if there are fewer ids.
    pub fn new(ids: &'a [u32], prompt: usize) -> Self {
        assert!(prompt <= ids.len(), "a prompt of {prompt} ids in a history of {}", ids.len());
        Self { ids, prompt, draw: Draw::default() }
    }

    /// Sets the seed, the number of the sample and that of the new token, which determine [`uniform`](Self::uniform).
    #[must_use]
    pub fn with_draw(mut self, seed: u64, sample: usize, step: usize) -> Self {
        self.draw = Draw { seed, sample, step };
        self
    }

    /// The history of the same row with more new tokens: `ids` begins with the ids of this one.
    pub(crate) fn after<'b>(&self, ids: &'b [u32]) -> History<'b> {
        let step = self.draw.step + ids.len() - self.ids.len();
        History { ids, prompt: self.prompt, draw: Draw { step, ..self.draw } }
    }

    /// Where its next token is drawn.
    pub(crate) fn draw(&self) -> Draw {
        self.draw
    }

    /// All ids before the one that is chosen, the prompt included. For a model with an encoder, those of the target alone.
    pub fn ids(&self) -> &'a [u32] {
        self.ids
    }

    /// The new ids, after the prompt.
    pub fn new_ids(&self) -> &'a [u32] {
        &self.ids[self.prompt..]
    }

    /// A random number in `[0, 1)` that seed, sample and number of the token determine: every call returns the same.
    pub fn uniform(&self) -> f64 {
        self.draw.aside()
    }
}
