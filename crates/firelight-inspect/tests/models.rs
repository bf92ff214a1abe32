//! The maps of models are the weights that their passes noted, with the tokens that they are between.

use std::path::Path;

use burn::tensor::{Device, Int, Tensor, TensorData};
use firelight_classification::{Embedder, TextEncoderConfig, TextVocabulary};
use firelight_core::{Pass, SequenceInput, Trace, TransformerConfig, VisionTransformerConfig};
use firelight_data::{Image, ImageShape, Tokenizer, TokenizerConfig};
use firelight_inspect::{Asked, Attends, AttentionKind, AttentionMaps, TextModel, open, position_figure, stacks, text};
use firelight_language::{LanguageModelConfig, TextGenerator};
use firelight_seq2seq::{Seq2SeqConfig, Translator, Vocabulary};
use firelight_storage::{Checkpoint, Existing, ModelFolder, TaskError, save_weights};
use firelight_vision::{IMAGE_TEXT_TASK, ImageClassifier, ImageTextConfig, ImageTextMatcher, TASK, VisionConfig};

fn bytes() -> Tokenizer {
    Tokenizer::train(&TokenizerConfig::Byte, "").unwrap()
}

/// A language model over bytes that reads 16 of them.
fn generator() -> TextGenerator {
    let config = LanguageModelConfig::new(256, 16, 2, 2).with_max_seq_len(16);
    TextGenerator::new(config.init(&Device::default()), bytes())
}

fn rows_sum_to_one(maps: &AttentionMaps) -> bool {
    let rows = maps.maps().flat_map(|map| map.weights().chunks(maps.keys.len()));
    rows.into_iter().all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5)
}

fn letters(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

#[test]
fn a_language_model_shows_what_its_pass_noted() {
    let (generator, asked) = (generator(), Asked::about("the fox"));
    let found = generator.attention(&asked).unwrap();
    let [maps] = &found[..] else { panic!("one stack") };
    assert_eq!(
        (maps.kind, &maps.queries, &maps.keys),
        (AttentionKind::SelfAttention, &letters("the fox"), &maps.queries)
    );
    assert_eq!(maps.layers.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    assert!(rows_sum_to_one(maps));

    let ids: Vec<i32> = "the fox".bytes().map(i32::from).collect();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, 7]), &Device::default());
    let mut trace = Trace::default();
    generator.model().hidden(tokens, &SequenceInput::default(), &mut Pass::default().with_trace(&mut trace));
    assert_eq!(trace.layers.len(), 2);
    for (layer, heads) in trace.layers.iter().zip(&maps.layers) {
        let noted: Vec<f32> = layer.attention.clone().unwrap().try_into_vec_as().unwrap();
        assert_eq!(heads.iter().flat_map(|map| map.weights().to_vec()).collect::<Vec<_>>(), noted);
    }
    assert!(maps.maps().all(|map| map.at(0, 1) == 0.0 && map.at(0, 0) > 0.999), "no token reads the next one");
    assert!(text(&found).starts_with("self-attention, layer 1, mean of 2 heads\n"));
}

#[test]
fn generated_tokens_are_shown_alone_and_read_the_whole_text() {
    let generator = generator();
    let asked = Asked { generate: 3, ..Asked::about("the fox") };
    let maps = generator.attention(&asked).unwrap().remove(0);
    assert_eq!((maps.queries.len(), maps.keys.len(), &maps.keys[..7]), (3, 10, &letters("the fox")[..]));
    assert!(maps.queries == maps.keys[7..] && rows_sum_to_one(&maps));

    let long = |asked: Asked| generator.attention(&asked).unwrap_err().to_string();
    assert!(long(Asked::about("a text of 17 byte")).contains("the text has 17 tokens, but the model reads 16"));
    let more = long(Asked { generate: 10, ..Asked::about("the fox") });
    assert!(more.contains("17 tokens, but the model reads 16"), "{more}");
    assert!(long(Asked { target: Some("x".into()), ..Asked::about("a") }).contains("no cross-attention"));
    assert!(long(Asked::about("")).contains("is empty"));
}

