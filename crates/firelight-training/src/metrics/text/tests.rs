//! What holds for every text.

use proptest::prelude::*;

use super::*;

/// Lines of a few words with punctuation, numbers and letters beyond ASCII; some are empty.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof!["[a-d]{1,3}", "[0-9]{1,2}[.,][0-9]", "[äßéЖ語]{1,2}", "[a-c]{1,2}[.,!?-]", "[\"(&$][a-b]"];
    let line = proptest::collection::vec(word, 0..9).prop_map(|words| words.join(" "));
    proptest::collection::vec(line, 1..7)
}

/// Pairs of lines.
fn corpus() -> impl Strategy<Value = (Vec<String>, Vec<String>)> {
    (lines(), lines()).prop_map(|(mut one, mut two)| {
        let len = one.len().min(two.len());
        one.truncate(len);
        two.truncate(len);
        (one, two)
    })
}

fn bleus() -> impl Strategy<Value = Bleu> {
    let tokenizer = prop_oneof![
        Just(BleuTokenizer::V13a),
        Just(BleuTokenizer::International),
        Just(BleuTokenizer::Character),
        Just(BleuTokenizer::None)
    ];
    let smoothing = prop_oneof![
        Just(Smoothing::Exp),
        Just(Smoothing::Floor { value: 0.1 }),
        Just(Smoothing::AddK { value: 1.0 }),
        Just(Smoothing::None)
    ];
    (tokenizer, any::<bool>(), smoothing, any::<bool>()).prop_map(
        |(tokenizer, lowercase, smoothing, effective_order)| Bleu { tokenizer, lowercase, smoothing, effective_order },
    )
}

fn chrfs() -> impl Strategy<Value = Chrf> {
    (1usize..7, 0usize..3, 1u32..4, any::<bool>(), any::<bool>()).prop_map(
        |(char_order, word_order, beta, lowercase, whitespace)| Chrf {
            char_order,
            word_order,
            beta,
            lowercase,
            whitespace,
        },
    )
}

#[test]
fn texts_without_a_counterpart_and_empty_corpora_are_errors() {
    let (two, one, none): ([&str; 2], [&str; 1], [&str; 0]) = (["a", "b"], ["a"], []);
    let counts = exact_match(&two, &one).unwrap_err();
    assert_eq!(Bleu::default().corpus(&two, &one).unwrap_err(), counts);
    assert_eq!(Chrf::default().corpus(&two, &one).unwrap_err(), counts);
    assert!(counts.to_string().starts_with("2 hypotheses were given with 1 references"));
    let empty = exact_match(&none, &none).unwrap_err();
    assert_eq!(Bleu::default().corpus(&none, &none).unwrap_err(), empty);
    assert_eq!(Chrf::default().corpus(&none, &none).unwrap_err(), empty);
    assert!(empty.to_string().starts_with("the corpus is empty: expected at least one hypothesis"));
}

#[test]
fn equal_texts_are_counted() {
    assert_eq!(exact_match(&["a", "", "B", "c "], &["a", "", "b", "c"]).unwrap(), 50.0);
}

proptest! {
    #[test]
    fn a_text_is_its_own_best_translation(mut lines in lines(), bleu in bleus(), chrf in chrfs()) {
        lines.push("a b c d e f".into()); // every order has n-grams
        prop_assert!((bleu.corpus(&lines, &lines).unwrap().score - 100.0).abs() < 1e-9);
        prop_assert!((chrf.corpus(&lines, &lines).unwrap() - 100.0).abs() < 1e-9);
        prop_assert_eq!(exact_match(&lines, &lines).unwrap(), 100.0);
    }

    #[test]
    fn scores_are_percentages((hypotheses, references) in corpus(), bleu in bleus(), chrf in chrfs()) {
        let score = bleu.corpus(&hypotheses, &references).unwrap();
        prop_assert!((0.0..=100.0 + 1e-9).contains(&score.score), "{score:?}");
        prop_assert!((0.0..=1.0).contains(&score.brevity_penalty));
        prop_assert!(score.matches.iter().zip(score.totals).all(|(matches, total)| *matches <= total));
        prop_assert!((0.0..=100.0 + 1e-9).contains(&chrf.corpus(&hypotheses, &references).unwrap()));
    }

    #[test]
    fn the_order_of_the_pairs_does_not_matter(
        (hypotheses, references) in corpus(), turn in 0usize..7, bleu in bleus(), chrf in chrfs(),
    ) {
        let turned = |lines: &[String]| {
            let mut lines = lines.to_vec();
            let len = lines.len();
            lines.rotate_left(turn % len);
            lines.swap(0, len - 1);
            lines
        };
        let (other_hypotheses, other_references) = (turned(&hypotheses), turned(&references));
        let score = bleu.corpus(&hypotheses, &references).unwrap();
        prop_assert_eq!(score, bleu.corpus(&other_hypotheses, &other_references).unwrap());
        let score = chrf.corpus(&hypotheses, &references).unwrap();
        prop_assert_eq!(score, chrf.corpus(&other_hypotheses, &other_references).unwrap());
    }

    #[test]
    fn two_copies_of_a_corpus_score_as_one((hypotheses, references) in corpus(), chrf in chrfs()) {
        let twice = |lines: &[String]| [lines, lines].concat();
        let (both_hypotheses, both_references) = (twice(&hypotheses), twice(&references));
        let bleu = Bleu::default();
        let (one, two) = (bleu.corpus(&hypotheses, &references).unwrap(), bleu.corpus(&both_hypotheses, &both_references).unwrap());
        prop_assert!((one.brevity_penalty - two.brevity_penalty).abs() < 1e-12);
        prop_assert_eq!(one.matches.map(|matches| 2 * matches), two.matches);
        let (one, two) =
            (chrf.corpus(&hypotheses, &references).unwrap(), chrf.corpus(&both_hypotheses, &both_references).unwrap());
        prop_assert!((one - two).abs() < 1e-9);
    }
}
