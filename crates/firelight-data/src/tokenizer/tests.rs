use super::*;
use proptest::prelude::*;
use std::fs;

const TEXT: &str = "low lower lowest\nnew newer newest\nwide wider widest\n\n  slow slower slowest, 12 123\n";

fn trained(config: TokenizerConfig) -> Tokenizer {
    Tokenizer::train(&config, TEXT).unwrap()
}

const CONFIGS: [TokenizerConfig; 6] = [
    TokenizerConfig::Char,
    TokenizerConfig::Byte,
    TokenizerConfig::Bpe { vocab_size: 280 },
    TokenizerConfig::SentenceBpe { vocab_size: 280 },
    TokenizerConfig::Unigram { vocab_size: 280 },
    TokenizerConfig::Word { min_frequency: 1 },
];

/// The text as this tokenizer gives it back.
fn kept(tokenizer: &Tokenizer, text: &str) -> String {
    match tokenizer.kind() {
        TokenizerKind::Word => text.split_whitespace().collect::<Vec<_>>().join(" "),
        _ => text.to_owned(),
    }
}

#[test]
fn a_saved_tokenizer_is_the_same_after_loading() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    for config in CONFIGS {
        let tokenizer = trained(config);
        tokenizer.save(&path).unwrap();
        let loaded = Tokenizer::load(&path).unwrap();
        assert_eq!(loaded.kind(), tokenizer.kind());
        assert_eq!(loaded.vocab_size(), tokenizer.vocab_size());
        assert_eq!(loaded.encode(TEXT).unwrap(), tokenizer.encode(TEXT).unwrap());
        assert_eq!(loaded.decode(&loaded.encode(TEXT).unwrap()), kept(&loaded, TEXT));

        let first = fs::read(&path).unwrap();
        loaded.save(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
    }
}

#[test]
fn a_tokenizer_in_a_file_is_taken_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    let special = trained(TokenizerConfig::Bpe { vocab_size: 280 }).with_special_tokens(&["</s>"]).unwrap();
    special.save(&path).unwrap();
    let config = TokenizerConfig::File { path: path.clone() };
    assert_eq!(config.kind(), None);
    let taken = Tokenizer::train(&config, "another text").unwrap();
    assert_eq!((taken.kind(), taken.special("</s>")), (TokenizerKind::Bpe, special.special("</s>")));
    assert_eq!(taken.encode(TEXT).unwrap(), special.encode(TEXT).unwrap());
    fs::remove_file(&path).unwrap();
    let error = Tokenizer::train(&config, TEXT).unwrap_err();
    assert!(error.is_user_error() && error.to_string().contains("tokenizer.json"), "{error}");
}

#[test]
fn the_file_means_the_same_to_the_tokenizers_crate() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    for config in CONFIGS {
        let tokenizer = trained(config);
        tokenizer.save(&path).unwrap();
        let theirs = tokenizers::Tokenizer::from_file(&path).unwrap();
        let ids = theirs.encode(TEXT, true).unwrap().get_ids().to_vec();
        assert_eq!(ids, tokenizer.encode(TEXT).unwrap(), "{:?}", tokenizer.kind());
        assert_eq!(theirs.decode(&ids, true).unwrap(), kept(&tokenizer, TEXT));
    }
}

#[test]
fn broken_and_foreign_files_are_named() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    trained(TokenizerConfig::Char).save(&path).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let message = |content: &str| {
        fs::write(&path, content).unwrap();
        let error = Tokenizer::load(&path).unwrap_err();
        assert!(error.to_string().contains("is no tokenizer") && error.is_user_error(), "{error}");
        error.to_string()
    };
    message("");
    message(&whole[..whole.len() / 2]);
    message(r#"{"d_model": 128}"#);
    assert!(message(&whole.replace("\"w\": 15", "\"w\": 4294967294")).contains("its largest id is 4294967294"));
    assert!(message(&whole.replace("\"w\": 15", "\"w\": 14")).contains("has the id 14, as another one has"));
    assert!(Tokenizer::load(home.path().join("none")).unwrap_err().is_user_error());
}

#[test]
fn every_file_that_the_crate_reads_does_what_it_says() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("tokenizer.json");
    let load = |file: &str| {
        fs::write(&path, file).unwrap();
        Tokenizer::load(&path).unwrap()
    };
    let unigram = r#"{"version": "1.0", "model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], ["a", -1.0], ["ab", -1.5]]}}"#;
    let unigram = load(unigram);
    assert_eq!((unigram.kind(), unigram.encode("abac").unwrap()), (TokenizerKind::Other, vec![2, 1, 0]));
    // Ids may have holes, and what is not in the vocabulary an error that names no file of ours.
    let words = r#"{"version": "1.0", "truncation": {"max_length": 1, "strategy": "LongestFirst", "stride": 0}, "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {"a": 7, "b": 3}}}"#;
    let words = load(words);
    assert_eq!((words.encode("a b a").unwrap(), words.vocab_size()), (vec![7, 3, 7], 8));
    assert_eq!(words.decode(&[7, 5, 3]), "a b");
    assert!(words.encode("c").is_err());
}

#[test]
fn a_text_goes_on_where_tokens_hold_its_spaces() {
    let going_on: Vec<bool> = CONFIGS.iter().map(|config| config.kind().unwrap().continues_text()).collect();
    assert_eq!(going_on, [true, true, true, false, false, false]);
    assert!(!TokenizerKind::WordPiece.continues_text());
}

#[test]
fn an_id_that_is_no_token_stands_for_no_text() {
    for config in CONFIGS {
        let tokenizer = trained(config);
        let beyond = tokenizer.vocab_size() as u32;
        let ids = [&[beyond][..], &tokenizer.encode("low").unwrap(), &[u32::MAX]].concat();
        assert_eq!((tokenizer.decode(&ids).as_str(), tokenizer.stream().read(&ids).as_str()), ("low", "low"));
        assert_eq!(tokenizer.token(beyond), None);
        assert!(tokenizer.token(beyond - 1).is_some());
    }
}

#[test]
fn a_token_without_white_space_in_front_continues_a_word() {
    let continues = |config, text| {
        let tokenizer = Tokenizer::train(&config, "low lower\nlowest").unwrap();
        let ids = tokenizer.encode(text).unwrap();
        ids.iter().map(|&id| tokenizer.continues_word(id)).collect::<Vec<_>>()
    };
    assert_eq!(continues(TokenizerConfig::Byte, "a b\nc"), [true, false, true, false, true]);
    assert_eq!(continues(TokenizerConfig::SentenceBpe { vocab_size: 256 }, "a b"), [false, true, false, true]);
    assert_eq!(continues(TokenizerConfig::Word { min_frequency: 1 }, "low, low"), [false; 3]);
    // Of `low` only the letters, and the marked letters behind the first.
    assert_eq!(continues(TokenizerConfig::WordPiece { vocab_size: 18 }, "lo w"), [false, true, false]);
}

proptest! {
    #[test]
    fn bytes_bpe_and_unigram_round_trip_any_text(text in "\\PC*|[a-z \n\t\u{a0}]*|.*") {
        thread_local!(static LOSSLESS: [Tokenizer; 4] = [
            TokenizerConfig::Byte,
            TokenizerConfig::Bpe { vocab_size: 300 },
            TokenizerConfig::SentenceBpe { vocab_size: 300 },
            TokenizerConfig::Unigram { vocab_size: 300 },
        ].map(trained));
        LOSSLESS.with(|all| for tokenizer in all {
            let ids = tokenizer.encode(&text).unwrap();
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
            assert_eq!(tokenizer.decode(&ids), text);
        });
    }
}
