//! No n-gram is written twice. Source: Paulus, Xiong, Socher 2017, A deep reinforced model for abstractive summarization, §2.5
//! (<https://arxiv.org/abs/1705.04304>).

use super::{History, LogitsProcessor, hide_ids};

/// Hides every token that would complete an n-gram of this length, at least 1, that already occurs in the history, the prompt included.
#[doc(alias = "no_repeat_ngram_size")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoRepeatNgram(pub usize);

impl LogitsProcessor for NoRepeatNgram {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let ids = history.ids();
        let Some(begin) = (ids.len() + 1).checked_sub(self.0) else { return };
        let written = ids.windows(self.0).filter(|ngram| ngram[..self.0 - 1] == ids[begin..]);
        hide_ids(logits, written.map(|ngram| ngram[self.0 - 1]));
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(*self)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hidden;
    use super::*;

    #[test]
    fn what_followed_before_does_not_follow_again() {
        assert_eq!(hidden(NoRepeatNgram(2), &[1, 2, 3, 1, 4, 1]), [2, 4]);
        assert_eq!(hidden(NoRepeatNgram(3), &[1, 2, 3, 1, 2]), [3]);
        assert_eq!(hidden(NoRepeatNgram(1), &[4, 2]), [2, 4]);
        assert_eq!(hidden(NoRepeatNgram(3), &[1]), [0; 0]);
        assert_eq!(hidden(NoRepeatNgram(2), &[]), [0; 0]);
    }
}
