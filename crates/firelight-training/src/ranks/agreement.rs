//! Whether all ranks began alike: with the same program, settings, data and weights. They compare what they have before the first step,
//! for a rank that differs would train another model, and before the first answer.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorReadError};
use firelight_storage::{InputError, shortened};
use serde::Serialize;
use serde_json::Value;

use super::Ranks;
use crate::{Communicator, TrainingError};

/// Something that all ranks have in common: its name and its value.
pub(crate) type Term = (String, String);

/// How much of a file is read at a time, in bytes.
const PIECE: usize = 1 << 20;

/// What ranks do together: a verb, and what they must have in common.
#[derive(Clone, Copy)]
struct Work {
    verb: &'static str,
    common: &'static str,
}

const TRAINING: Work = Work { verb: "train", common: "program, recipe and data" };
const ANSWERS: Work = Work { verb: "do", common: "program, arguments and files" };

/// Refuses ranks that are about to do different things: for which one of the `terms`, each a name and its value, or one of the `files` differs.
/// Files are compared by name, length and checksum; one that is missing on all ranks is none that differs. Every rank calls it.
///
/// ```
/// use std::sync::Arc;
/// use firelight_training::{Threads, ThreadsOptions, agree};
///
/// std::thread::scope(|scope| {
///     for (rank, beams) in Threads::ranks(2, ThreadsOptions::default()).into_iter().zip(["4", "5"]) {
///         scope.spawn(move || {
///             let error = agree(Arc::new(rank), vec![("beams".into(), beams.into())], &[]).unwrap_err().to_string();
///             assert!(error.starts_with("rank 1 does not do what rank 0 does: its beams is `5`, and that of rank 0 `4`"));
///         });
///     }
/// });
/// ```
///
/// # Errors
/// If something differs, with the same error on every rank; if a file cannot be read; and if a rank has failed or does not come in time.
pub fn agree(
    communicator: Arc<dyn Communicator>,
    mut terms: Vec<(String, String)>,
    files: &[PathBuf],
) -> Result<(), TrainingError> {
    let ranks = Ranks::new(communicator);
    if ranks.are_one() {
        return Ok(());
    }
    terms.extend(ranks.tell(described(files))?);
    ranks.compare(terms)
}

/// The names of files, and what is in them.
fn described(files: &[PathBuf]) -> Result<Vec<Term>, TrainingError> {
    let term = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, fingerprint(path).map_err(TrainingError::file("read", path))?))
    };
    files.iter().map(term).collect()
}

/// The length of a file and the checksum of all of it.
pub(crate) fn fingerprint(path: &Path) -> io::Result<String> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok("missing".into()),
        file => file?,
    };
    let (mut length, mut checksum, mut piece) = (0, 0, vec![0; PIECE]);
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(format!("{length} bytes with the checksum {checksum:08x}"));
        }
        (length, checksum) = (length + read, crc32c::crc32c_append(checksum, &piece[..read]));
    }
}

impl Ranks {
    /// Refuses a rank for which one of the `terms` of a training differs, on every rank with the same error.
    pub(crate) fn agree(&self, terms: Vec<Term>) -> Result<(), TrainingError> {
        self.agree_to(TRAINING, &terms)
    }

    /// The same of what ranks do with a trained model.
    pub(crate) fn compare(&self, terms: Vec<Term>) -> Result<(), TrainingError> {
        self.agree_to(ANSWERS, &terms)
    }

    fn agree_to(&self, work: Work, terms: &[Term]) -> Result<(), TrainingError> {
        let own = serde_json::to_vec(terms).map_err(|reason| InputError::new(reason.to_string()))?;
        let all = self.0.gather("comparison of settings", own)?;
        let of_rank = |rank: usize| serde_json::from_slice::<Vec<Term>>(&all[rank]).unwrap_or_default();
        let expected = of_rank(0);
        match (1..all.len()).find_map(|rank| difference(work, rank, (&of_rank(rank), &expected))) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// The first term in which a rank differs from the first one. A rank may have terms that others have not.
fn difference(work: Work, rank: usize, (found, expected): (&[Term], &[Term])) -> Option<InputError> {
    if found == expected {
        return None;
    }
    let name = &expected.iter().chain(found).find(|(name, _)| values(found, name) != values(expected, name))?.0;
    let [found, expected] = [found, expected].map(|terms| values(terms, name));
    let place = (0..found.len().max(expected.len())).find(|&place| found.get(place) != expected.get(place))?;
    let [found, expected] = [found, expected].map(|values| values.get(place).copied().unwrap_or_default());
    let (found, expected) = first_line(found, expected);
    let problem = format!(
        "rank {rank} does not {} what rank 0 does: its {name} is `{}`, and that of rank 0 `{}`",
        work.verb,
        shortened(found),
        shortened(expected)
    );
    Some(InputError::new(problem).advise(format!("start every rank with the same {}", work.common)))
}

/// The values of the terms of this name, of which there may be several: files of different folders may be called alike.
fn values<'a>(terms: &'a [Term], name: &str) -> Vec<&'a str> {
    terms.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str()).collect()
}

