//! The constraint of one row, as a processor.

use std::fmt;
use std::sync::Arc;

use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;

use super::closing::Search;
use super::compiled::Compiled;
use super::explorer::Explorer;
use super::read_text::ReadText;
use crate::processors::{HIDDEN, History, LogitsProcessor};

/// The limit is near when at most this many tokens are left beyond the known closing. Then only tokens after which a closing is known stay.
const NEAR: usize = 16;

/// Near the limit: how many of the most probable tokens are tried, and how many of them stay.
const LOOKED_AT: usize = 32;
const LEFT: usize = 12;

/// The bytes, for each token that there is room for, after which the search for a closing gives up.
const BYTES_A_TOKEN: usize = 6;

/// The bytes that are tried on the direct way to an end; if that is too long after a chosen token, as many among the states of the lexer, and
/// then on the wide way.
const WORK: usize = 100_000;
const WIDE: usize = 10_000;

/// The bytes that are tried for an end of the known closing.
const ENDS: usize = 50_000;

/// How hard a closing is looked for.
#[derive(Clone, Copy)]
enum Effort {
    /// By the known closing and the direct way.
    Quick,
    /// By a search, too.
    Thorough,
}

/// Hides the tokens that no text with this [`Constraint`](super::Constraint) continues with, and stop tokens where the text may not end.
///
/// It knows a closing: bytes that complete the text and fit into the tokens that are left. Near the limit it hides all tokens after
/// which it knows no closing. Far from the limit, [`admits`](LogitsProcessor::admits) refuses a token that makes every closing too long.
///
/// It [takes precedence](LogitsProcessor::takes_precedence) where bans, n-gram rules and other processors hide all that it leaves. Where nothing is
/// left even then, the closing is written. So it is where the reader or an error stops the text.
///
/// Its parsers go on from token to token. They read chosen tokens alone, so that nothing is taken back where a guess is refused, and a copy has
/// parsers of its own. The searches move one of the two, and return it to its place.
pub(crate) struct Constrained {
    compiled: Arc<Compiled>,
    matcher: Matcher,
    max_new_tokens: usize,
    stop_tokens: Vec<u32>,
    /// What the matcher has read.
    text: ReadText,
    written: usize,
    /// None if the text cannot be completed, because a token was written that does not belong there.
    closing: Option<Vec<u8>>,
    /// Tokens that [`admits`](LogitsProcessor::admits) was asked about here, and the closing after each, or none. A beam is asked about several,
    /// and a copy of it accepts one.
    answers: Vec<(u32, Option<Vec<u8>>)>,
    is_complete: bool,
}

impl Constrained {
    pub(super) fn new(compiled: Arc<Compiled>, max_new_tokens: usize, stop_tokens: &[u32]) -> Self {
        let (matcher, text, closing) = (compiled.matcher(), compiled.text(), Some(compiled.closing().to_vec()));
        let mut row = Self {
            compiled,
            matcher,
            text,
            max_new_tokens,
            stop_tokens: stop_tokens.to_vec(),
            written: 0,
            closing,
            answers: Vec::new(),
            is_complete: false,
        };
        row.is_complete = row.ends_here();
        row
    }

    /// Tokens that may still be written.
    fn room(&self) -> usize {
        self.max_new_tokens.saturating_sub(self.written)
    }

    /// The longest text that a search for a closing within `room` tokens looks at, in bytes.
    fn longest(&self, room: usize) -> usize {
        self.compiled.vocabulary().most_bytes(room).min(room.saturating_mul(BYTES_A_TOKEN))
    }

