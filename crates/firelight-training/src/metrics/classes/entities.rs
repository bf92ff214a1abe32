//! Entities in tagged tokens: names of persons, places and the like, counted as found only where type, begin and end are all
//! right. Tags are `O`, `B-TYPE` at the beginning of an entity and `I-TYPE` within one.
//!
//! Source: Tjong Kim Sang and De Meulder 2003, Introduction to the CoNLL-2003 shared task, section 2.3, and its script
//! `conlleval`, whose reading of tags that break the rules is kept: an `I-TYPE` behind `O` or behind another type begins an
//! entity.

use std::collections::{BTreeMap, HashSet};

use firelight_storage::{InputError, shortened};
use serde::Serialize;

use super::PerClass;

/// How well entities are found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntityReport {
    /// All entities together, as `conlleval` sums them up.
    pub all: PerClass,
    /// The entities of each type, by the type's name.
    pub per_type: BTreeMap<String, PerClass>,
}

/// An entity: its type, its sentence, its first token and the one behind its last.
type Entity<'a> = (&'a str, usize, usize, usize);

/// Compares predicted tags with the true ones, sentence by sentence.
///
/// # Errors
/// Fails if sentences or tags have no counterpart, or if something is no tag.
pub fn entity_report<P: AsRef<str>, T: AsRef<str>>(
    predictions: &[Vec<P>],
    targets: &[Vec<T>],
) -> Result<EntityReport, InputError> {
    check_lengths(predictions, targets)?;
    let (found, expected) = (entities(predictions)?, entities(targets)?);
    let of = |kind: Option<&str>| {
        let count = |entities: &HashSet<Entity>, also: &dyn Fn(&Entity) -> bool| {
            entities.iter().filter(|entity| kind.is_none_or(|kind| kind == entity.0) && also(entity)).count()
        };
        let correct = count(&found, &|entity| expected.contains(entity));
        PerClass::of(correct, count(&found, &|_| true), count(&expected, &|_| true))
    };
    let kinds = found.union(&expected).map(|entity| entity.0);
    Ok(EntityReport { all: of(None), per_type: kinds.map(|kind| (kind.to_owned(), of(Some(kind)))).collect() })
}

fn check_lengths<P, T>(predictions: &[Vec<P>], targets: &[Vec<T>]) -> Result<(), InputError> {
    if predictions.len() != targets.len() {
        let (predictions, targets) = (predictions.len(), targets.len());
        let problem = format!("{predictions} sentences of predicted tags were given with {targets} of true tags");
        return Err(InputError::new(problem + ": expected as many of both"));
    }
    let lengths = predictions.iter().map(Vec::len).zip(targets.iter().map(Vec::len)).enumerate();
    match lengths.into_iter().find(|(_, (predictions, targets))| predictions != targets) {
        Some((index, (predictions, targets))) => Err(InputError::new(format!(
            "sentence {} has {predictions} predicted tags and {targets} true ones: expected one of each for every token",
            index + 1
        ))),
        None => Ok(()),
    }
}

fn entities<S: AsRef<str>>(sentences: &[Vec<S>]) -> Result<HashSet<Entity<'_>>, InputError> {
    let mut entities = HashSet::new();
    for (sentence, tags) in sentences.iter().enumerate() {
        let mut open: Option<(&str, usize)> = None;
        for (token, tag) in tags.iter().map(|tag| tag.as_ref()).enumerate() {
            let kind = parse(tag).ok_or_else(|| no_tag(tag, sentence + 1, token + 1))?;
            let goes_on = kind.is_some_and(|(begins, kind)| !begins && open.is_some_and(|(of, _)| of == kind));
            if !goes_on {
                entities.extend(open.map(|(of, first)| (of, sentence, first, token)));
                open = kind.map(|(_, kind)| (kind, token));
            }
        }
        entities.extend(open.map(|(of, first)| (of, sentence, first, tags.len())));
    }
    Ok(entities)
}