/// The first lines of two texts that differ.
fn first_line<'a>(found: &'a str, expected: &'a str) -> (&'a str, &'a str) {
    let (mut ours, mut theirs) = (found.lines(), expected.lines());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return (found, expected),
            (ours, theirs) if ours != theirs => return (ours.unwrap_or_default(), theirs.unwrap_or_default()),
            _ => {}
        }
    }
}

/// The fields of a section of settings.
pub(crate) fn settings(section: &str, settings: &impl Serialize) -> Vec<Term> {
    match serde_json::to_value(settings) {
        Ok(Value::Object(fields)) => {
            fields.into_iter().map(|(key, value)| (format!("{section}.{key}"), value.to_string())).collect()
        }
        Ok(value) => vec![(section.into(), value.to_string())],
        Err(error) => vec![(section.into(), error.to_string())],
    }
}

/// The weights of a model: how many, and their checksum.
pub(crate) fn weights<M: Module>(model: &M) -> Result<Term, TrainingError> {
    let mut sum = Checksum { numbers: 0, checksum: 0, failure: None };
    model.visit(&mut sum);
    match sum.failure {
        Some(failure) => Err(TrainingError::device("weights")(failure)),
        None => Ok(("model".into(), format!("{} weights with the checksum {:08x}", sum.numbers, sum.checksum))),
    }
}

struct Checksum {
    numbers: usize,
    checksum: u32,
    failure: Option<TensorReadError>,
}

impl ModuleVisitor for Checksum {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        match param.val().without_autodiff().try_into_data() {
            Ok(data) => {
                self.numbers += data.num_elements();
                self.checksum = crc32c::crc32c_append(self.checksum, data.as_bytes());
            }
            Err(error) => self.failure = Some(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Line;
    use burn::tensor::Device;

    fn terms(recipe: &str) -> Vec<Term> {
        vec![("version".into(), "1".into()), ("recipe".into(), recipe.into())]
    }

    #[test]
    fn the_line_that_differs_is_shown() {
        assert_eq!(difference(TRAINING, 1, (&terms("a\nb\nc"), &terms("a\nb\nc"))), None);
        let error = difference(TRAINING, 2, (&terms("a\nd\nc"), &terms("a\nb\nc"))).unwrap().to_string();
        assert_eq!(
            error,
            "rank 2 does not train what rank 0 does: its recipe is `d`, and that of rank 0 `b`; \
             start every rank with the same program, recipe and data"
        );
        let error = difference(TRAINING, 1, (&terms("a")[..1], &terms("a"))).unwrap().to_string();
        assert!(error.contains("its recipe is ``, and that of rank 0 `a`"), "{error}");
    }

    #[test]
    fn a_term_that_one_rank_alone_has_is_named() {
        let with = |more: &[(&str, &str)]| {
            let more = more.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            terms("a").into_iter().chain(more).chain([("folder".into(), "runs".into())]).collect::<Vec<_>>()
        };
        let (less, more) =
            (with(&[("override of seed", "1")]), with(&[("override of k", "2"), ("override of seed", "1")]));
        let twice = with(&[("override of seed", "1"), ("override of seed", "3")]);
        assert!(
            difference(TRAINING, 1, (&twice, &less))
                .unwrap()
                .to_string()
                .contains("seed is `3`, and that of rank 0 ``")
        );
        for (found, expected, told) in
            [(&less, &more, "k is ``, and that of rank 0 `2`"), (&more, &less, "k is `2`, and")]
        {
            let error = difference(TRAINING, 1, (found, expected)).unwrap().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn files_are_compared_by_their_bytes() {
        let home = tempfile::tempdir().unwrap();
        let [one, same, other, missing] = ["one", "same", "other", "missing"].map(|name| home.path().join(name));
        let bytes: Vec<u8> = (0..PIECE + 3).map(|index| (index % 251) as u8).collect();
        std::fs::write(&one, &bytes).unwrap();
        std::fs::write(&same, &bytes).unwrap();
        std::fs::write(&other, [&bytes[..PIECE + 2], &[255]].concat()).unwrap();
        let [one, same, other, missing] = [one, same, other, missing].map(|path| fingerprint(&path).unwrap());
        assert_eq!((one.as_str(), missing.as_str()), (same.as_str(), "missing"));
        assert!(one != other && one.starts_with("1048579 bytes with the checksum "), "{one} {other}");
    }

    #[test]
    fn every_setting_is_a_term() {
        let found = settings("training", &serde_json::json!({"steps": 3, "freeze": ["a"]}));
        let expected = [("training.steps", "3"), ("training.freeze", "[\"a\"]")];
        assert!(expected.iter().all(|(key, value)| found.contains(&(key.to_string(), value.to_string()))), "{found:?}");
        assert_eq!(settings("seed", &7), [("seed".to_string(), "7".to_string())]);
    }

    #[test]
    fn other_weights_have_another_checksum() {
        let term = |slope| weights(&Line::new(slope, 0.0, &Device::default())).unwrap().1;
        assert!(term(1.0).starts_with("2 weights with the checksum "), "{}", term(1.0));
        assert_eq!(term(1.0), term(1.0));
        assert_ne!(term(1.0), term(1.0 + f32::EPSILON));
    }
}
