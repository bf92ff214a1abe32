//! Texts that models write under a constraint, token by token, for the tests.

use std::sync::{Arc, LazyLock};

use firelight_data::{Tokenizer, TokenizerConfig};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::compiled::Source;
use super::vocabulary::Vocabulary;
use super::{Constraint, ConstraintCompiler};
use crate::GenerationError;
use crate::distribution::softmax;
use crate::processors::{HIDDEN, History, LogitsProcessor};

/// A text, and whether it ended before the limit.
pub(super) struct Written {
    pub(super) text: String,
    pub(super) tokens: usize,
    pub(super) has_ended: bool,
}

/// A number in `[0, 1)`.
pub(super) fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

pub(super) fn bytes() -> Tokenizer {
    Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["<s>", "</s>"]).unwrap()
}

/// A constraint for the tokenizer [`bytes`]. All of them share what llguidance makes of a tokenizer, which takes longer than most schemas.
pub(super) fn of_bytes(source: Source) -> Result<Constraint, GenerationError> {
    static VOCABULARY: LazyLock<Arc<Vocabulary>> = LazyLock::new(|| Arc::new(Vocabulary::of(&bytes()).unwrap()));
    ConstraintCompiler::default().compile_for(source, VOCABULARY.clone())
}

/// Logits behind a text, of as many ids.
pub(super) type Model<'a> = dyn Fn(&[u32], usize, &mut ChaCha8Rng) -> Vec<f64> + 'a;

pub(super) fn random_logits(_: &[u32], vocabulary: usize, random: &mut ChaCha8Rng) -> Vec<f64> {
    (0..vocabulary).map(|_| 6.0 * uniform(random)).collect()
}

/// One token of a row, drawn as the decoding loop does it.
pub(super) fn draw(row: &mut dyn LogitsProcessor, ids: &[u32], mut logits: Vec<f64>, random: &mut ChaCha8Rng) -> u32 {
    row.process(&History::new(ids, 0), &mut logits);
    loop {
        assert!(logits.iter().any(|logit| *logit != HIDDEN), "nothing is left behind {ids:?} in {row:?}");
        let mut left = uniform(random);
        let passes = |probability: &f64| {
            left -= probability;
            left < 0.0
        };
        let id = softmax(&logits).iter().position(passes).unwrap();
        if row.admits(id as u32) {
            return id as u32;
        }
        logits[id] = HIDDEN;
    }
}

/// A text of a limited number of tokens by a model of random logits.
pub(super) fn write(constraint: &Constraint, tokenizer: &Tokenizer, most: usize, seed: u64) -> Written {
    write_by(&random_logits, constraint, tokenizer, most, seed)
}

pub(super) fn write_by(
    model: &Model<'_>,
    constraint: &Constraint,
    tokenizer: &Tokenizer,
    most: usize,
    seed: u64,
) -> Written {
    let stops: Vec<u32> = tokenizer.special("</s>").into_iter().collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut row, mut ids) = (constraint.processor(most, &stops).boxed(), Vec::new());
    while ids.len() < most && !row.is_complete() {
        let logits = model(&ids, tokenizer.vocab_size() + 3, &mut random);
        let id = draw(row.as_mut(), &ids, logits, &mut random);
        row.accept(id);
        if stops.contains(&id) {
            break;
        }
        ids.push(id);
    }
    Written { text: tokenizer.decode(&ids), tokens: ids.len(), has_ended: ids.len() < most }
}
