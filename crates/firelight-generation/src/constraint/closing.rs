//! Searches short texts that complete another one. They are found by trial: the parser says what may follow, but not how far the end is.
//! States that lie behind the same characters look alike here, which [`explorer`](super::explorer) tells apart within a lexeme.

use std::collections::HashSet;

use llguidance::Matcher;

use super::vocabulary::Vocabulary;

/// How many texts the wide search follows at a time.
const WIDTH: usize = 6;

/// After this many characters without a new state, and again after each as many, the direct way looks for a character that leads to one.
const PATIENCE: usize = 32;

/// A matcher at the end of a text. Every search returns it to that place.
pub(super) struct Search<'a> {
    pub(super) matcher: &'a mut Matcher,
    pub(super) vocabulary: &'a Vocabulary,
}

/// What a search can see of the state of the parser. Different states may look alike.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    is_complete: bool,
    forced: Vec<u8>,
    /// Which of the [probes](Vocabulary::probes) may follow, one bit each.
    follow: u32,
}

/// One text of the wide search, with its cost: the lower, the likelier it is the shortest one.
#[derive(Clone, Default)]
struct Branch {
    cost: usize,
    text: Vec<u8>,
}

impl Search<'_> {
    /// Whether the text may end where it is.
    pub(super) fn is_complete(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether bytes complete the text.
    pub(super) fn completes(&mut self, bytes: &[u8]) -> bool {
        self.after(bytes, Self::is_complete).unwrap_or(false)
    }

    /// An end of the `known` closing that completes the text, within `room` tokens. The text may have written the
    /// rest of it already.
    pub(super) fn end_of(&mut self, known: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut ends = (0..=known.len()).map(|place| &known[place..]);
        ends.find(|end| self.vocabulary.fits(end, room) && self.completes(end)).map(<[u8]>::to_vec)
    }

    /// The direct way: always goes on with what is likely to close the text, until it is complete. Quick, but not always the shortest way, and
    /// it may fail. Gives up after `most` bytes.
    pub(super) fn straight(&mut self, most: usize) -> Option<Vec<u8>> {
        let (mut text, mut tokens, mut still) = (Vec::new(), 0, 0);
        let mut seen = vec![self.state()];
        let mut here = seen[0].clone();
        while !here.is_complete && text.len() <= most {
            let Some(next) = self.next_bytes(&here, &seen, still) else { break };
            tokens += self.take(&next).unwrap_or_default();
            text.extend(next);
            here = self.state();
            still += 1;
            if !seen.contains(&here) {
                still = 0;
                seen.push(here.clone());
            }
        }
        self.back(tokens);
        here.is_complete.then_some(text)
    }

    /// The bytes that the grammar forces, or else a character. Prefers one that ends something and leads to another state, such as the closing
    /// quotes of a string; then one that ends something, such as a bracket among brackets; then one that leads to another state; then any.
    /// See [`PATIENCE`] for texts that have `seen` all of this.
    fn next_bytes(&mut self, here: &State, seen: &[State], still: usize) -> Option<Vec<u8>> {
        if !here.forced.is_empty() {
            return Some(here.forced.clone());
        }
        let (ends, others) = self.vocabulary.units();
        let found = match (still < PATIENCE, still.is_multiple_of(PATIENCE)) {
            (true, _) => {
                let here = std::slice::from_ref(here);
                let ending = self.leading(ends, here).or_else(|| self.following(ends));
                ending.or_else(|| self.leading(others, here))
            }
            (false, true) => self.leading(ends, seen).or_else(|| self.leading(others, seen)),
            (false, false) => None,
        };
        let id = found.or_else(|| self.following(ends)).or_else(|| self.following(others))?;
        Some(self.vocabulary.written(id).to_vec())
    }

    /// The first of these tokens that may follow and leads to none of the `known` states.
    fn leading(&mut self, ids: &[u32], known: &[State]) -> Option<u32> {
        let vocabulary = self.vocabulary;
        let mut leads =
            |id: u32| self.after(vocabulary.written(id), Self::state).is_some_and(|there| !known.contains(&there));
        ids.iter().copied().find(|&id| leads(id))
    }

    /// The first of these tokens that may follow.
    fn following(&mut self, ids: &[u32]) -> Option<u32> {
        ids.iter().copied().find(|&id| self.may_follow(id))
    }

    fn may_follow(&mut self, id: u32) -> bool {
        self.matcher.validate_tokens(&[id]).is_ok_and(|valid| valid == 1)
    }

    /// The wide way: follows several texts at a time, one for each state, and tries at most `trials` continuations. Returns the text of the
    /// fewest tokens that was found, if it has at most `most`.
    pub(super) fn wide(&mut self, mut trials: usize, most: usize) -> Option<Vec<u8>> {
        if self.is_complete() {
            return Some(Vec::new());
        }
        let mut best: Option<(usize, Vec<u8>)> = None;
        let mut branches = vec![Branch::default()];
        while !branches.is_empty() && trials > 0 {
            let (mut next, mut seen) = (Vec::new(), HashSet::new());
            for branch in &branches {
                let found = self.after(&branch.text, |search| search.branches(branch, &mut seen, &mut trials));
                next.extend(found.into_iter().flatten());
            }
            let (complete, open): (Vec<_>, Vec<_>) = next.into_iter().partition(|(_, is_complete)| *is_complete);
            let closings = complete.into_iter().filter_map(|(branch, _)| self.counted(branch.text));
            best = closings.filter(|(tokens, _)| *tokens <= most).chain(best).min_by_key(|(tokens, _)| *tokens);
            let longest = best.as_ref().map_or(most, |(tokens, _)| tokens.saturating_sub(1));
            let mut open: Vec<Branch> = open.into_iter().map(|(branch, _)| branch).collect();
            open.retain(|branch| self.vocabulary.fits(&branch.text, longest));
            open.sort_by_key(|branch| branch.cost);
            open.truncate(WIDTH);
            branches = open;
        }
        best.map(|(_, text)| text)
    }

    fn counted(&self, text: Vec<u8>) -> Option<(usize, Vec<u8>)> {
        Some((self.vocabulary.tokens(&text)?.len(), text))
    }

    /// The branches that continue this one by a character and by what the grammar forces after it, and whether they are complete.
    fn branches(&mut self, branch: &Branch, seen: &mut HashSet<State>, trials: &mut usize) -> Vec<(Branch, bool)> {
        let mut found = Vec::new();
        let forced = self.matcher.compute_ff_bytes();
        let vocabulary = self.vocabulary;
        let (ends, others) = vocabulary.units();
        let single = || ends.iter().chain(others).map(|&id| vocabulary.written(id)).collect();
        let steps: Vec<&[u8]> = if forced.is_empty() { single() } else { vec![&forced] };
        for (cost, step) in steps.into_iter().enumerate() {
            let Some(state) = self.after(step, Self::state) else { continue };
            *trials = trials.saturating_sub(1);
            if *trials == 0 {
                break;
            }
            let text = [&branch.text, step].concat();
            let is_complete = state.is_complete;
            if seen.insert(state) {
                found.push((Branch { cost: branch.cost + cost, text }, is_complete));
            }
        }
        found
    }

    fn state(&mut self) -> State {
        let (is_complete, forced) = (self.is_complete(), self.matcher.compute_ff_bytes());
        let probes = self.vocabulary.probes().iter().enumerate();
        let follows = probes.filter(|(_, id)| self.may_follow(**id));
        let follow = follows.fold(0, |bits, (place, _)| bits | 1 << place);
        State { is_complete, forced, follow }
    }

    /// What `look` finds after some bytes, if they may follow.
    pub(super) fn after<R>(&mut self, bytes: &[u8], look: impl FnOnce(&mut Self) -> R) -> Option<R> {
        let tokens = self.take(bytes)?;
        let found = look(self);
        self.back(tokens);
        Some(found)
    }

    /// Goes on with all of these bytes and returns the number of their tokens; if they may not follow, stays where it is.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let tokens = self.vocabulary.tokens(bytes)?;
        let taken = self.matcher.try_consume_tokens(&tokens).ok()?;
        if taken < tokens.len() {
            self.back(taken);
            return None;
        }
        Some(taken)
    }

    fn back(&mut self, tokens: usize) {
        // A matcher that has failed stays failed, which its owner sees.
        let _ = self.matcher.rollback(tokens);
    }
}
