//! Searches short texts that complete another one. They are found by trial: the parser says what may follow, but not how far the end is.
//! States that lie behind the same characters look alike here, which [`explorer`](super::explorer) tells apart within a lexeme.

use std::collections::HashSet;

use llguidance::Matcher;

use super::vocabulary::{Spelling, Vocabulary};

/// How many texts the wide search follows at a time.
const WIDTH: usize = 6;

/// After this many characters without a new state, and again after each as many, the direct way looks for a character that leads to one.
const PATIENCE: usize = 32;

/// How many characters that begin with the same byte are tried at a place for one that leads to another state. A large alphabet has thousands,
/// and they seldom differ. The direct way tries all of them when its [`PATIENCE`] is at an end.
const ALIKE: usize = 4;

/// A matcher at the end of a text. Every search returns it to that place.
///
/// The work of a search is the bytes that the matcher is asked for: those of every continuation that is tried, allowed or not, of the way to
/// it, and of the probes behind it.
pub(super) struct Search<'a> {
    matcher: &'a mut Matcher,
    pub(super) vocabulary: &'a Vocabulary,
    /// How many bytes may still be tried.
    left: usize,
    /// How many bytes all searches have tried.
    tried: usize,
    gave_up: bool,
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

/// How many more characters are tried behind a text, for each byte that they begin with.
struct FirstBytes([usize; 256]);

impl FirstBytes {
    /// At most so many for each byte.
    fn new(most: usize) -> Self {
        Self([most; 256])
    }

    /// Whether a character is tried. It counts as one of its first byte.
    fn takes(&mut self, character: &[u8]) -> bool {
        let Some(&first) = character.first() else { return false };
        let left = &mut self.0[usize::from(first)];
        let takes = *left > 0;
        *left = left.saturating_sub(1);
        takes
    }

    /// No character goes on where its first byte may not.
    fn refuse(&mut self, character: &[u8]) {
        if let &[byte] = character {
            self.0[usize::from(byte)] = 0;
        }
    }
}

impl<'a> Search<'a> {
    /// The searches behind the text that the matcher has read.
    pub(super) fn new(matcher: &'a mut Matcher, vocabulary: &'a Vocabulary) -> Self {
        Self { matcher, vocabulary, left: 0, tried: 0, gave_up: false }
    }

    /// How many bytes all searches so far have tried.
    pub(super) fn tried(&self) -> usize {
        self.tried
    }

    /// Whether a search so far stopped at one of its limits or left out what looked alike, so that there may be a text that it did not find.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Whether the text may end where it is.
    pub(super) fn is_complete(&mut self) -> bool {
        self.matcher.is_accepting().unwrap_or(false)
    }

    /// Whether bytes complete the text.
    pub(super) fn completes(&mut self, bytes: &[u8]) -> bool {
        self.after(bytes, Self::is_complete).unwrap_or(false)
    }

    /// The longest end of the `known` closing that completes the text within `room` tokens, as far as `work` finds it. The text may have
    /// written the rest of it already.
    pub(super) fn end_of(&mut self, known: &[u8], room: usize, work: usize) -> Option<Vec<u8>> {
        self.left = work;
        let spelling = self.vocabulary.spelling(known);
        for place in (0..=known.len()).filter(|&place| spelling.count(place).is_some_and(|count| count <= room)) {
            if self.left == 0 {
                return None;
            }
            if self.ends_with(&spelling, place) {
                return Some(known[place..].to_vec());
            }
        }
        None
    }

