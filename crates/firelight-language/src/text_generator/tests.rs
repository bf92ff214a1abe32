use super::*;
use firelight_core::{Init, ParamBuilder, WeightInit};
use firelight_data::TokenizerConfig;
use firelight_generation::StopReason;
use firelight_storage::{Existing, save_weights};

pub(super) fn config() -> LanguageModelConfig {
    let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
    let config = LanguageModelConfig::new(9, 16, 2, 2).with_max_seq_len(12);
    config.with_transformer(|stack| stack.with_init(wide))
}

pub(super) fn generator() -> TextGenerator {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
    TextGenerator::new(config().init_with(&ParamBuilder::new(&Device::default(), 0)), tokenizer)
}

#[test]
fn a_text_comes_in_pieces_until_the_caller_has_enough() {
    let (generator, options) = (generator(), GenerationOptions::new(20).with_seed(3));
    let whole = generator.generate("abc", &options).unwrap();
    let streamed = |most: usize| {
        let mut pieces = Vec::new();
        let found = generator.generate_streaming("abc", &options, |piece| {
            pieces.push(piece.to_string());
            if pieces.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        (found.unwrap(), pieces)
    };
    let (found, pieces) = streamed(usize::MAX);
    assert_eq!((pieces.len(), pieces.concat(), &found), (20, whole.text.clone(), &whole));
    let (found, pieces) = streamed(4);
    assert_eq!((found.stop_reason, &found.ids[..]), (StopReason::Caller, &whole.ids[..4]));
    assert_eq!(pieces.concat(), found.text);
}

#[test]
fn a_model_loaded_in_half_precision_is_one_that_was_rounded() {
    let home = tempfile::tempdir().unwrap();
    let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
    let device = Device::flex(); // Others may lack this type.
    let model = config().init_with(&ParamBuilder::new(&device, 0));
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
    folder.write_config(crate::TASK, &config()).unwrap();
    tokenizer.save(folder.tokenizer()).unwrap();
    save_weights(&model, folder.weights_path(&Checkpoint::Last)).unwrap();

    let loaded = TextGenerator::load_in(folder.path(), &Checkpoint::Last, &device, FloatDType::BF16).unwrap();
    assert_eq!(loaded.model().embedding.weight.val().dtype(), FloatDType::BF16.into());
    let options = GenerationOptions::new(20).with_temperature(1.0).with_seed(2);
    let rounded = TextGenerator::new(model.cast(FloatDType::BF16), tokenizer);
    assert_eq!(loaded.generate("abc", &options).unwrap(), rounded.generate("abc", &options).unwrap());
}

#[test]
fn a_text_that_goes_on_is_read_from_where_it_differs() {
    let (generator, options) = (generator(), GenerationOptions::new(4).with_temperature(1.0).with_seed(5));
    let mut past = Past::default();
    for prompt in ["abc", "abcd", "ab", "hgf"] {
        let ids = generator.tokenizer().encode(prompt).unwrap();
        let again = generator.generate_after(&mut past, ids, &options, |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(again, generator.generate(prompt, &options).unwrap());
        assert_eq!(past.ids().len(), prompt.len() + 3);
    }
    assert!(generator.generate_after(&mut past, vec![99], &options, |_| ControlFlow::Continue(())).is_err());
    assert!(past.ids().is_empty(), "what failed is not kept");
}

#[test]
fn a_model_may_know_more_ids_than_its_tokenizer() {
    let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abc").unwrap();
    let (generator, options) = (TextGenerator::new(model, tokenizer), GenerationOptions::new(20).with_temperature(2.0));
    let found = generator.generate_samples("ab", 3, &options).unwrap();
    assert!(found.iter().all(|sample| sample.text.len() == 20 && sample.ids.iter().all(|&id| id < 3)), "{found:?}");
    assert_eq!(generator.without_cache().generate("ab", &options).unwrap(), found[0]);
}

#[test]
fn a_text_ends_with_the_token_for_its_end() {
    let model = config().init_with(&ParamBuilder::new(&Device::default(), 0));
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh").unwrap();
    let tokenizer = tokenizer.with_special_tokens(&["</s>"]).unwrap();
    let (generator, options) = (TextGenerator::new(model, tokenizer), GenerationOptions::new(99).with_temperature(2.0));
    let found = generator.generate("ab", &options).unwrap();
    assert_eq!((found.stop_reason, found.ids.contains(&8)), (StopReason::StopToken(8), false));
}

#[test]
fn a_published_model_ends_where_its_makers_say_and_begins_with_the_frame() {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdef").unwrap().with_special_tokens(&["<s>", "</s>"]);
    let tokenizer = tokenizer.unwrap().with_frame(6, 7).unwrap().0;
    let model = || config().init_with(&ParamBuilder::new(&Device::default(), 0));
    let options = GenerationOptions::new(99).with_temperature(2.0);
    let generated = |generator: &TextGenerator, prompt| generator.generate(prompt, &options).unwrap();
    let (plain, published) = (
        TextGenerator::new(model(), tokenizer.clone()),
        TextGenerator::new(model(), tokenizer)
            .with_defaults(serde_json::from_str(r#"{"eos_token_id": [0, 1, 2], "suppress_tokens": [3]}"#).unwrap()),
    );
    let found = generated(&published, "ab");
    assert!(matches!(found.stop_reason, StopReason::StopToken(id) if [0, 1, 2, 7].contains(&id)), "{found:?}");
    assert!(found.ids.iter().all(|id| [4, 5, 6].contains(id)), "{found:?}");
    let fronts = [&plain, &published].map(|generator| generator.read("ab").unwrap().0.remove(0));
    assert_eq!(fronts, [vec![0, 1], vec![6, 0, 1]]);
    assert_eq!([&plain, &published].map(TextGenerator::kept), [0, 1], "in a text that slides");
}

#[test]
fn a_prompt_that_cannot_be_read_is_refused() {
    let (generator, options) = (generator(), GenerationOptions::new(3));
    for (prompt, expected) in [("", "the prompt is empty"), ("abz", "the character 'z' at position 2")] {
        let error = generator.generate_samples(prompt, 2, &options).unwrap_err();
        assert!(error.is_user_error() && error.to_string().starts_with(expected), "{error}");
        assert_eq!(generator.generate(prompt, &options).unwrap_err().to_string(), error.to_string());
    }
}

#[test]
fn a_model_comes_back_from_its_folder_and_lacks_nothing_that_changes_a_text() {
    let home = tempfile::tempdir().unwrap();
    let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
    let (before, options) = (generator(), GenerationOptions::new(20).greedy());
    before.tokenizer().save(folder.tokenizer()).unwrap();
    folder.write_config(crate::TASK, &config()).unwrap();
    save_weights(before.model(), folder.weights_path(&Checkpoint::Last)).unwrap();
    let load = || TextGenerator::load_from(folder.path(), &Checkpoint::Last, &Device::default());
    assert_eq!(load().unwrap().generate("abc", &options).unwrap(), before.generate("abc", &options).unwrap());

    let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.config()).unwrap()).unwrap();
    for (part, key) in [("", "tied"), ("/transformer", "norm"), ("/transformer", "position")] {
        let mut fields = whole.clone();
        fields.pointer_mut(part).and_then(|part| part.as_object_mut()).unwrap().remove(key).unwrap();
        std::fs::write(folder.config(), fields.to_string()).unwrap();
        let text = load().unwrap_err().to_string();
        let path = format!("{part}/{key}")[1..].replace('/', ".");
        assert!(text.contains("config.json`") && text.contains(&format!("missing field `{path}`")), "{text}");
    }
}

#[test]
fn a_cache_of_a_type_writes_each_text_as_it_does_alone_and_without_guesses() {
    let options = GenerationOptions::new(9).greedy();
    for cache_type in [CacheType::F32, CacheType::Q8_0] {
        let typed = || generator().with_cache_type(cache_type).unwrap();
        let alone = |prompt: &str| typed().generate(prompt, &options).unwrap();
        let prompts = ["ab", "abc", "abcabc"];
        let found = typed().generate_each(&prompts, &options);
        assert_eq!(found.into_iter().map(Result::unwrap).collect::<Vec<_>>(), prompts.map(alone));
        let guessing = typed().with_lookup(firelight_generation::PromptLookup::default());
        assert_eq!(guessing.generate("abcabc", &options).unwrap(), alone("abcabc"));
        assert_eq!(alone("abc").ids.len(), 9);
    }
    let plain = generator().generate("abc", &options).unwrap();
    assert_eq!(generator().with_cache_type(CacheType::F32).unwrap().generate("abc", &options).unwrap(), plain);
}

#[test]
fn a_cache_is_compressed_or_has_a_type() {
    let compression = Compression { recent: 3, rate: 2 };
    let refused = [
        generator().with_compression(compression).unwrap().with_cache_type(CacheType::Q8_0),
        generator().with_cache_type(CacheType::Q8_0).unwrap().with_compression(compression),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(
            error.is_user_error() && error.to_string().contains("leave out the compression or the cache type"),
            "{error}"
        );
    }
}

#[test]
fn a_compressed_past_writes_each_text_as_it_does_alone_and_without_guesses() {
    let compressed = || generator().with_compression(Compression { recent: 3, rate: 2 }).unwrap();
    let options = GenerationOptions::new(9).greedy();
    let alone = |prompt: &str| compressed().generate(prompt, &options).unwrap();
    // Of one length they are read together, of several lengths one by one.
    for prompts in [["abc", "cab", "bca"], ["ab", "abc", "abcabc"]] {
        let found = compressed().generate_each(&prompts, &options);
        assert_eq!(found.into_iter().map(Result::unwrap).collect::<Vec<_>>(), prompts.map(alone));
    }
    let guessing = compressed().with_lookup(firelight_generation::PromptLookup::default());
    assert_eq!(guessing.generate("abcabc", &options).unwrap(), alone("abcabc"));
    let error = generator().with_compression(Compression { recent: 0, rate: 2 }).unwrap_err();
    assert!(
        error.is_user_error() && error.to_string().contains("compression.recent = 0 must be at least 1"),
        "{error}"
    );
}
