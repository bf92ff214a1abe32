//! Ranks that cannot train together: one line says why, and nothing is written.

use crate::USER;
use crate::support::{Model, command, finish};

use super::job::{STORIES, fails_once, on_ranks, on_ranks_of_their_own, train};

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