#[test]
fn an_encoder_decoder_has_three_kinds() {
    let vocabulary = Vocabulary::new(None, bytes()).unwrap();
    let config = Seq2SeqConfig::new(258, 16, 2, 1).with_max_seq_len(12);
    let translator = Translator::new(config.init(&Device::default()), vocabulary);
    let asked = Asked { target: Some("cba".into()), ..Asked::about("ab") };
    let found = translator.attention(&asked).unwrap();
    let kinds: Vec<_> = found.iter().map(|maps| (maps.kind, maps.queries.len(), maps.keys.len())).collect();
    assert_eq!(kinds, [(AttentionKind::Encoder, 3, 3), (AttentionKind::Decoder, 4, 4), (AttentionKind::Cross, 4, 3)]);
    assert_eq!((&found[2].queries[1..], &found[2].keys[..2]), (&letters("cba")[..], &letters("ab")[..]));
    assert_eq!(found[2].keys[2], "</s>");
    assert!(found.iter().all(rows_sum_to_one));
    // Without a target, the greedy output, of which at most eleven tokens are read behind the first.
    let own = translator.attention(&Asked::about("ab")).unwrap();
    assert!(own[2].queries.len() <= 12 && own[2].keys.len() == 3);
}

#[test]
fn an_encoder_shows_texts_and_pairs_between_their_special_tokens() {
    let vocabulary = TextVocabulary::new(bytes()).unwrap();
    let encoder = TextEncoderConfig::bert(vocabulary.vocab_size(), 16, 2, 1).init(&Device::default());
    let embedder = Embedder::new(encoder, vocabulary);
    let tokens = |text: &str| embedder.attention(&Asked::about(text)).unwrap().remove(0);
    let maps = tokens("ab");
    assert_eq!(maps.queries, ["[CLS]", "a", "b", "[SEP]"]);
    assert!(rows_sum_to_one(&maps) && maps.maps().all(|map| map.at(0, 3) > 0.0), "it reads both ways");
    assert_eq!(tokens("ab\tc").queries, ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]);
    assert!(tokens("ab\tc").maps().all(|map| map.shape() == [6, 6]));
}

/// A run of two towers over characters, which read images of four patches and texts of six tokens.
fn towers(home: &Path) -> ModelFolder {
    let folder = ModelFolder::create(home.join("run"), Existing::Refuse).unwrap();
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefgh ").unwrap();
    let tokenizer = tokenizer.with_special_tokens(&["<s>", "</s>"]).unwrap();
    let [begin, end] = ["<s>", "</s>"].map(|token| tokenizer.special(token).unwrap());
    let tokenizer = tokenizer.with_frame(begin, end).unwrap().0;
    tokenizer.save(folder.tokenizer()).unwrap();
    let vit = VisionTransformerConfig::new(8, 4, 0, TransformerConfig::encoder(16, 2, 1));
    let text = TransformerConfig::new(8, 2, 2).with_max_seq_len(6);
    let config = ImageTextConfig::new(tokenizer.vocab_size(), vit, text).with_end_token(Some(end));
    folder.write_config(IMAGE_TEXT_TASK, &config).unwrap();
    save_weights(&config.init(&Device::default()), folder.weights_path(&Checkpoint::Last)).unwrap();
    folder
}

#[test]
fn a_model_of_two_towers_shows_those_that_are_given_something() {
    let (home, device) = (tempfile::tempdir().unwrap(), Device::default());
    let folder = towers(home.path());
    let model = open(folder.path(), &Checkpoint::Last, &device).unwrap();
    let image = Image::new(ImageShape::new(3, [8, 8]), (0..192).map(|pixel| pixel as u8).collect());
    let both = Asked { image: Some(image.clone()), ..Asked::about("abc") };
    let found = model.attention(&both).unwrap();
    let [of_image, of_text] = &found[..] else { panic!("two towers") };
    let picture = of_image.picture.as_ref().unwrap();
    assert_eq!((of_image.kind, of_image.layers.len()), (AttentionKind::Image, 1));
    assert_eq!((picture.grid, of_image.keys.len()), ([2, 2], picture.first + 4));
    assert_eq!((of_text.kind, of_text.layers.len()), (AttentionKind::Text, 2));
    assert_eq!(of_text.queries, ["<s>", "a", "b", "c", "</s>"]);
    assert!(found.iter().all(rows_sum_to_one));
    assert_eq!(&model.attention(&Asked::about("abc")).unwrap()[..], &found[1..]);
    assert_eq!(&model.attention(&Asked { image: Some(image), ..Asked::default() }).unwrap()[..], &found[..1]);

    let matcher = ImageTextMatcher::load_from(folder.path(), &Checkpoint::Last, &device).unwrap();
    let ids: Vec<i32> = matcher.encode("abc").unwrap().into_iter().map(|id| id as i32).collect();
    let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, 5]), &device);
    let mut trace = Trace::default();
    matcher.model().text.hidden(tokens, None, &mut Pass::default().with_trace(&mut trace));
    for (layer, heads) in trace.layers.iter().zip(&of_text.layers) {
        let noted: Vec<f32> = layer.attention.clone().unwrap().try_into_vec_as().unwrap();
        assert_eq!(heads.iter().flat_map(|map| map.weights().to_vec()).collect::<Vec<_>>(), noted);
    }
    assert!(of_text.maps().all(|map| map.at(0, 1) == 0.0), "no token of a text reads the next one");

    let message = |asked: Asked| model.attention(&asked).unwrap_err().to_string();
    assert!(message(Asked::default()).contains("a model of images and texts needs --image, --text or both"));
    let long = message(Asked::about("abcdef"));
    assert!(long.contains("8 tokens, but the model reads 6"), "{long}");
    let target = message(Asked { target: Some("a".into()), ..Asked::about("a") });
    assert!(target.contains("--target is not for a model of images and texts"), "{target}");
}

