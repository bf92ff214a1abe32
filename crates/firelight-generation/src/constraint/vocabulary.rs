//! The tokens of a tokenizer as the grammar sees them: bytes, in a prefix tree.

use std::cmp::Reverse;
use std::sync::{Arc, LazyLock, OnceLock};

use firelight_data::Tokenizer;
use firelight_storage::InputError;
use llguidance::ParserFactory;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

/// The longest token that is ever written: the prefix tree takes no longer ones.
const LONGEST: usize = 512;

/// Characters that tell states of the parser apart: what JSON, programs and prose begin and end with. At most 32.
const PROBES: &[u8] = b"}])\",:'0a \n-.e";

/// The bytes of every token. Tokens that are no text have none, and one id more stands for the end of the text.
pub(super) struct Vocabulary {
    env: TokEnv,
    /// What makes parsers, or why there is none. Made on first use, because it costs more than most parsers.
    factory: OnceLock<Result<ParserFactory, String>>,
    /// The bytes of the longest token.
    longest: usize,
    /// The tokens of one character or one byte, first those that are likely to bring a text to its end.
    units: Vec<u32>,
    /// How many of them end something: brackets and quotes.
    ends: usize,
    /// Some of them, which tell states of the parser apart.
    probes: Vec<u32>,
}

impl Vocabulary {
    /// The vocabulary of a tokenizer.
    pub(super) fn of(tokenizer: &Tokenizer) -> Result<Self, InputError> {
        Ok(Self::new(tokenizer.token_bytes()?))
    }

    /// The vocabulary of all single bytes, which depends on no tokenizer.
    pub(super) fn bytes() -> &'static Self {
        static BYTES: LazyLock<Vocabulary> =
            LazyLock::new(|| Vocabulary::new((0..=u8::MAX).map(|byte| vec![byte]).collect()));
        &BYTES
    }

    pub(super) fn new(mut words: Vec<Vec<u8>>) -> Self {
        // The byte 0xff is in no text, and marks special tokens in the prefix tree.
        words.iter_mut().filter(|word| word.contains(&0xff) || word.len() > LONGEST).for_each(Vec::clear);
        let mut units: Vec<u32> = (0..words.len() as u32).filter(|&id| is_unit(&words[id as usize])).collect();
        units.sort_by_key(|&id| (remoteness(&words[id as usize]), words[id as usize].clone(), id));
        units.dedup_by_key(|id| words[*id as usize].clone());
        let is_probe = |id: &u32| matches!(words[*id as usize][..], [byte] if PROBES.contains(&byte));
        let probes = units.iter().copied().filter(is_probe).collect();
        let ends = units.partition_point(|&id| remoteness(&words[id as usize]) <= 1);
        let longest = words.iter().map(Vec::len).max().unwrap_or(0);
        let end = words.len() as u32;
        words.push(Vec::new());
        let trie = TokTrie::from(&TokRxInfo::new(end + 1, end), &words);
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        Self { env, factory: OnceLock::new(), longest, units, ends, probes }
    }

    /// What makes parsers for these tokens, or the message of llguidance.
    pub(super) fn factory(&self) -> Result<&ParserFactory, String> {
        let made = self.factory.get_or_init(|| {
            let mut factory = ParserFactory::new_simple(&self.env).map_err(|error| error.to_string())?;
            factory.quiet().limits_mut().verbose_errors = false;
            Ok(factory)
        });
        made.as_ref().map_err(String::clone)
    }

    /// The number of ids. It is also the id that stands for the end of the text.
    pub(super) fn len(&self) -> usize {
        self.trie().vocab_size() - 1
    }

    /// The tokens of one character or one byte: those that end something, and the others, likely ones first.
    pub(super) fn units(&self) -> (&[u32], &[u32]) {
        self.units.split_at(self.ends)
    }

    pub(super) fn probes(&self) -> &[u32] {
        &self.probes
    }

    /// The bytes of a token.
    pub(super) fn written(&self, id: u32) -> &[u8] {
        self.trie().token(id)
    }

    /// How these bytes and their ends are written.
    pub(super) fn spelling(&self, bytes: &[u8]) -> Spelling<'_> {
        let mut best: Vec<Option<(usize, u32)>> = vec![None; bytes.len() + 1];
        best[bytes.len()] = Some((0, 0));
        for place in (0..bytes.len()).rev() {
            let from_here = self.trie().all_prefixes(&bytes[place..bytes.len().min(place + LONGEST)]).into_iter();
            let rest = from_here.filter_map(|id| Some((best[place + self.written(id).len()]?.0 + 1, id)));
            best[place] = rest.min_by_key(|&(count, id)| (count, Reverse(self.written(id).len())));
        }
        Spelling { vocabulary: self, best }
    }

    /// The fewest tokens that write these bytes, if any do.
    pub(super) fn tokens(&self, bytes: &[u8]) -> Option<Vec<u32>> {
        self.spelling(bytes).tokens(0)
    }

    /// How many tokens write these bytes at least, if any do.
    pub(super) fn count(&self, bytes: &[u8]) -> Option<usize> {
        self.spelling(bytes).count(0)
    }

    /// Whether `room` tokens can write these bytes.
    pub(super) fn fits(&self, bytes: &[u8], room: usize) -> bool {
        bytes.len() <= self.most_bytes(room) && self.count(bytes).is_some_and(|count| count <= room)
    }

    /// No more bytes than these are written by so many tokens.
    pub(super) fn most_bytes(&self, tokens: usize) -> usize {
        tokens.saturating_mul(self.longest)
    }

    /// The first character that no tokens write.
    pub(super) fn missing(&self, text: &str) -> Option<char> {
        text.chars().find(|character| self.tokens(character.encode_utf8(&mut [0; 4]).as_bytes()).is_none())
    }

    fn trie(&self) -> &TokTrie {
        self.env.tok_trie()
    }
}

