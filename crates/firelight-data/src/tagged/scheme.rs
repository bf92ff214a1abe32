//! How tags spell entities: `O` outside of all, `B-TYPE` where one begins, `I-TYPE` within one.
//!
//! Sources: Ramshaw and Marcus 1995, section 4.1 (<https://aclanthology.org/W95-0107>), whose tags are IOB1: `B-TYPE` only behind an
//! entity of the same type. In IOB2 every entity begins with it (Tjong Kim Sang and Veenstra 1999,
//! <https://aclanthology.org/E99-1023>).

use std::ops::Range;

use firelight_storage::shortened;
use serde::{Deserialize, Serialize};

/// What the tags of a file mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TagScheme {
    /// Entities, each of which begins with `B-TYPE`.
    #[default]
    Iob2,
    /// Entities that begin with `I-TYPE`, and with `B-TYPE` behind another one of their type; read as IOB2.
    Iob1,
    /// Nothing but themselves, such as parts of speech.
    Plain,
}

/// What a tag says of its token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EntityTag<'a> {
    Outside,
    Begin(&'a str),
    Inside(&'a str),
}

impl<'a> EntityTag<'a> {
    /// None for what is no tag of entities.
    fn of(tag: &'a str) -> Option<Self> {
        match tag.split_once('-') {
            None if tag == "O" => Some(Self::Outside),
            Some(("B", kind)) if !kind.is_empty() => Some(Self::Begin(kind)),
            Some(("I", kind)) if !kind.is_empty() => Some(Self::Inside(kind)),
            _ => None,
        }
    }

    fn kind(self) -> Option<&'a str> {
        match self {
            Self::Outside => None,
            Self::Begin(kind) | Self::Inside(kind) => Some(kind),
        }
    }
}

impl TagScheme {
    /// Brings the tags of a sentence into the form that models learn, IOB2 where they are of entities. The error is the place of
    /// a tag that breaks the rules, and what is wrong with it.
    pub(super) fn settle(self, tags: &mut [String]) -> Result<(), (usize, String)> {
        if self == Self::Plain {
            let empty = tags.iter().position(String::is_empty);
            return empty.map_or(Ok(()), |token| Err((token, "is empty: give every token a tag".into())));
        }
        let mut before: Option<(String, String)> = None; // the type and the tag of the token in front
        for (token, tag) in tags.iter_mut().enumerate() {
            let entity_tag = EntityTag::of(tag).ok_or_else(|| (token, UNKNOWN.to_owned()))?;
            let kind = entity_tag.kind().map(str::to_owned);
            let begins =
                matches!(entity_tag, EntityTag::Inside(kind) if before.as_ref().is_none_or(|(of, _)| of != kind));
            if let (true, Some(kind)) = (begins, &kind) {
                match self {
                    Self::Iob1 => *tag = format!("B-{kind}"),
                    _ => return Err((token, broken(kind, before.as_ref().map_or("", |(_, tag)| tag.as_str())))),
                }
            }
            before = kind.map(|kind| (kind, tag.clone()));
        }
        Ok(())
    }
}

/// What is wrong with a tag that is none of entities.
const UNKNOWN: &str = "is no tag of entities: expected `O`, `B-TYPE` or `I-TYPE`; set data.scheme = \"plain\" where tags are of \
                       another kind, such as parts of speech";

/// What is wrong with an `I-TYPE` that goes on with nothing.
fn broken(kind: &str, before: &str) -> String {
    let kind = shortened(kind);
    let behind =
        if before.is_empty() { "outside of an entity".into() } else { format!("behind `{}`", shortened(before)) };
    format!(
        "stands {behind}, but an entity begins with `B-{kind}` (IOB2); mend the tag, or set data.scheme = \"iob1\" where entities \
         of this file begin with `I-`"
    )
}

/// An entity of a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaggedEntity {
    /// Its type, such as `PER`.
    pub kind: String,
    /// Its tokens.
    pub tokens: Range<usize>,
}

/// Whether these are tags of entities, all of them.
pub fn are_of_entities<S: AsRef<str>>(tags: &[S]) -> bool {
    tags.iter().all(|tag| EntityTag::of(tag.as_ref()).is_some())
}

/// The entities of a sentence. An `I-TYPE` that goes on with nothing begins one, as in the script `conlleval`, and what is no tag of
/// entities stands outside.
pub fn entities<S: AsRef<str>>(tags: &[S]) -> Vec<TaggedEntity> {
    let mut found: Vec<TaggedEntity> = Vec::new();
    for (token, tag) in tags.iter().enumerate() {
        let entity_tag = EntityTag::of(tag.as_ref()).unwrap_or(EntityTag::Outside);
        match (entity_tag, found.last_mut()) {
            (EntityTag::Inside(kind), Some(last)) if last.kind == kind && last.tokens.end == token => {
                last.tokens.end += 1;
            }
            (EntityTag::Begin(kind) | EntityTag::Inside(kind), _) => {
                found.push(TaggedEntity { kind: kind.to_owned(), tokens: token..token + 1 });
            }
            (EntityTag::Outside, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn settled(scheme: TagScheme, tags: &str) -> Result<String, (usize, String)> {
        let mut tags = words(tags);
        scheme.settle(&mut tags).map(|()| tags.join(" "))
    }

    #[test]
    fn iob1_becomes_iob2_and_iob2_stays() {
        let settle = |tags: &str| settled(TagScheme::Iob1, tags).unwrap();
        assert_eq!(settle("I-A I-A O I-A B-A I-A I-B"), "B-A I-A O B-A B-A I-A B-B");
        for tags in ["B-A I-A O B-A B-A I-A B-B", "O O", "B-A-x I-A-x"] {
            assert_eq!(settle(tags), tags);
            assert_eq!(settled(TagScheme::Iob2, tags).unwrap(), tags);
        }
    }

    #[test]
    fn a_tag_that_breaks_the_rules_is_placed() {
        let place = |scheme, tags: &str| settled(scheme, tags).unwrap_err().0;
        assert_eq!(place(TagScheme::Iob2, "B-A I-A O I-A"), 3);
        assert_eq!(place(TagScheme::Iob2, "B-A I-B"), 1);
        assert_eq!(place(TagScheme::Iob1, "I-A E-A"), 1);
        assert_eq!(place(TagScheme::Iob2, "B-"), 0);
        assert_eq!(settled(TagScheme::Plain, "NN B- I-X").unwrap(), "NN B- I-X");
        assert_eq!(TagScheme::Plain.settle(&mut ["NN".into(), String::new()]).unwrap_err().0, 1);
    }

    #[test]
    fn entities_begin_where_conlleval_begins_them() {
        let spans = |tags: &str| {
            let found = entities(&words(tags)).into_iter();
            found.map(|entity| format!("{} {:?}", entity.kind, entity.tokens)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(spans("B-A I-A O B-B"), "A 0..2, B 3..4");
        assert_eq!(spans("B-A B-A I-A"), "A 0..1, A 1..3");
        assert_eq!(spans("I-A I-B O I-B-x"), "A 0..1, B 1..2, B-x 3..4");
        assert_eq!(spans("B-A O I-A NN I-A"), "A 0..1, A 2..3, A 4..5");
        assert!(are_of_entities(&["O", "B-A", "I-A"]) && !are_of_entities(&["O", "NN"]));
    }
}
