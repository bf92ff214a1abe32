//! A model that has learnt nothing answers: the answers are noise, what it reads and keeps is not.

use burn::tensor::Device;
use firelight_core::{Init, ParamBuilder, WeightInit};
use firelight_data::TokenizerConfig;
use firelight_generation::{Constraint, Processing, StopReason};

use super::*;
use crate::LanguageModelConfig;

const TEMPLATE: &str = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}\
                        {% if add_generation_prompt %}<|assistant|>{% endif %}";

/// Tokens of the model's context.
const CONTEXT: usize = 64;

fn generator() -> TextGenerator {
    let tokenizer = Tokenizer::train(&TokenizerConfig::Char, "abcdefghijkl ").unwrap();
    let tokenizer = tokenizer.with_special_tokens(&["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]).unwrap();
    let wide = WeightInit { weight: Init::Normal { std: 0.4 }, scale_residual: false };
    let config = LanguageModelConfig::new(tokenizer.vocab_size(), 16, 2, 2).with_max_seq_len(CONTEXT);
    let config = config.with_transformer(|stack| stack.with_init(wide));
    TextGenerator::new(config.init_with(&ParamBuilder::new(&Device::default(), 0)), tokenizer)
}

fn template() -> ChatTemplate {
    ChatTemplate::new(TEMPLATE).unwrap()
}

fn options(max_new_tokens: usize) -> GenerationOptions {
    GenerationOptions::new(max_new_tokens).with_temperature(2.0).with_seed(1)
}

fn answered(chat: &mut ChatSession, options: &GenerationOptions) -> ChatAnswer {
    chat.answer(options, |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn what_was_read_of_a_conversation_changes_no_answer() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template()).with_system("be a fig");
    for (number, message) in ["a bad bee", "a lad"].into_iter().enumerate() {
        chat.push(message);
        let before = chat.messages().to_vec();
        let found = answered(&mut chat, &options(6));
        let mut fresh = ChatSession::new(&generator, template());
        fresh.set_messages(before);
        let expected = answered(&mut fresh, &options(6));
        assert_eq!((&found.generated, found.prompt_tokens), (&expected.generated, expected.prompt_tokens));
        assert_eq!(expected.read_tokens, expected.prompt_tokens);
        assert!(
            number == 0 || found.read_tokens + 22 <= found.prompt_tokens,
            "the first prompt is read once: {found:?}"
        );
        assert_eq!(chat.messages(), fresh.messages());
    }
    let roles: Vec<&str> = chat.messages().iter().map(|message| message.role.as_str()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert!(chat.prompt().unwrap().starts_with("<|system|>be a fig<|end|><|user|>a bad bee<|end|><|assistant|>"));
}

#[test]
fn an_answer_ends_with_the_token_that_the_template_writes_behind_it() {
    let generator = generator();
    let end = generator.tokenizer().special("<|end|>");
    assert_eq!(end_of_turn(&template(), generator.tokenizer()), end);
    let stopped = |seed| {
        let mut chat = ChatSession::new(&generator, template());
        chat.push("a");
        answered(&mut chat, &options(40).with_seed(seed)).generated.stop_reason
    };
    let ends = (0..8).map(stopped).filter(|&stopped| stopped == StopReason::StopToken(end.unwrap())).count();
    assert!(ends > 0);
    let plain = ChatTemplate::new("{% for m in messages %}{{ m.content }} {% endfor %}").unwrap();
    assert_eq!(end_of_turn(&plain, generator.tokenizer()), None);
    let refusing = ChatTemplate::new("{{ raise_exception('no') }}").unwrap();
    assert_eq!(end_of_turn(&refusing, generator.tokenizer()), None);
}

#[test]
fn the_oldest_exchanges_are_left_out_where_the_context_is_full() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template()).with_system("be");
    let mut left_out = 0;
    for _ in 0..6 {
        chat.push("a bad lad");
        let found = answered(&mut chat, &options(usize::MAX));
        assert!(found.context_tokens() <= CONTEXT && found.left_out >= left_out, "{found:?}");
        left_out = found.left_out;
    }
    assert!(left_out > 0 && chat.messages().len() == 13, "{left_out}");
    chat.push("a");
    let (ids, _) = chat.fitting(16).unwrap();
    assert!(ids.len() <= CONTEXT - 16);
    let read = generator.tokenizer().encode_with_special("<|system|>be<|end|><|user|>").unwrap();
    assert!(ids.starts_with(&read), "the system message stays: {ids:?}");
}

#[test]
fn a_message_beyond_the_context_is_refused_and_can_be_taken_back() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template());
    chat.push("a".repeat(60));
    assert_eq!(answered(&mut chat, &options(99)).prompt_tokens, 63);
    assert_eq!(chat.undo(), Some("a".repeat(60)));
    chat.push("a".repeat(61));
    let error = chat.answer(&options(9), |_| ControlFlow::Continue(())).unwrap_err();
    let expected = "the message has 64 tokens with its template, expected fewer than 64, the model's context; write a shorter message";
    assert!(error.is_user_error() && error.to_string() == expected, "{error}");
    assert_eq!((chat.undo(), chat.undo(), chat.messages().len()), (Some("a".repeat(61)), None, 0));
}

