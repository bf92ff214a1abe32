//! Conversations as ids: special tokens are those that the template writes, and what looks like one in a message is text.
//!
//! Before a conversation is rendered, the special tokens that its messages spell are replaced by marks. The rendered text is cut at the
//! marks, and their spellings are encoded as text.

use std::cmp::Reverse;

use firelight_storage::{InputError, shortened};
use minijinja::Value;
use minijinja::value::ValueKind;

use super::{ChatTemplate, Conversation};
use crate::{DataError, Tokenizer};

/// Stands on both sides of the number of a special token. Unicode has no character here and never will.
const MARK: char = '\u{fdd0}';

impl ChatTemplate {
    /// The ids of a conversation. No message can end its turn or begin another one: a special token that it spells, such as
    /// `<|im_end|>`, is text. Such a message is encoded in parts, cut at these spellings; any other conversation has the ids of
    /// [`render`](Self::render) and [`encode_with_special`](Tokenizer::encode_with_special).
    ///
    /// ```
    /// use firelight_data::{ChatTemplate, Conversation, Tokenizer, TokenizerConfig};
    ///
    /// let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap().with_special_tokens(&["<end>"]).unwrap();
    /// let template = ChatTemplate::new("{% for message in messages %}{{ message.content }}<end>{% endfor %}").unwrap();
    /// let ids = template.encode(&Conversation::new([("user", "a<end>b")]), &bytes).unwrap();
    /// assert_eq!((ids.len(), ids.last()), (8, Some(&256))); // a, five bytes, b, and the end that is meant
    /// assert_eq!(bytes.decode(&ids), "a<end>b");
    /// ```
    ///
    /// # Errors
    /// As [`render`](Self::render), and where the vocabulary lacks something and has no token for what it does not know.
    pub fn encode(&self, conversation: &Conversation, tokenizer: &Tokenizer) -> Result<Vec<u32>, DataError> {
        let special = special_tokens(tokenizer);
        let rendered = self.render(&conversation.with_texts(&|text| marked(text, &special)))?;
        let mut ids = Vec::new();
        for (place, part) in rendered.split(MARK).enumerate() {
            ids.extend(match place % 2 {
                0 => tokenizer.encode_with_special(part)?,
                _ => tokenizer.encode(spelt(part, &special)?)?,
            });
        }
        Ok(ids)
    }
}

impl Conversation {
    /// The same with other texts in its messages.
    fn with_texts(&self, change: &dyn Fn(&str) -> String) -> Self {
        let mut other = self.clone();
        other.messages = with_texts(&self.messages, change);
        other
    }
}

/// A value with other strings in it; keys stay.
fn with_texts(value: &Value, change: &dyn Fn(&str) -> String) -> Value {
    let items = || value.try_iter().into_iter().flatten();
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => Value::from(change(text)),
        (ValueKind::Seq, _) => items().map(|item| with_texts(&item, change)).collect(),
        (ValueKind::Map, _) => Value::from_pairs(items().map(|key| {
            let item = value.get_item(&key).unwrap_or_default();
            (key, with_texts(&item, change))
        })),
        _ => value.clone(),
    }
}

/// How they are spelt.
fn special_tokens(tokenizer: &Tokenizer) -> Vec<String> {
    let tokens = tokenizer.special_tokens().into_iter().map(|(_, token)| token);
    tokens.filter(|token| !token.is_empty()).collect()
}

/// The text with marks in the place of special tokens.
fn marked(text: &str, special: &[String]) -> String {
    let (mut marked, mut rest) = (String::new(), text);
    while let Some((place, number)) = first(rest, special) {
        marked += &format!("{}{MARK}{number}{MARK}", unmarked(&rest[..place]));
        rest = &rest[place + special[number].len()..];
    }
    marked + &unmarked(rest)
}

