//! The merges of a BPE, which its SentencePiece model leaves unsaid: any two pieces that make a third one are merged, the third one with
//! the best score first.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::layout::Entry;
use super::model::Kind;

/// The merges, the first ones first.
pub(super) fn merges(entries: &[Entry]) -> Vec<[&str; 2]> {
    let is_mergeable = |entry: &&Entry| matches!(entry.kind, Kind::Normal | Kind::UserDefined);
    let ids: HashMap<&str, usize> =
        entries.iter().enumerate().filter(|(_, it)| is_mergeable(it)).map(|(id, it)| (it.piece.as_str(), id)).collect();
    let mut found: Vec<(f32, [usize; 2], [&str; 2])> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.kind == Kind::Normal) {
        for (place, _) in entry.piece.char_indices().skip(1) {
            let parts = <[&str; 2]>::from(entry.piece.split_at(place));
            if let [Some(first), Some(second)] = parts.map(|part| ids.get(part).copied()) {
                found.push((entry.score, [first, second], parts));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(Reverse(a.2).cmp(&Reverse(b.2))));
    found.into_iter().map(|(_, _, parts)| parts).collect()
}