    fn search(&mut self) -> Search<'_> {
        Search::new(&mut self.matcher, self.compiled.vocabulary())
    }

    /// The tokens that may follow, and whether the text may end. None if the parser has failed.
    fn allowed(&mut self) -> Option<(SimpleVob, bool)> {
        self.closing.as_ref()?;
        if self.matcher.is_stopped() {
            return Some((SimpleVob::alloc(self.compiled.vocabulary().len()), self.search().is_complete()));
        }
        let mask = self.matcher.compute_mask().ok()?;
        Some((mask, self.search().is_complete()))
    }

    /// Whether the text ends here: it is complete, and either nothing may follow, or no stop token could end it and its limit is near.
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

    /// Bytes that complete the text behind a token, which the matcher has read, and fit into `room` tokens: an end of the `known` closing if
    /// possible.
    fn closing_within(&mut self, room: usize, token: u32, known: &[u8], effort: Effort) -> Option<Vec<u8>> {
        let longest = self.longest(room);
        let rest = known.strip_prefix(self.compiled.vocabulary().written(token));
        let mut search = self.search();
        let mut quick = search.end_of(known, room, ENDS);
        // What is left of the closing behind its own first token is never given up.
        if quick.is_none() {
            let fits = |rest: &&[u8]| search.vocabulary.fits(rest, room);
            quick = rest.filter(fits).filter(|rest| search.completes(rest)).map(<[u8]>::to_vec);
        }
        if quick.is_none() {
            quick = search.straight(longest, WORK).filter(|text| search.vocabulary.fits(text, room));
        }
        match effort {
            Effort::Quick => quick,
            Effort::Thorough => quick.or_else(|| self.explored(room, token)).or_else(|| self.search().wide(WIDE, room)),
        }
    }

    /// Bytes that complete the text behind a token and fit into `room` tokens, found among the states of the lexer.
    fn explored(&mut self, room: usize, token: u32) -> Option<Vec<u8>> {
        let explorer = Explorer::new(self.text.followed_by(token)?, self.compiled.vocabulary());
        let text = explorer.shortest(self.longest(room), WORK)?;
        let fits = self.compiled.vocabulary().fits(&text, room);
        (fits && self.search().completes(&text)).then_some(text)
    }

    /// Bytes that complete the text after a token, if they fit into the room that it leaves.
    fn closing_behind(&mut self, token: u32, effort: Effort) -> Option<Vec<u8>> {
        let room = self.room().checked_sub(1)?;
        let known = self.closing.clone()?;
        // A processor that runs later may have shown what is no text, at which a matcher would fail for good.
        let vocabulary = self.compiled.vocabulary();
        if token as usize >= vocabulary.len() || vocabulary.written(token).is_empty() {
            return None;
        }
        if self.matcher.try_consume_tokens(&[token]).ok()? == 0 {
            return None;
        }
        let closing = self.closing_within(room, token, &known, effort);
        self.matcher.rollback(1).ok()?;
        closing
    }

    /// Hides all tokens except some of the most probable ones after which the text can still be completed, and the next token of the closing.
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
        let fit: Vec<u32> =
            probable.filter(|&id| self.closing_behind(id, Effort::Quick).is_some()).take(LEFT).collect();
        for id in ids.into_iter().filter(|id| Some(*id) != next && !fit.contains(id)) {
            logits[id as usize] = HIDDEN;
        }
    }

    fn is_near_the_limit(&self) -> bool {
        let tokens = self.closing.as_ref().and_then(|closing| self.compiled.vocabulary().count(closing));
        tokens.is_none_or(|tokens| self.room() <= tokens + NEAR)
    }
}

impl LogitsProcessor for Constrained {
    fn process(&mut self, history: &History<'_>, logits: &mut [f64]) {
        let written = history.new_ids().len();
        if self.written != written {
            self.written = written;
            self.answers.clear(); // There is more or less room.
        }
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
            return self.closing.is_some() && self.search().is_complete();
        }
        if let Some((_, closing)) = self.answers.iter().find(|(known, _)| *known == token) {
            return closing.is_some();
        }
        let closing = self.closing_behind(token, Effort::Thorough);
        let is_admitted = closing.is_some();
        self.answers.push((token, closing));
        is_admitted
    }

    fn accept(&mut self, chosen: u32) {
        if self.stop_tokens.contains(&chosen) {
            return;
        }
        let known = std::mem::take(&mut self.answers).into_iter().find(|(token, _)| *token == chosen);
        let closing = match known {
            Some((_, closing)) => closing,
            None => self.closing_behind(chosen, Effort::Thorough),
        };
        let belongs = self.matcher.try_consume_tokens(&[chosen]).is_ok_and(|taken| taken == 1);
        if belongs {
            self.text.push(chosen);
        }
        self.written += 1;
        // Without room for a closing the text goes on until its limit.
        self.closing = belongs.then(|| closing.unwrap_or_default());
        self.is_complete = belongs && self.ends_here();
    }

    fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn takes_precedence(&self) -> bool {
        true
    }

    fn fallback_token(&mut self) -> Option<u32> {
        let next = self.compiled.vocabulary().tokens(self.closing.as_ref()?)?.first().copied();
        if next.is_some() || !self.search().is_complete() {
            return next;
        }
        let stop = self.stop_tokens.first().copied();
        self.is_complete = stop.is_none();
        stop
    }

    fn closing_tokens(&mut self) -> Vec<u32> {
        if self.search().is_complete() {
            return Vec::new();
        }
        let closing = self.closing.as_ref();
        closing.and_then(|closing| self.compiled.vocabulary().tokens(closing)).unwrap_or_default()
    }

    fn boxed(&self) -> Box<dyn LogitsProcessor> {
        Box::new(self.clone())
    }
}

impl Clone for Constrained {
    fn clone(&self) -> Self {
        let Self { compiled, stop_tokens, text, closing, answers, .. } = self;
        Self {
            compiled: compiled.clone(),
            matcher: self.matcher.deep_clone(),
            stop_tokens: stop_tokens.clone(),
            text: text.clone(),
            closing: closing.clone(),
            answers: answers.clone(),
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
