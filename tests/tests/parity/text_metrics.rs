//! BLEU, chrF and their tokenizers against sacrebleu, ROUGE against rouge-score: scores, precisions, counts and signatures of every choice, on corpora of
//! made sentences. `tests/fixtures/text_metrics.py` wrote them down.

use std::collections::BTreeMap;
use std::path::Path;

use firelight::training::metrics::text::{Bleu, BleuTokenizer, Chrf, Rouge, Smoothing};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

#[derive(Deserialize)]
struct Golden {
    corpora: BTreeMap<String, Vec<(String, String)>>,
    bleu: Vec<BleuCase>,
    chrf: Vec<ChrfCase>,
    sentences: Vec<[f64; 3]>,
    rouge: Vec<RougeCase>,
    tokens: BTreeMap<String, Vec<Vec<String>>>,
}

#[derive(Deserialize)]
struct BleuCase {
    corpus: String,
    tokenizer: String,
    lowercase: bool,
    smoothing: String,
    value: Option<f64>,
    effective_order: bool,
    score: f64,
    precisions: [f64; 4],
    brevity_penalty: f64,
    lengths: [u64; 2],
    matches: [u64; 4],
    totals: [u64; 4],
    text: String,
    signature: String,
}

#[derive(Deserialize)]
struct ChrfCase {
    corpus: String,
    char_order: usize,
    word_order: usize,
    beta: u32,
    lowercase: bool,
    whitespace: bool,
    score: f64,
    name: String,
    signature: String,
}

/// Precision, recall and F1 of one pair, which follow one another as in the corpora.
#[derive(Deserialize)]
struct RougeCase {
    corpus: String,
    scores: BTreeMap<String, [f64; 3]>,
}

impl Golden {
    fn load() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/text_metrics.json");
        serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("the fixture's fields")
    }

    /// Hypotheses and references.
    fn corpus(&self, name: &str) -> (Vec<&str>, Vec<&str>) {
        self.corpora[name].iter().map(|(hypothesis, reference)| (hypothesis.as_str(), reference.as_str())).unzip()
    }
}

impl BleuCase {
    fn metric(&self) -> Bleu {
        let value = self.value.unwrap_or_default();
        let smoothing = match self.smoothing.as_str() {
            "exp" => Smoothing::Exp,
            "floor" => Smoothing::Floor { value },
            "add-k" => Smoothing::AddK { value },
            "none" => Smoothing::None,
            other => panic!("no smoothing is called {other}"),
        };
        let metric = Bleu::default().with_tokenizer(tokenizer(&self.tokenizer)).with_lowercase(self.lowercase);
        metric.with_smoothing(smoothing).with_effective_order(self.effective_order)
    }
}

fn tokenizer(name: &str) -> BleuTokenizer {
    let name: StrDeserializer<Error> = name.into_deserializer();
    BleuTokenizer::deserialize(name).expect("a tokenizer of ours")
}

fn close(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-9, "{what}: {found}, expected {expected}");
}

/// The signature without who computed.
fn choices(signature: &str) -> &str {
    signature.split("|version:").next().expect("a first part")
}

#[test]
fn bleu_agrees_with_sacrebleu() {
    let golden = Golden::load();
    assert_eq!((golden.corpora.len(), golden.bleu.len()), (10, 288));
    for case in &golden.bleu {
        let (hypotheses, references) = golden.corpus(&case.corpus);
        let found = case.metric().corpus(&hypotheses, &references).expect("as many references");
        let what = format!("{}, {}", case.corpus, case.signature);
        close(found.score, case.score, &what);
        close(found.brevity_penalty, case.brevity_penalty, &what);
        assert_eq!(found.precisions.len(), case.precisions.len(), "{what}");
        found.precisions.iter().zip(case.precisions).for_each(|(found, expected)| close(*found, expected, &what));
        assert_eq!([found.hypothesis_len, found.reference_len], case.lengths, "{what}");
        assert_eq!((found.matches, found.totals), (case.matches, case.totals), "{what}");
        assert_eq!(found.to_string(), case.text, "{what}");
        assert_eq!(choices(&case.metric().signature()), choices(&case.signature));
    }
}

#[test]
fn chrf_agrees_with_sacrebleu() {
    let golden = Golden::load();
    assert_eq!((golden.corpora.len(), golden.chrf.len()), (10, 168));
    for case in &golden.chrf {
        let (hypotheses, references) = golden.corpus(&case.corpus);
        let metric = Chrf::default().with_char_order(case.char_order).with_word_order(case.word_order);
        let metric = metric.with_beta(case.beta).with_lowercase(case.lowercase).with_whitespace(case.whitespace);
        let found = metric.corpus(&hypotheses, &references).expect("as many references");
        close(found, case.score, &format!("{}, {}, {}", case.corpus, case.name, case.signature));
        assert_eq!((metric.name(), choices(&metric.signature())), (case.name.clone(), choices(&case.signature)));
    }
}

#[test]
fn single_sentences_agree_with_sacrebleu() {
    let golden = Golden::load();
    let pairs = &golden.corpora["prose"];
    assert_eq!((pairs.len(), golden.sentences.len()), (23, 23));
    for ((hypothesis, reference), expected) in pairs.iter().zip(&golden.sentences) {
        let bleu =
            Bleu::default().with_effective_order(true).sentence(hypothesis, reference).expect("settings in range");
        let [chrf, chrf_words] =
            [Chrf::default(), Chrf::plus_plus()].map(|chrf| chrf.sentence(hypothesis, reference).expect("settings"));
        for (found, expected) in [bleu.score, chrf, chrf_words].iter().zip(expected) {
            close(*found, *expected, hypothesis);
        }
    }
}

#[test]
fn rouge_agrees_with_rouge_score() {
    let golden = Golden::load();
    let kinds = [("rouge1", Rouge::N(1)), ("rouge2", Rouge::N(2)), ("rouge3", Rouge::N(3)), ("rougeL", Rouge::L)];
    assert_eq!(golden.rouge.len(), golden.corpora.values().map(Vec::len).sum::<usize>());
    for (name, pairs) in &golden.corpora {
        let cases: Vec<_> = golden.rouge.iter().filter(|case| case.corpus == *name).collect();
        assert_eq!(cases.len(), pairs.len(), "{name}");
        let (hypotheses, references) = golden.corpus(name);
        for (kind, rouge) in kinds {
            for ((hypothesis, reference), case) in pairs.iter().zip(&cases) {
                let found = rouge.pair(hypothesis, reference).expect("runs of words");
                let found = [found.precision, found.recall, found.f1];
                found.iter().zip(case.scores[kind]).for_each(|(found, expected)| close(*found, expected, hypothesis));
            }
            let mean = cases.iter().map(|case| case.scores[kind][2]).sum::<f64>() / cases.len() as f64;
            close(rouge.corpus(&hypotheses, &references).expect("a corpus"), 100.0 * mean, name);
        }
    }
}

#[test]
fn tokens_agree_with_sacrebleu() {
    let golden = Golden::load();
    assert_eq!(golden.tokens.len(), 4);
    for (name, expected) in &golden.tokens {
        assert_eq!(expected.len(), 2 * golden.corpora["prose"].len(), "{name}");
        let texts = golden.corpora["prose"].iter().flat_map(|(hypothesis, reference)| [hypothesis, reference]);
        for (text, expected) in texts.zip(expected) {
            assert_eq!(&tokenizer(name).tokens(text), expected, "{name}");
        }
    }
}