/// Something that is no tag, by its place.
fn no_tag(tag: &str, sentence: usize, token: usize) -> InputError {
    let tag = shortened(tag);
    InputError::new(format!("tag {token} of sentence {sentence} is `{tag}`: expected `O`, `B-TYPE` or `I-TYPE`"))
}

/// Whether a tag says that an entity begins, and its type; nothing outside of entities. None for what is no tag.
fn parse(tag: &str) -> Option<Option<(bool, &str)>> {
    match tag.split_once('-') {
        None if tag == "O" => Some(None),
        Some(("B", kind)) if !kind.is_empty() => Some(Some((true, kind))),
        Some(("I", kind)) if !kind.is_empty() => Some(Some((false, kind))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sentence(tags: &str) -> Vec<&str> {
        tags.split_whitespace().collect()
    }

    /// Type, first token and the one behind the last of every entity.
    fn spans(tags: &str) -> String {
        let sentences = [sentence(tags)];
        let mut entities: Vec<_> = entities(&sentences).unwrap().into_iter().collect();
        entities.sort_by_key(|entity| entity.2);
        entities.iter().map(|(kind, _, from, to)| format!("{kind} {from}-{to}")).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn entities_begin_where_conlleval_begins_them() {
        assert_eq!(spans("B-A I-A O B-B"), "A 0-2, B 3-4");
        assert_eq!(spans("B-A B-A I-A"), "A 0-1, A 1-3");
        assert_eq!(spans("I-A I-B O I-B-x"), "A 0-1, B 1-2, B-x 3-4");
        assert_eq!(spans("O O"), "");
    }

    #[test]
    fn an_entity_counts_where_type_begin_and_end_are_right() {
        let found = [sentence("B-PER I-PER O B-LOC"), sentence("B-ORG O")];
        let expected = [sentence("B-PER I-PER O B-ORG"), sentence("B-ORG I-ORG")];
        let report = entity_report(&found, &expected).unwrap();
        assert_eq!(report.all, PerClass { precision: 1.0 / 3.0, recall: 1.0 / 3.0, f1: 1.0 / 3.0, support: 3 });
        assert_eq!(report.per_type["PER"], PerClass { precision: 1.0, recall: 1.0, f1: 1.0, support: 1 });
        assert_eq!(report.per_type["ORG"], PerClass { precision: 0.0, recall: 0.0, f1: 0.0, support: 2 });
        assert_eq!(report.per_type["LOC"], PerClass::default());
    }

    #[test]
    fn what_is_no_tag_is_named_with_its_place() {
        let wrong = |found: &[&str], expected: &[&str]| {
            let of = |sentences: &[&str]| {
                sentences.iter().map(|tags| tags.split_whitespace().map(str::to_owned).collect()).collect()
            };
            let (found, expected): (Vec<Vec<String>>, Vec<Vec<String>>) = (of(found), of(expected));
            entity_report(&found, &expected).unwrap_err().to_string()
        };
        assert_eq!(
            wrong(&["O", "O PER"], &["O", "O O"]),
            "tag 2 of sentence 2 is `PER`: expected `O`, `B-TYPE` or `I-TYPE`"
        );
        assert!(wrong(&["O B-"], &["O O"]).contains("is `B-`"));
        assert!(wrong(&["O"], &["O", "O"]).starts_with("1 sentences of predicted tags were given with 2"));
        assert!(wrong(&["O", "O O"], &["O", "O"]).starts_with("sentence 2 has 2 predicted tags and 1 true ones"));
    }

    proptest! {
        #[test]
        fn right_tags_find_everything(tags in prop::collection::vec(prop::sample::select(vec!["O", "B-A", "I-A", "B-B", "I-B"]), 1..12)) {
            let report = entity_report(std::slice::from_ref(&tags), std::slice::from_ref(&tags)).unwrap();
            let any = f64::from(u8::from(tags.iter().any(|tag| *tag != "O")));
            prop_assert_eq!((report.all.precision, report.all.recall, report.all.f1), (any, any, any));
        }
    }
}
