//! Checkpoints of a run are averaged, and the average is used as any other.

use crate::USER;
use crate::support::{evaluate, firelight, model, text};

#[test]
fn checkpoints_are_averaged_and_used() {
    let copy = model().copy();
    let averaged = firelight(["average", &text(copy.path()), "--newest", "2"]).succeeds();
    assert!(averaged.stderr.contains("steps 10, 20"), "{}", averaged.stderr);
    let newest = firelight(["average", &text(copy.path()), "--newest", "1"]).succeeds();
    assert!(newest.stderr.contains("checkpoints of steps 20: "), "{}", newest.stderr);
    let average =
        firelight(evaluate(copy.path(), &model().text).into_iter().chain(["--checkpoint".into(), "average".into()]));
    assert!(average.succeeds().stderr.contains("checkpoint: average"));
    firelight(["average", &text(copy.path()), "--steps", "10,777"]).fails(USER, &["no checkpoint `777`"]);
    firelight(["average", &text(copy.path()), "--newest", "3"])
        .fails(USER, &["has 2 of the 3 checkpoints that are wanted"]);
}
