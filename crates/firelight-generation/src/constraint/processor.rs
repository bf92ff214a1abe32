//! One row under a constraint.

use std::fmt;
use std::sync::Arc;

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;

use super::closing::Search;
use super::compiled::Compiled;
use crate::processors::{HIDDEN, History, LogitsProcessor};

/// Tokens between the shortest known end of a text and its limit, below which only tokens are left whose end is known, too.
const NEAR: usize = 16;

/// So many of the most probable tokens are looked at there, and so many of them are left.
const LOOKED_AT: usize = 32;
const LEFT: usize = 12;

/// Bytes behind which a token's end is not looked for, for each token that there is room for.
const BYTES_A_TOKEN: usize = 6;

/// Continuations that are tried behind a token that was chosen, where the straight way to an end is too long.
const TRIALS: usize = 300;

/// Hides the tokens that no text goes on with that satisfies a [`Constraint`](super::Constraint), and stop tokens where the text may not end.
///
/// It knows a closing, bytes that complete the text and fit into the tokens that are left. Near the limit it leaves those tokens alone behind
/// which it knows one, too; far from it, a token that makes all closings too long is found out by [`admits`](LogitsProcessor::admits).
pub(crate) struct Constrained {
    compiled: Arc<Compiled>,
    matcher: Matcher,
    max_new_tokens: usize,
    stop_tokens: Vec<u32>,
    written: usize,
    /// None if the text cannot be completed, because something was written that does not belong there.
    closing: Option<Vec<u8>>,
    /// A token that was admitted, and the closing behind it.
    admitted: Option<(u32, Vec<u8>)>,
    is_complete: bool,
}

impl Constrained {
    pub(super) fn new(compiled: Arc<Compiled>, max_new_tokens: usize, stop_tokens: &[u32]) -> Self {
        let (matcher, closing) = (compiled.matcher(), Some(compiled.closing().to_vec()));
        let mut row = Self {
            compiled,
            matcher,
            max_new_tokens,
            stop_tokens: stop_tokens.to_vec(),
            written: 0,
            closing,
            admitted: None,
            is_complete: false,
        };
        row.is_complete = row.ends_here();
        row
    }

    /// Tokens that may still be written.
    fn room(&self) -> usize {
        self.max_new_tokens.saturating_sub(self.written)
    }

