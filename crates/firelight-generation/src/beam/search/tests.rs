use super::*;
use crate::processors::tests::Admits;

/// Logits of one row for each beam.
fn logs<const V: usize>(probabilities: &[[f32; V]]) -> Vec<f32> {
    probabilities.concat().into_iter().map(f32::ln).collect()
}

fn open(search: &Search) -> Vec<(Vec<u32>, usize)> {
    search.beams.iter().map(|beam| (beam.ids.clone(), beam.parent)).collect()
}

fn probability(beam: &Beam) -> f64 {
    beam.log_probability.exp()
}

#[test]
fn two_beams_by_hand() {
    // Id 0 stops. After one token: 0.5 for [1], 0.3 for [0], 0.2 for [2].
    let options = BeamOptions::new(3).with_beams(2).with_n_best(2).with_length_penalty(0.0).with_stop_tokens([0]);
    let mut search = Search::new(&options, Vec::new());
    search.advance(&logs(&[[0.3, 0.5, 0.2]]), 1, &[]).unwrap();
    assert_eq!(open(&search), [(vec![1], 0), (vec![2], 0)]);
    // [1, 2] 0.30, [2, 1] 0.18, [1, 1] 0.15: two stay. [1, 0] 0.05 is a stop too improbable to be a hypothesis.
    search.advance(&logs(&[[0.1, 0.3, 0.6], [0.05, 0.9, 0.05]]), 2, &[]).unwrap();
    assert_eq!(open(&search), [(vec![1, 2], 0), (vec![2, 1], 1)]);
    assert!((probability(&search.beams[1]) - 0.18).abs() < 1e-6);
    // [1, 2, 0] 0.15 and [2, 1, 0] 0.162 stop at the full length.
    search.advance(&logs(&[[0.5, 0.25, 0.25], [0.9, 0.05, 0.05]]), 3, &[]).unwrap();
    assert!(search.beams.is_empty());
    let found = search.into_best();
    assert_eq!(found[0].ids, [0; 0]);
    assert!((found[0].score - 0.3f64.ln()).abs() < 1e-6);
    assert_eq!(found[1].ids, [2, 1]);
    assert!((found[1].score - 0.162f64.ln()).abs() < 1e-6);
    assert!(found.iter().all(|hypothesis| hypothesis.stop_reason == StopReason::StopToken(0)));
}

/// Whether one beam goes on after a stop of probability 0.6, with 0.4 for the rest, at the first of ten tokens.
fn goes_on_after_a_stop(early_stopping: EarlyStopping, length_penalty: f64) -> bool {
    let options = BeamOptions::new(10).with_beams(1).with_stop_tokens([0]);
    let options = options.with_length_penalty(length_penalty).with_early_stopping(early_stopping);
    let mut search = Search::new(&options, Vec::new());
    search.advance(&logs(&[[0.6, 0.4]]), 1, &[]).unwrap();
    !search.beams.is_empty()
}

#[test]
fn a_full_row_goes_on_as_long_as_it_may_improve() {
    // ln 0.4 / 10 is above ln 0.6, ln 0.4 is not.
    assert!(goes_on_after_a_stop(EarlyStopping::Never, 1.0));
    assert!(!goes_on_after_a_stop(EarlyStopping::Never, 0.0));
    assert!(!goes_on_after_a_stop(EarlyStopping::Never, -1.0));
    assert!(!goes_on_after_a_stop(EarlyStopping::Heuristic, 1.0));
    assert!(!goes_on_after_a_stop(EarlyStopping::Full, 1.0));
}

#[test]
fn a_full_row_with_a_better_beam_ends_only_if_asked_to() {
    // The stop has 0.4 and is in the first two, so is the beam that is better than it.
    let ends = |early_stopping| {
        let options = BeamOptions::new(10).with_beams(2).with_stop_tokens([0, 1]).with_early_stopping(early_stopping);
        let mut search = Search::new(&options, Vec::new());
        search.advance(&logs(&[[0.2, 0.2, 0.6]]), 1, &[]).unwrap();
        assert_eq!(search.beams.len(), 1);
        search.advance(&logs(&[[0.01, 0.01, 0.98]]), 2, &[]).unwrap();
        search.beams.is_empty()
    };
    assert!(!ends(EarlyStopping::Heuristic));
    assert!(ends(EarlyStopping::Full));
}

#[test]
fn a_row_without_beams_has_ended() {
    let options = BeamOptions::new(9).with_beams(1).with_stop_tokens([0, 1]).with_early_stopping(EarlyStopping::Never);
    let mut search = Search::new(&options, Vec::new());
    search.advance(&logs(&[[0.7, 0.3]]), 1, &[]).unwrap();
    search.advance(&[], 2, &[]).unwrap();
    assert_eq!(search.into_best().len(), 1);
}

#[test]
fn a_group_avoids_what_those_before_it_have_chosen() {
    let options = BeamOptions::new(2).with_beams(2).with_groups(2, 1.0).with_n_best(2).with_length_penalty(0.0);
    let mut groups = Groups::new(&options, &[]);
    assert_eq!(groups.beams().count(), 2);
    // 0.5 e^-1 is below 0.3, but above 0.15.
    groups.advance(&logs(&[[0.5, 0.3, 0.2]; 2]), 1).unwrap();
    assert_eq!(groups.beams().map(|beam| (beam.ids[0], beam.parent)).collect::<Vec<_>>(), [(0, 0), (1, 1)]);
    groups.advance(&logs(&[[0.5, 0.3, 0.2], [0.7, 0.15, 0.15]]), 2).unwrap();
    assert_eq!(groups.beams().count(), 0);
    let found: Vec<(Vec<u32>, f64)> = groups.into_best(2).into_iter().map(|best| (best.ids, best.score)).collect();
    assert_eq!(found.iter().map(|best| best.0.clone()).collect::<Vec<_>>(), [vec![0, 0], vec![1, 0]]);
    // The penalty is part of the score, as in transformers.
    let expected = [0.25f64.ln(), 0.21f64.ln() - 1.0];
    assert!(found.iter().zip(expected).all(|(found, expected)| (found.1 - expected).abs() < 1e-6), "{found:?}");
}

#[test]
fn a_beam_to_which_every_token_is_refused_goes_on_with_the_fallback_soon() {
    let nothing = Admits::new(&[], true);
    let options = BeamOptions::new(3).with_beams(1).with_processor(nothing.clone());
    let mut search = Search::new(&options, Vec::new());
    let logits: Vec<f32> = (0..1000).map(|id| id as f32 / 100.0).collect();
    search.advance(&logits, 1, &[]).unwrap();
    assert_eq!(open(&search), [(vec![1], 0)]);
    assert!((256..300).contains(&nothing.asked()), "{} of 1000", nothing.asked());
}
