//! What a template is given.

use std::collections::BTreeMap;

use firelight_storage::{InputError, shortened_reason};
use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Deserialize;

/// Messages of several roles, and what a model is to know beside them.
#[derive(Clone, Debug, Deserialize)]
pub struct Conversation {
    pub(super) messages: Value,
    #[serde(default)]
    tools: Value,
    #[serde(default)]
    documents: Value,
    #[serde(default)]
    add_generation_prompt: bool,
    /// Variables of a template's own, such as `enable_thinking`.
    #[serde(flatten)]
    more: BTreeMap<String, Value>,
}

impl Conversation {
    /// Messages as pairs of role and content.
    pub fn new<'a>(messages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let message = |(role, content)| context! { role, content };
        Self::of(messages.into_iter().map(message).collect())
    }

    /// Reads JSON as Python programs have it: a list of messages, `[{"role": "user", "content": "Hello"}]`, or an object with `messages`,
    /// `tools`, `documents`, `add_generation_prompt` and variables of the template's own.
    ///
    /// ```
    /// use firelight_data::{ChatTemplate, Conversation};
    ///
    /// let text = r#"{"messages": [{"role": "user", "content": "Hello"}], "tools": [{"name": "clock"}]}"#;
    /// let template = ChatTemplate::new("{{ tools | tojson }} {{ messages[0].content }}").unwrap();
    /// assert_eq!(template.render(&Conversation::parse(text).unwrap()).unwrap(), r#"[{"name": "clock"}] Hello"#);
    /// ```
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let list = || serde_json::from_str::<Vec<Value>>(text).map(Self::of);
        let parsed = if text.trim_start().starts_with('[') { list() } else { serde_json::from_str(text) };
        parsed.map_err(|error| {
            let problem = format!("this is not a conversation: {}", shortened_reason(&error.to_string()));
            InputError::new(problem).advise(r#"give a list such as [{"role": "user", "content": "Hello"}]"#)
        })
    }

    /// Whether the text ends with the beginning of an answer, for the model to go on with. Default: false.
    pub fn with_generation_prompt(mut self, add: bool) -> Self {
        self.add_generation_prompt = add;
        self
    }

    /// A variable of the template's own, such as `enable_thinking`.
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.more.insert(name.into(), Value::from(Serde(value.into())));
        self
    }

    fn of(messages: Vec<Value>) -> Self {
        let (tools, documents) = (Value::from(()), Value::from(()));
        Self { messages: messages.into(), tools, documents, add_generation_prompt: false, more: BTreeMap::new() }
    }

    pub(super) fn has_tools(&self) -> bool {
        !self.tools.is_none() && !self.tools.is_undefined()
    }

    /// What is not there is none, not undefined: templates ask for the difference.
    pub(super) fn variables(&self) -> Value {
        let known = |value: &Value| if value.is_undefined() { Value::from(()) } else { value.clone() };
        context! {
            messages => self.messages.clone(),
            tools => known(&self.tools),
            documents => known(&self.documents),
            add_generation_prompt => self.add_generation_prompt,
            ..Value::from(Serde(&self.more))
        }
    }
}