    fn search(&mut self) -> Search<'_> {
        Search { matcher: &mut self.matcher, vocabulary: self.compiled.vocabulary() }
    }

    /// The tokens that the text goes on with, and whether it may end; nothing where the parser has failed.
    fn allowed(&mut self) -> Option<(SimpleVob, bool)> {
        self.closing.as_ref()?;
        if self.matcher.is_stopped() {
            return Some((SimpleVob::alloc(self.compiled.vocabulary().len()), self.search().is_complete()));
        }
        let mask = self.matcher.compute_mask().ok()?;
        Some((mask, self.search().is_complete()))
    }

    /// Whether the text is complete and nothing may follow, or, where no stop token could end it, its limit is near.
    fn ends_here(&mut self) -> bool {
        if !self.search().is_complete() {
            return false;
        }
        if self.stop_tokens.is_empty() && self.room() <= NEAR {
            return true;
        }
        let vocabulary = self.compiled.vocabulary();
        let end = vocabulary.len();
        let follows =
            |matcher: &mut Matcher| matcher.compute_mask().is_ok_and(|mask| mask.iter().any(|id| (id as usize) < end));
        self.matcher.is_stopped() || !follows(&mut self.matcher)
    }

    /// Bytes that complete the text and fit into so many tokens; so many trials are made where they do not lie at hand.
    fn closing_within(&mut self, room: usize, known: &[u8], trials: usize) -> Option<Vec<u8>> {
        let mut search = self.search();
        let quick = search.end_of(known, room);
        let straight = |search: &mut Search<'_>| search.straight(room.saturating_mul(BYTES_A_TOKEN));
        let quick = quick.or_else(|| straight(&mut search).filter(|text| search.vocabulary.fits(text, room)));
        quick.or_else(|| search.wide(trials, room))
    }

    /// Bytes that complete the text behind a token, if they fit into what is left then.
    fn closing_behind(&mut self, token: u32, trials: usize) -> Option<Vec<u8>> {
        let room = self.room().checked_sub(1)?;
        let known = self.closing.clone()?;
        if self.matcher.try_consume_tokens(&[token]).ok()? == 0 {
            return None;
        }
        let closing = self.closing_within(room, &known, trials);
        self.matcher.rollback(1).ok()?;
        closing
    }

    /// Hides all but some of the most probable tokens behind which the text can still be completed, and the next one of the closing.
    fn leave_those_that_fit(&mut self, logits: &mut [f64]) {
        let mut ids: Vec<u32> = (0..logits.len() as u32).filter(|&id| logits[id as usize] != HIDDEN).collect();
        ids.retain(|id| !self.stop_tokens.contains(id));
        let by_logit = |a: &u32, b: &u32| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b));
        if ids.len() > LOOKED_AT {
            ids.select_nth_unstable_by(LOOKED_AT, by_logit);
        }
        let looked_at = ids.len().min(LOOKED_AT);
        ids[..looked_at].sort_by(by_logit);
        let next =
            self.closing.as_ref().and_then(|closing| self.compiled.vocabulary().tokens(closing)?.first().copied());
        let probable = ids.iter().copied().take(LOOKED_AT).filter(|&id| Some(id) != next);
        let fit: Vec<u32> = probable.filter(|&id| self.closing_behind(id, 0).is_some()).take(LEFT).collect();
        for id in ids.into_iter().filter(|id| Some(*id) != next && !fit.contains(id)) {
            logits[id as usize] = HIDDEN;
        }
    }

    fn is_near_the_limit(&self) -> bool {
        let tokens = self.closing.as_ref().and_then(|closing| self.compiled.vocabulary().tokens(closing));
        tokens.is_none_or(|tokens| self.room() <= tokens.len() + NEAR)
    }
}

impl LogitsProcessor for Constrained {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        self.written = history.new_ids().len();
        let Some((mask, may_end)) = self.allowed() else { return logits.fill(HIDDEN) };
        let text = self.compiled.vocabulary().len();
        for (id, logit) in logits.iter_mut().enumerate() {
            let is_allowed = match self.stop_tokens.contains(&(id as u32)) {
                true => may_end,
                false => id < text && mask.get(id),
            };
            if !is_allowed {
                *logit = HIDDEN;
            }
        }
        if self.is_near_the_limit() {
            self.leave_those_that_fit(logits);
        }
    }

    fn admits(&mut self, token: u32) -> bool {
        if self.stop_tokens.contains(&token) {
            return true;
        }
        self.admitted = self.closing_behind(token, TRIALS).map(|closing| (token, closing));
        self.admitted.is_some()
    }

    fn accept(&mut self, chosen: u32) {
        if self.stop_tokens.contains(&chosen) {
            return;
        }
        let known = self.admitted.take().filter(|(token, _)| *token == chosen).map(|(_, closing)| closing);
        let closing = known.or_else(|| self.closing_behind(chosen, TRIALS));
        let belongs = self.matcher.try_consume_tokens(&[chosen]).is_ok_and(|taken| taken == 1);
        self.written += 1;
        // Without room for a closing the text goes on as far as it can.
        self.closing = belongs.then(|| closing.unwrap_or_default());
        self.is_complete = belongs && self.ends_here();
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

impl Clone for Constrained {
    fn clone(&self) -> Self {
        let Self { compiled, stop_tokens, closing, admitted, .. } = self;
        Self {
            compiled: compiled.clone(),
            matcher: self.matcher.deep_clone(),
            stop_tokens: stop_tokens.clone(),
            closing: closing.clone(),
            admitted: admitted.clone(),
            ..*self
        }
    }
}

impl fmt::Debug for Constrained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { compiled, written, closing, .. } = self;
        let closing = closing.as_ref().map(|closing| String::from_utf8_lossy(closing));
        f.debug_struct("Constrained")
            .field("of", compiled)
            .field("written", written)
            .field("closing", &closing)
            .finish_non_exhaustive()
    }
}