#[test]
fn a_run_of_images_is_opened_and_shows_its_patches_and_rollout() {
    let home = tempfile::tempdir().unwrap();
    let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap();
    let vit = VisionTransformerConfig::new(8, 4, 2, TransformerConfig::encoder(16, 2, 2));
    let config = VisionConfig::new(vec!["a".into(), "b".into()], vit);
    folder.write_config(TASK, &config).unwrap();
    let device = Device::default();
    save_weights(&config.init(&device), folder.weights_path(&Checkpoint::Last)).unwrap();

    let image = Image::new(ImageShape::new(3, [8, 8]), (0..192).map(|pixel| pixel as u8).collect());
    let asked = Asked { image: Some(image.clone()), ..Asked::default() };
    let maps = open(folder.path(), &Checkpoint::Last, &device).unwrap().attention(&asked).unwrap().remove(0);
    let picture = maps.picture.clone().unwrap();
    assert_eq!((picture.grid, maps.keys.len()), ([2, 2], picture.first + 4));
    assert_eq!(maps.keys.last().map(String::as_str), Some("2,2"));
    assert!(rows_sum_to_one(&maps));
    let rollout =
        ImageClassifier::load_from(folder.path(), &Checkpoint::Last, &device).unwrap().rollout(&image).unwrap();
    assert_eq!(picture.rollout, Some(rollout.shares));

    let text = open(folder.path(), &Checkpoint::Last, &device).unwrap().attention(&Asked::about("a")).unwrap_err();
    assert!(text.is_user_error() && text.to_string().contains("--text is not for a model of images"), "{text}");
    let found = stacks(folder.path(), &Checkpoint::Last, &device).unwrap();
    assert_eq!((found.len(), found[0].name, found[0].n_layers()), (1, "model", 2));
    let places = position_figure(&found, None, &device).unwrap();
    assert_eq!((places.maps.len(), places.maps[0].rows.len()), (2, maps.keys.len()));
    let long = position_figure(&found, Some(9), &device).unwrap_err().to_string();
    assert!(long.contains("--length = 9 is more than the"), "{long}");
}

#[test]
fn what_the_models_of_a_task_cannot_do_is_told_before_they_are_loaded() {
    let home = tempfile::tempdir().unwrap();
    let folder = ModelFolder::create(home.path().join("run"), Existing::Refuse).unwrap(); // Without weights.
    let told = |task: &str, asked: fn(&Path, &Checkpoint, &Device) -> Option<TaskError>| {
        let vit = VisionTransformerConfig::new(8, 4, 2, TransformerConfig::encoder(16, 2, 2));
        folder.write_config(task, &VisionConfig::new(vec!["a".into(), "b".into()], vit)).unwrap();
        asked(folder.path(), &Checkpoint::Last, &Device::default()).unwrap().to_string()
    };
    let attention = told("knitting", |folder, checkpoint, device| open(folder, checkpoint, device).err());
    let expected = "is of the task \"knitting\", whose attention cannot be shown; give a model of texts or of images";
    assert!(attention.ends_with(expected), "{attention}");
    let layers = told("knitting", |folder, checkpoint, device| stacks(folder, checkpoint, device).err());
    let expected = "is of the task \"knitting\", whose layers cannot be shown; give a model of texts or of images";
    assert!(layers.ends_with(expected), "{layers}");
    for task in ["knitting", TASK, IMAGE_TEXT_TASK] {
        let passes = told(task, |folder, checkpoint, device| TextModel::open(folder, checkpoint, device).err());
        let expected = format!(
            "is of the task \"{task}\", whose passes are not of one text; give a language model or a text encoder"
        );
        assert!(passes.ends_with(&expected), "{passes}");
    }
}
