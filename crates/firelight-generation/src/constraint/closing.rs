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
///
/// The work of a search is the bytes that the matcher is asked for: those of every continuation that is tried, allowed or not, of the way to
/// it, and of the probes behind it.
pub(super) struct Search<'a> {
    matcher: &'a mut Matcher,
    pub(super) vocabulary: &'a Vocabulary,
    /// How many bytes may still be tried.
    left: usize,
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

impl<'a> Search<'a> {
    /// The searches behind the text that the matcher has read.
    pub(super) fn new(matcher: &'a mut Matcher, vocabulary: &'a Vocabulary) -> Self {
        Self { matcher, vocabulary, left: 0 }
    }

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
        let vocabulary = self.vocabulary;
        let spelling = vocabulary.spelling(known);
        let mut ends = (0..=known.len()).filter(|&place| spelling.count(place).is_some_and(|count| count <= room));
        let mut completes = |tokens: &[u32]| self.behind(tokens, Self::is_complete).unwrap_or(false);
        let found = ends.find(|&place| spelling.tokens(place).is_some_and(|tokens| completes(&tokens)))?;
        Some(known[found..].to_vec())
    }

    /// The direct way: always goes on with what is likely to close the text, until it is complete. Quick, but not always the shortest way, and
    /// it may fail. Gives up after a text of `most` bytes, and after `work`.
    pub(super) fn straight(&mut self, most: usize, work: usize) -> Option<Vec<u8>> {
        self.left = work;
        let (mut text, mut tokens, mut still) = (Vec::new(), 0, 0);
        let mut seen = vec![self.state()];
        let mut here = seen[0].clone();
        while !here.is_complete && text.len() <= most && self.left > 0 {
            let Some(next) = self.next_bytes(&here, &seen, still) else { break };
            // None if the tokenizer cannot write what the grammar forces.
            let Some(written) = self.vocabulary.tokens(&next).filter(|tokens| self.take(tokens)) else { break };
            tokens += written.len();
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

    /// The first of these tokens that may follow and leads to none of the `known` states, while there is work left.
    fn leading(&mut self, ids: &[u32], known: &[State]) -> Option<u32> {
        let mut leads =
            |id: u32| self.left > 0 && self.behind(&[id], Self::state).is_some_and(|there| !known.contains(&there));
        ids.iter().copied().find(|&id| leads(id))
    }

    /// The first of these tokens that may follow.
    fn following(&mut self, ids: &[u32]) -> Option<u32> {
        ids.iter().copied().find(|&id| self.may_follow(id))
    }

    fn may_follow(&mut self, id: u32) -> bool {
        self.pay(&[id]);
        self.matcher.validate_tokens(&[id]).is_ok_and(|valid| valid == 1)
    }

    /// The wide way: follows several texts at a time, one for each state, until the `work` is done. Returns the text of the fewest tokens that
    /// was found, if it has at most `most`.
    pub(super) fn wide(&mut self, work: usize, most: usize) -> Option<Vec<u8>> {
        self.left = work;
        if self.is_complete() {
            return Some(Vec::new());
        }
        let mut best: Option<(usize, Vec<u8>)> = None;
        let mut branches = vec![Branch::default()];
        while !branches.is_empty() && self.left > 0 {
            let (mut next, mut seen) = (Vec::new(), HashSet::new());
            for branch in &branches {
                let found = self.after(&branch.text, |search| search.branches(branch, &mut seen));
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
        Some((self.vocabulary.count(&text)?, text))
    }

    /// The branches that continue this one by a character and by what the grammar forces after it, and whether they are complete.
    fn branches(&mut self, branch: &Branch, seen: &mut HashSet<State>) -> Vec<(Branch, bool)> {
        let (vocabulary, mut found) = (self.vocabulary, Vec::new());
        let forced = self.matcher.compute_ff_bytes();
        let (ends, others) = vocabulary.units();
        let single = || ends.iter().chain(others).map(|&id| vec![id]).collect();
        let steps: Vec<Vec<u32>> =
            if forced.is_empty() { single() } else { vocabulary.tokens(&forced).into_iter().collect() };
        for (cost, step) in steps.iter().enumerate() {
            if self.left == 0 {
                break;
            }
            let Some(state) = self.behind(step, Self::state) else { continue };
            let is_complete = state.is_complete;
            if seen.insert(state) {
                let written = step.iter().flat_map(|&id| vocabulary.written(id));
                let text = branch.text.iter().chain(written).copied().collect();
                found.push((Branch { cost: branch.cost + cost, text }, is_complete));
            }
        }
        found
    }

    fn state(&mut self) -> State {
        let (is_complete, forced) = (self.is_complete(), self.matcher.compute_ff_bytes());
        self.left = self.left.saturating_sub(forced.len());
        let probes = self.vocabulary.probes().iter().enumerate();
        let follows = probes.filter(|(_, id)| self.may_follow(**id));
        let follow = follows.fold(0, |bits, (place, _)| bits | 1 << place);
        State { is_complete, forced, follow }
    }

    /// What `look` finds after some bytes, if they may follow.
    fn after<R>(&mut self, bytes: &[u8], look: impl FnOnce(&mut Self) -> R) -> Option<R> {
        let tokens = self.vocabulary.tokens(bytes)?;
        self.behind(&tokens, look)
    }

    /// What `look` finds after some tokens, if they may follow.
    fn behind<R>(&mut self, tokens: &[u32], look: impl FnOnce(&mut Self) -> R) -> Option<R> {
        if !self.take(tokens) {
            return None;
        }
        let found = look(self);
        self.back(tokens.len());
        Some(found)
    }

    /// Goes on with all of these tokens; if they may not follow, stays where it is.
    fn take(&mut self, tokens: &[u32]) -> bool {
        self.pay(tokens);
        let Ok(taken) = self.matcher.try_consume_tokens(tokens) else { return false };
        if taken < tokens.len() {
            self.back(taken);
        }
        taken == tokens.len()
    }

    /// Takes the bytes of these tokens from the work that is left.
    fn pay(&mut self, tokens: &[u32]) {
        let bytes: usize = tokens.iter().map(|&id| self.vocabulary.written(id).len()).sum();
        self.left = self.left.saturating_sub(bytes);
    }

    fn back(&mut self, tokens: usize) {
        // A matcher that has failed stays failed, which its owner sees.
        let _ = self.matcher.rollback(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::super::compiled::Source;
    use super::*;

    fn matcher(pattern: &str, vocabulary: &Vocabulary) -> Matcher {
        Matcher::new(Ok(Source::Regex(pattern.into()).parser(vocabulary).unwrap()))
    }

    /// The length of what a search finds.
    fn length(text: Option<Vec<u8>>) -> Option<usize> {
        text.map(|text| text.len())
    }

    /// All bytes are tried at each of five places, and two of them are probed.
    #[test]
    fn the_work_that_is_allowed_counts_what_is_refused_too() {
        let bytes = Vocabulary::bytes();
        let mut matcher = matcher("[ab]{5}", bytes);
        let mut search = Search::new(&mut matcher, bytes);
        assert_eq!(length(search.straight(9, 10_000)), Some(5));
        assert_eq!(length(search.wide(10_000, 9)), Some(5));
        assert_eq!((search.straight(9, 4 * 256), search.wide(4 * 256, 9)), (None, None));
        assert!(search.completes(b"abbab"), "every search goes back");
    }

    #[test]
    fn a_large_alphabet_ends_a_search_rather_than_slowing_it() {
        let others = ('\u{4e00}'..'\u{5e00}').map(|character| character.to_string().into_bytes());
        let vocabulary = Vocabulary::new((0..=255).map(|byte| vec![byte]).chain(others).collect());
        let mut matcher = matcher("[ab]{5}", &vocabulary);
        let mut search = Search::new(&mut matcher, &vocabulary);
        assert_eq!((search.straight(9, 10_000), search.wide(10_000, 9)), (None, None));
        assert_eq!(length(search.straight(9, 1_000_000)), Some(5));
    }

    #[test]
    fn an_end_of_a_known_closing_completes_the_text() {
        let bytes = Vocabulary::bytes();
        let mut matcher = matcher("[ab]*cde", bytes);
        let mut search = Search::new(&mut matcher, bytes);
        assert_eq!(search.end_of(b"xxbcde", 9).as_deref(), Some(&b"bcde"[..]));
        assert_eq!(search.end_of(b"xxbcde", 3).as_deref(), Some(&b"cde"[..]));
        assert_eq!(search.end_of(b"xxbcde", 2), None);
    }
}