#[test]
fn an_answer_that_is_broken_off_is_kept_as_far_as_it_is_written() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template());
    chat.push("a");
    let mut written = String::new();
    let found = chat.answer(&options(40), |piece| {
        written += piece;
        ControlFlow::Break(())
    });
    let found = found.unwrap();
    assert_eq!(found.generated.stop_reason, StopReason::Caller);
    assert_eq!(chat.messages()[1], ChatMessage::new("assistant", written));
}

#[test]
fn an_answer_that_an_error_ends_is_kept_as_far_as_it_is_written() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template());
    chat.push("a");
    // No token twice: when all of them are used, none is left.
    let once = options(40).with_processing(Processing { no_repeat_ngram_size: 1, ..Processing::default() });
    let mut written = String::new();
    let error = chat.answer(&once, |piece| {
        written += piece;
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err();
    assert!(error.to_string().starts_with("no token is left to choose as new token"), "{error}");
    assert_eq!(chat.messages(), [ChatMessage::new("user", "a"), ChatMessage::new("assistant", written.clone())]);
    assert_eq!(written.chars().count(), "bcdefghijkl ".len(), "{written}");
    assert_eq!(chat.undo(), Some("a".into()));
}

#[test]
fn a_constrained_answer_that_is_broken_off_is_completed() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template());
    chat.push("a");
    let constraint = Constraint::regex("[a-g]{4,}(h|i)", generator.tokenizer()).unwrap();
    let rules = Processing { constraint: Some(constraint.clone()), ..Processing::default() };
    chat.answer(&options(40).with_processing(rules), |_| ControlFlow::Break(())).unwrap();
    let kept = &chat.messages()[1].content;
    assert!(constraint.accepts(kept) && kept.len() < 20, "{kept}");
}

#[test]
fn messages_are_taken_back_and_forgotten() {
    let generator = generator();
    let mut chat = ChatSession::new(&generator, template()).with_system("be");
    let refused = |chat: &mut ChatSession| chat.answer(&options(3), |_| ControlFlow::Continue(())).unwrap_err();
    assert!(refused(&mut chat).to_string().starts_with("there is no message to answer"));
    chat.push("a");
    let first = answered(&mut chat, &options(3));
    assert!(refused(&mut chat).is_user_error());
    assert_eq!((chat.take_answer(), chat.take_answer()), (Some(first.generated.text.clone()), None));
    assert_eq!(answered(&mut chat, &options(3)).generated, first.generated);
    chat.push("b");
    answered(&mut chat, &options(3));
    assert_eq!((chat.exchanges(), chat.undo(), chat.messages().len()), (2, Some("b".into()), 3));
    chat.set_system("bed");
    assert_eq!((chat.messages()[0].content.as_str(), chat.messages().len()), ("bed", 3));
    chat.clear();
    assert_eq!(chat.messages(), [ChatMessage::new("system", "bed")]);
    chat.set_system("");
    assert_eq!((chat.messages().len(), chat.undo()), (0, None));
}

#[test]
fn messages_are_lists_of_roles_and_contents_in_json() {
    let text = r#"[{"role":"user","content":"a"}]"#;
    let messages: Vec<ChatMessage> = serde_json::from_str(text).unwrap();
    assert_eq!((messages.len(), serde_json::to_string(&messages).unwrap()), (1, text.to_string()));
    let error = serde_json::from_str::<ChatMessage>(r#"{"role": "user", "content": "a", "name": "b"}"#).unwrap_err();
    assert!(error.to_string().contains("unknown field `name`"), "{error}");
}