    /// Whether the text is complete behind the end of another one from a place on. Goes token by token, so that it pays for what the text has
    /// in common with it alone.
    fn ends_with(&mut self, spelling: &Spelling<'_>, mut place: usize) -> bool {
        let mut taken = 0;
        while let Some(id) = spelling.first(place).filter(|&id| self.take(&[id])) {
            taken += 1;
            place += self.vocabulary.written(id).len();
        }
        let ends = place == spelling.len() && self.is_complete();
        self.back(taken);
        ends
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
        self.gave_up |= !here.is_complete && (text.len() > most || self.left == 0);
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
                let ending = self.leading(ends, here, ALIKE).or_else(|| self.following(ends));
                ending.or_else(|| self.leading(others, here, ALIKE))
            }
            (false, true) => self.leading(ends, seen, usize::MAX).or_else(|| self.leading(others, seen, usize::MAX)),
            (false, false) => None,
        };
        let id = found.or_else(|| self.following(ends)).or_else(|| self.following(others))?;
        Some(self.vocabulary.written(id).to_vec())
    }

    /// The first of these tokens that may follow and leads to none of the `known` states, while there is work left. Tries at most `alike`
    /// characters that begin with the same byte, and none if that byte may not follow.
    fn leading(&mut self, ids: &[u32], known: &[State], alike: usize) -> Option<u32> {
        let mut first = FirstBytes::new(alike);
        for &id in ids {
            if self.left == 0 {
                return None;
            }
            let character = self.vocabulary.written(id);
            if !first.takes(character) {
                continue;
            }
            match self.behind(&[id], Self::state) {
                Some(there) if !known.contains(&there) => return Some(id),
                Some(_) => {}
                None => first.refuse(character),
            }
        }
        None
    }

    /// The first of these tokens that may follow.
    fn following(&mut self, ids: &[u32]) -> Option<u32> {
        let mut first = FirstBytes::new(usize::MAX);
        for &id in ids {
            let character = self.vocabulary.written(id);
            if !first.takes(character) {
                continue;
            }
            if self.may_follow(id) {
                return Some(id);
            }
            first.refuse(character);
        }
        None
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
            self.gave_up |= open.len() > WIDTH;
            open.truncate(WIDTH);
            branches = open;
        }
        self.gave_up |= self.left == 0;
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
        let mut first = FirstBytes::new(ALIKE);
        for (cost, step) in steps.iter().enumerate() {
            let character = step.first().map(|&id| vocabulary.written(id)).unwrap_or_default();
            if self.left == 0 {
                break;
            }
            if !first.takes(character) {
                continue;
            }
            let Some(state) = self.behind(step, Self::state) else {
                first.refuse(character);
                continue;
            };
            let is_complete = state.is_complete;
            if seen.insert(state) {
                let written = step.iter().flat_map(|&id| vocabulary.written(id));
                let text = branch.text.iter().chain(written).copied().collect();
                found.push((Branch { cost: branch.cost + cost, text }, is_complete));
            } else {
                self.gave_up = true;
            }
        }
        found
    }

    fn state(&mut self) -> State {
        let (is_complete, forced) = (self.is_complete(), self.matcher.compute_ff_bytes());
        self.pay_bytes(forced.len());
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
        let Ok(taken) = self.matcher.try_consume_tokens(tokens) else {
            self.gave_up = true; // The parser has limits of its own.
            return false;
        };
        if taken < tokens.len() {
            self.back(taken);
        }
        taken == tokens.len()
    }

    /// Takes the bytes of these tokens from the work that is left.
    fn pay(&mut self, tokens: &[u32]) {
        let bytes: usize = tokens.iter().map(|&id| self.vocabulary.written(id).len()).sum();
        self.pay_bytes(bytes);
    }

    fn pay_bytes(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.tried += bytes;
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

    /// The bytes up to `last`, and `count` characters of three bytes.
    fn large_alphabet(last: u8, count: usize) -> Vocabulary {
        let others = ('\u{4e00}'..'\u{9fff}').take(count).map(|character| character.to_string().into_bytes());
        Vocabulary::new((0..=last).map(|byte| vec![byte]).chain(others).collect())
    }

    #[test]
    fn a_large_alphabet_costs_a_few_tries_for_each_first_byte() {
        for vocabulary in [large_alphabet(255, 8000), large_alphabet(127, 8000)] {
            let mut matcher = matcher("[ab]{5}", &vocabulary);
            let mut search = Search::new(&mut matcher, &vocabulary);
            assert_eq!(length(search.straight(9, 10_000)), Some(5));
            assert_eq!(length(search.wide(10_000, 9)), Some(5));
        }
    }

    /// Where every character may follow, a few of those that begin alike stand for the others: 2,000 of them at each place would be more than
    /// a million bytes.
    #[test]
    fn a_long_text_of_any_characters_is_found_in_a_large_alphabet() {
        let vocabulary = large_alphabet(127, 2000);
        let mut matcher = matcher("[^}\\])>\"']{40}", &vocabulary);
        let found = Search::new(&mut matcher, &vocabulary).straight(200, 400_000);
        assert_eq!(found.map(|text| String::from_utf8_lossy(&text).chars().count()), Some(40));
    }

    #[test]
    fn a_character_that_is_unlike_the_others_is_found_later() {
        let vocabulary = large_alphabet(127, 4000);
        let mut matcher = matcher("[a\u{4e00}-\u{4fff}]*\u{5bff}", &vocabulary);
        let mut search = Search::new(&mut matcher, &vocabulary);
        let found = search.straight(1000, 3_000_000);
        assert!(found.is_some_and(|text| text.ends_with("\u{5bff}".as_bytes())));
    }

    #[test]
    fn a_search_that_stops_at_a_limit_has_given_up() {
        let bytes = Vocabulary::bytes();
        let gave_up = |pattern: &str, most, work| {
            let mut matcher = matcher(pattern, bytes);
            let mut search = Search::new(&mut matcher, bytes);
            (length(search.straight(most, work)), search.gave_up())
        };
        assert_eq!(gave_up("[ab]{5}", 9, 10_000), (Some(5), false));
        assert_eq!(gave_up("[ab]{5}", 3, 10_000), (None, true), "at its length");
        assert_eq!(gave_up("[ab]{5}", 9, 100), (None, true), "at its work");
    }

    #[test]
    fn an_end_of_a_known_closing_completes_the_text() {
        let bytes = Vocabulary::bytes();
        let mut matcher = matcher("[ab]*cde", bytes);
        let mut search = Search::new(&mut matcher, bytes);
        assert_eq!(search.end_of(b"xxbcde", 9, 100).as_deref(), Some(&b"bcde"[..]));
        assert_eq!(search.end_of(b"xxbcde", 3, 100).as_deref(), Some(&b"cde"[..]));
        assert_eq!(search.end_of(b"xxbcde", 2, 100), None);
    }

    /// From each place the text goes on with the `a`s behind it, and then tries `c`, which may not follow.
    #[test]
    fn an_end_of_a_known_closing_pays_for_what_it_tries() {
        let bytes = Vocabulary::bytes();
        let mut matcher = matcher("a*b", bytes);
        let mut search = Search::new(&mut matcher, bytes);
        let known = |length: usize| [vec![b'a'; length], b"c".to_vec()].concat();
        assert_eq!(search.end_of(&known(10), 99, 10_000), None);
        assert_eq!(search.tried(), 66, "11 bytes, then 10, and so on");
        assert_eq!(search.end_of(&known(500), 999, 10_000), None);
        assert!(search.tried() < 66 + 10_000 + 501, "it stops with its work: {}", search.tried());
        assert!(search.completes(b"aab"), "it goes back");
    }
}