/// How the fewest tokens write a text, and each of its ends.
pub(super) struct Spelling<'v> {
    vocabulary: &'v Vocabulary,
    /// For each place, the end included: how many tokens the rest takes, and the first of them. None if no tokens write it.
    best: Vec<Option<(usize, u32)>>,
}

impl Spelling<'_> {
    /// How many tokens the text behind a place takes.
    pub(super) fn count(&self, place: usize) -> Option<usize> {
        Some(self.best[place]?.0)
    }

    /// The length of the text in bytes.
    pub(super) fn len(&self) -> usize {
        self.best.len() - 1
    }

    /// The first token of the text behind a place, if there is one.
    pub(super) fn first(&self, place: usize) -> Option<u32> {
        self.best.get(place).copied().flatten().filter(|_| place < self.len()).map(|(_, id)| id)
    }

    /// The tokens of the text behind a place.
    pub(super) fn tokens(&self, mut place: usize) -> Option<Vec<u32>> {
        let mut tokens = Vec::with_capacity(self.count(place)?);
        while place + 1 < self.best.len() {
            let (_, id) = self.best[place]?;
            tokens.push(id);
            place += self.vocabulary.written(id).len();
        }
        Some(tokens)
    }
}

fn is_unit(word: &[u8]) -> bool {
    word.len() == 1 || std::str::from_utf8(word).is_ok_and(|text| text.chars().count() == 1)
}

/// How far a text is from its end after a character, by experience with JSON and programs: what closes comes first, what opens last.
fn remoteness(word: &[u8]) -> u8 {
    match word {
        b"}" | b"]" | b")" | b">" => 0,
        b"\"" | b"'" => 1,
        b"," | b":" | b";" => 2,
        [b'0'..=b'9'] => 3,
        [b'a'..=b'z' | b'A'..=b'Z'] => 4,
        b"{" | b"[" | b"(" | b"<" | b"\\" => 6,
        [b'!'..=b'~'] => 5,
        b" " | b"\n" => 7,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(words: &[&str]) -> Vocabulary {
        Vocabulary::new(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    #[test]
    fn the_fewest_tokens_write_a_text() {
        let vocabulary = vocabulary(&["a", "b", "ab", "bab", "", "é"]);
        assert_eq!(vocabulary.tokens(b"abab"), Some(vec![2, 2]));
        assert_eq!(vocabulary.tokens(b"babab"), Some(vec![3, 2]));
        assert_eq!(vocabulary.tokens(b""), Some(vec![]));
        assert_eq!(vocabulary.tokens("aé".as_bytes()), Some(vec![0, 5]));
        assert_eq!(vocabulary.tokens(b"abc"), None);
        assert_eq!([3, 4].map(|room| vocabulary.fits(b"abaabab", room)), [false, true]);
        assert_eq!((vocabulary.missing("abé"), vocabulary.missing("aüb")), (None, Some('ü')));
    }

    #[test]
    fn an_end_is_written_like_a_text_of_its_own() {
        let vocabulary = vocabulary(&["a", "b", "ab", "bab", "aa"]);
        let text = b"abaababcaab";
        let spelling = vocabulary.spelling(text);
        for place in 0..=text.len() {
            let alone = vocabulary.tokens(&text[place..]);
            assert_eq!(spelling.count(place), alone.as_ref().map(Vec::len), "{place}");
            assert_eq!(spelling.tokens(place), alone, "{place}");
        }
        assert_eq!(spelling.count(8), Some(2), "c has no token, but behind it come a and ab, or aa and b");
        assert_eq!([vocabulary.most_bytes(2), vocabulary.count(b"babab").unwrap_or(0)], [6, 2]);
    }

    #[test]
    fn what_closes_is_tried_first() {
        let vocabulary = vocabulary(&["{", "a", "}", "\"", "é", "7", "ab", "a"]);
        assert_eq!(vocabulary.units(), (&[2, 3][..], &[5, 1, 0, 4][..]));
        assert_eq!(vocabulary.len(), 8);
    }

    #[test]
    fn what_is_no_text_is_never_written() {
        let vocabulary = Vocabulary::new(vec![vec![0xff], b"a".to_vec(), vec![b'x'; 600], vec![0xff, b'a']]);
        assert_eq!([0, 1, 2, 3].map(|id| vocabulary.written(id).len()), [0, 1, 0, 0]);
        assert_eq!(Vocabulary::bytes().tokens("{é".as_bytes()).map(|tokens| tokens.len()), Some(3));
    }
}
