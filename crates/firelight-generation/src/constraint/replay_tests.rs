//! A row keeps its parsers from token to token. Here it is compared with one that reads its text anew before each token.

use std::sync::LazyLock;

use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use super::Constraint;
use super::compiled::Source;
use super::writing::{draw, of_bytes, random_logits, uniform};
use crate::processors::{HIDDEN, History, LogitsProcessor};

/// The token that ends a text.
const STOP: u32 = 257;

/// An expression whose end is found among the states of the lexer, nested JSON, and a recursive grammar.
static CONSTRAINTS: LazyLock<[Constraint; 3]> = LazyLock::new(|| {
    let tags = json!({"type": "array", "items": {"enum": ["x", "xy", 7]}});
    let schema = json!({
        "type": "object", "required": ["tags"], "additionalProperties": false,
        "properties": {"name": {"type": "string", "maxLength": 5}, "tags": tags},
    });
    let grammar = "start: \"(\" (start | WORD)? \")\"\nWORD: /[ab]+c/";
    let sources =
        [Source::Regex("( [a-z]+)+ (love|death)[.]".into()), Source::Schema(schema), Source::Lark(grammar.into())];
    sources.map(|source| of_bytes(source).unwrap())
});

/// A row and the text that it has written.
type Row = (Box<dyn LogitsProcessor>, Vec<u32>);

/// All that a row says of its next token: the bits of the logits that it leaves, which of some tokens it admits, the closing that it knows, and
/// whether the text is complete.
fn said(row: &mut dyn LogitsProcessor, ids: &[u32], logits: &[f64]) -> (Vec<u64>, Vec<bool>, String) {
    let mut left = logits.to_vec();
    row.process(&History::new(ids, 0), &mut left);
    let visible: Vec<u32> = (0..left.len() as u32).filter(|&id| left[id as usize] != HIDDEN).collect();
    let admitted = visible.iter().step_by(13).map(|&id| row.admits(id)).collect();
    let bits = left.iter().map(|logit| logit.to_bits()).collect();
    (bits, admitted, format!("{row:?}, complete: {}", row.is_complete()))
}

/// A row that has read a text at once.
fn anew(constraint: &Constraint, most: usize, ids: &[u32]) -> Box<dyn LogitsProcessor> {
    let mut row = constraint.processor(most, &[STOP]).boxed();
    ids.iter().for_each(|&id| row.accept(id));
    row
}

/// Draws a token for a row, unless the row has ended. Returns whether it goes on.
fn goes_on(row: &mut Row, most: usize, random: &mut ChaCha8Rng) -> bool {
    let (processor, ids) = row;
    if processor.is_complete() || ids.len() == most {
        return false;
    }
    let logits = random_logits(ids, 259, random);
    let id = draw(processor.as_mut(), ids, logits, random);
    processor.accept(id);
    ids.push(id);
    id != STOP
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Rows are copied, go on in any order, move to other places and are dropped, as beams are and as a text is that goes back.
    #[test]
    fn a_row_that_goes_on_is_one_that_reads_its_text_anew(which in 0usize..3, more in 0usize..24, seed in 0u64..1000) {
        let constraint = &CONSTRAINTS[which];
        let most = constraint.needs() + more;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut rows: Vec<Row> = vec![(constraint.processor(most, &[STOP]).boxed(), Vec::new())];
        for _ in 0..12 {
            let place = (uniform(&mut random) * rows.len() as f64) as usize;
            if rows.len() < 3 && uniform(&mut random) < 0.3 {
                let (processor, ids) = &rows[place];
                let copy = (processor.boxed(), ids.clone());
                rows.push(copy);
            }
            let mut row = rows.swap_remove(place);
            let logits = random_logits(&row.1, 259, &mut random);
            let mut other = anew(constraint, most, &row.1);
            prop_assert_eq!(said(row.0.as_mut(), &row.1, &logits), said(other.as_mut(), &row.1, &logits), "{:?}", &row.1);
            if goes_on(&mut row, most, &mut random) {
                rows.push(row);
            }
            if rows.is_empty() {
                break;
            }
        }
    }
}
