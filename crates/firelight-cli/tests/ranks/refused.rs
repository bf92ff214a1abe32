//! Ranks that cannot train together: one line says why, and nothing is written.

use std::fs;
use std::path::{Path, PathBuf};

use crate::USER;
use crate::support::{Model, command, finish};

use super::job::{PROGRAM, STORIES, fails_once, of_programs, on_ranks, on_ranks_of_their_own, train};

/// What the program calls itself, as ranks compare it.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("FIRELIGHT_COMMIT"), ")");

#[test]
fn a_group_that_is_smaller_than_the_world_is_refused() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let arguments = train(&STORIES, &out, &["--set", "training.gradient_accumulation_steps=2"]);
    let texts = ["training.gradient_accumulation_steps = 2 cannot be shared by 4 ranks", "such as 4"];
    fails_once(&finish(on_ranks(4, &arguments)), USER, &texts);
    assert!(!out.exists());
}

#[test]
fn ranks_that_are_asked_for_different_trainings_are_refused() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let of_rank = |recipe: &[&str], more: &[&str]| train(recipe, &out, more);
    for (other, texts) in [
        (
            of_rank(&STORIES, &["--set", "model.d_ff=24"]),
            ["its override of model.d_ff is `", "24`, and that of rank 0 `16`"],
        ),
        (of_rank(&["dates"], &[]), ["its recipe is `\"dates\"`", "rank 0 `\"stories\"`"]),
        (of_rank(&STORIES, &["--data", "other.txt"]), ["its list of data is `[\"other.txt\"]`", "rank 0 `[]`"]),
    ] {
        let finished = finish(on_ranks_of_their_own(&[of_rank(&STORIES, &[]), other]));
        fails_once(&finished, USER, &["rank 1 does not train what rank 0 does", texts[0], texts[1]]);
        assert!(!out.exists());
    }
}

#[test]
fn a_launcher_of_another_mpi_is_named() {
    let home = Model::scratch();
    let out = home.path().join("run");
    let mut rank = command(train(&STORIES, &out, &[]));
    rank.env("PMI_RANK", "0").env("PMI_SIZE", "2");
    fails_once(&finish(rank), USER, &["PMI_SIZE=2 and this is rank 0 of them, but MPI finds 1"]);
    assert!(!out.exists());
}

/// The program, as if it were built from another commit.
fn of_another_commit(home: &Path) -> PathBuf {
    let (other, mut bytes) = (home.join("firelight"), fs::read(PROGRAM).unwrap());
    fs::copy(PROGRAM, &other).unwrap(); // with its permissions
    let commit = VERSION.find('(').unwrap() + 1;
    let places = places_of(VERSION.as_bytes(), &bytes);
    assert!(!places.is_empty(), "the program does not hold `{VERSION}`");
    places.into_iter().for_each(|place| bytes[place + commit] = b'x'); // no digit of a commit
    fs::write(&other, bytes).unwrap();
    other
}

/// Where these words are in the bytes.
fn places_of(words: &[u8], bytes: &[u8]) -> Vec<usize> {
    let is_here = |place: &usize| bytes[*place] == words[0] && bytes[*place..].starts_with(words);
    (0..bytes.len()).filter(is_here).collect()
}

#[test]
fn a_program_of_another_commit_is_refused() {
    let home = Model::scratch();
    let (out, other) = (home.path().join("run"), of_another_commit(home.path()));
    let training = train(&STORIES, &out, &[]);
    let finished = finish(of_programs([(Path::new(PROGRAM), &training[..]), (other.as_path(), &training[..])]));
    let texts = ["rank 1 does not train what rank 0 does: its version is `", &format!("rank 0 `{VERSION}`")];
    fails_once(&finished, USER, &texts);
    assert!(!out.exists());
}