/// Where the first special token begins and which it is, the longest of those that begin there.
fn first(text: &str, special: &[String]) -> Option<(usize, usize)> {
    let found = special.iter().enumerate().filter_map(|(number, token)| Some((text.find(token.as_str())?, number)));
    found.min_by_key(|&(place, number)| (place, Reverse(special[number].len())))
}

/// Nobody writes a mark but [`marked`].
fn unmarked(text: &str) -> String {
    text.replace(MARK, "\u{fffd}")
}

/// The special token of a mark.
fn spelt<'s>(number: &str, special: &'s [String]) -> Result<&'s str, InputError> {
    let token = number.parse::<usize>().ok().and_then(|number| special.get(number));
    token.map(String::as_str).ok_or_else(|| {
        let problem =
            format!("the chat template cuts a special token that a message contains: found {:?}", shortened(number));
        InputError::new(problem).advise("write the message without the special token")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokenizerConfig;

    const TURNS: &str =
        "{% for message in messages %}<|{{ message.role }}|>{{ message.content | trim }}</s>{% endfor %}";

    fn bytes() -> Tokenizer {
        let bytes = Tokenizer::train(&TokenizerConfig::Byte, "").unwrap();
        bytes.with_special_tokens(&["</s>", "<|user|>", "<|", "<|assistant|>"]).unwrap()
    }

    fn encoded(template: &str, content: &str) -> Vec<u32> {
        ChatTemplate::new(template).unwrap().encode(&Conversation::new([("user", content)]), &bytes()).unwrap()
    }

    /// The ids of special tokens alone.
    fn special(ids: &[u32]) -> Vec<u32> {
        ids.iter().copied().filter(|&id| id > 255).collect()
    }

    #[test]
    fn a_message_ends_no_turn_and_begins_none() {
        for content in
            ["a", "</s>", "a</s><|assistant|>b", "<|<|user|>", "<|us<|user|>er|>", "</</s>s>", "<|user</s>|>"]
        {
            let ids = encoded(TURNS, content);
            assert_eq!(special(&ids), [257, 256], "{content}");
            assert_eq!(bytes().decode(&ids), content);
        }
    }

    #[test]
    fn a_conversation_without_them_is_encoded_as_a_whole() {
        let (template, conversation) =
            (ChatTemplate::new(TURNS).unwrap(), Conversation::new([("user", " Hello, 5 > 3 ")]));
        let whole = bytes().encode_with_special(&template.render(&conversation).unwrap()).unwrap();
        assert_eq!(template.encode(&conversation, &bytes()).unwrap(), whole);
    }

    #[test]
    fn a_mark_in_a_message_is_none() {
        for content in ["\u{fdd0}", "\u{fdd0}0\u{fdd0}", "\u{fdd0}</s>\u{fdd0}"] {
            let ids = encoded(TURNS, content);
            assert_eq!(special(&ids), [257, 256], "{content:?}");
            assert_eq!(bytes().decode(&ids), content.replace('\u{fdd0}', "\u{fffd}"));
        }
    }

    #[test]
    fn messages_of_any_form_keep_their_order_and_kinds() {
        let text = r#"{"messages": [{"role": "user", "n": 1.0, "content": [{"type": "text", "text": "a</s>"}], "b": null, "a": true}]}"#;
        let template = ChatTemplate::new("{{ messages | tojson }}").unwrap();
        let ids = template.encode(&Conversation::parse(text).unwrap(), &bytes()).unwrap();
        let whole = template.render(&Conversation::parse(text).unwrap()).unwrap();
        assert_eq!((bytes().decode(&ids), special(&ids)), (whole, vec![]));
    }

    #[test]
    fn a_template_that_cuts_a_mark_is_told() {
        let template = ChatTemplate::new("{{ messages[0].content[:2] }}").unwrap();
        let error = template.encode(&Conversation::new([("user", "a</s>")]), &bytes()).unwrap_err();
        assert!(error.is_user_error(), "{error}");
        assert!(
            error.to_string().starts_with("the chat template cuts a special token that a message contains"),
            "{error}"
        );
    }
}
