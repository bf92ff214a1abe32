//! Chat templates: the Jinja programs, published beside a model, that turn a conversation into the one text that the model was trained
//! on. They run as `transformers` runs them: `apply_chat_template` of its tokenizers, with Jinja's `trim_blocks` and `lstrip_blocks`.
//!
//! Source: <https://huggingface.co/docs/transformers/chat_templating>.

mod conversation;
mod encoding;
mod functions;
mod json;
mod tokens;

use std::path::{Path, PathBuf};

use firelight_storage::{InputError, read_json, read_text_file, shortened_reason, write_atomic};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde_json::{Value as Json, json};

pub use conversation::Conversation;
use tokens::Tokens;

use crate::DataError;

const TEMPLATE: &str = "chat_template.jinja";
const TOOL_TEMPLATE: &str = "chat_template.tool_use.jinja";
const PUBLISHED_TOOL_TEMPLATE: &str = "additional_chat_templates/tool_use.jinja";
const CONFIG: &str = "tokenizer_config.json";

/// The names of the two templates that a model may have, as `transformers` calls them.
const DEFAULT: &str = "default";
const TOOL_USE: &str = "tool_use";

/// No template is larger, in bytes.
const LIMIT: u64 = 1 << 22;

/// What one rendering may cost, in steps of a template and pieces of 64 bytes; long conversations take thousands.
const FUEL: u64 = 20_000_000;

/// Turns conversations into text, as one model has learnt to read them.
///
/// ```
/// use firelight_data::{ChatTemplate, Conversation};
///
/// let template = "{% for message in messages %}<|{{ message.role }}|>{{ message.content | trim }}{{ eos_token }}{% endfor %}";
/// let template = ChatTemplate::new(template).unwrap().with_token("eos_token", "</s>");
/// let text = template.render(&Conversation::new([("user", " Hello "), ("assistant", "Hi!")])).unwrap();
/// assert_eq!(text, "<|user|>Hello</s><|assistant|>Hi!</s>");
/// ```
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    jinja: Environment<'static>,
    template: String,
    /// What is rendered where there are tools.
    tool_use: Option<String>,
    tokens: Tokens,
}

impl ChatTemplate {
    /// A template.
    ///
    /// # Errors
    /// If it is no Jinja.
    pub fn new(template: impl Into<String>) -> Result<Self, DataError> {
        let mut found =
            Self { jinja: environment()?, template: template.into(), tool_use: None, tokens: Tokens::default() };
        found.add(DEFAULT, found.template.clone()).map_err(|error| InputError::new(wrong(&error)))?;
        Ok(found)
    }

    /// Another template for conversations with tools.
    ///
    /// # Errors
    /// If it is no Jinja.
    pub fn with_tool_use(mut self, template: impl Into<String>) -> Result<Self, DataError> {
        let template = template.into();
        self.add(TOOL_USE, template.clone()).map_err(|error| InputError::new(wrong(&error)))?;
        Ok(Self { tool_use: Some(template), ..self })
    }

    /// A token that the template calls by a name, such as `bos_token`.
    pub fn with_token(mut self, name: impl Into<String>, token: impl Into<String>) -> Self {
        self.tokens.insert(name.into(), token.into());
        self
    }

    /// The template of a folder, a published one or that of a run: `chat_template.jinja`, else what `tokenizer_config.json` says; none
    /// where it has neither.
    ///
    /// # Errors
    /// If a file cannot be read, or a template is no Jinja.
    pub fn of_folder(folder: impl AsRef<Path>) -> Result<Option<Self>, DataError> {
        let folder = folder.as_ref();
        let config = match folder.join(CONFIG) {
            path if path.is_file() => read_json(&path, LIMIT)?,
            _ => Json::Null,
        };
        let of_config = |name: &str| of_config(&config["chat_template"], name);
        let of_config = |name: &str| Some((folder.join(CONFIG), of_config(name)?));
        let template = of_file(folder, &[TEMPLATE])?.or_else(|| of_config(DEFAULT));
        let tool_use = of_file(folder, &[TOOL_TEMPLATE, PUBLISHED_TOOL_TEMPLATE])?.or_else(|| of_config(TOOL_USE));
        let Some((path, template)) = template else { return Ok(None) };
        let refused = |path: &Path, error: DataError| {
            InputError::in_file(path, format!("cannot be used: {error}")).advise("give a valid Jinja template")
        };
        let mut found = Self::new(template).map_err(|error| refused(&path, error))?;
        if let Some((path, tool_use)) = tool_use {
            found = found.with_tool_use(tool_use).map_err(|error| refused(&path, error))?;
        }
        found.tokens = tokens::of_folder(folder, &config)?;
        Ok(Some(found))
    }

    /// Writes `chat_template.jinja`, a template for tools beside it, and the tokens that they name into `tokenizer_config.json`.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<(), DataError> {
        let folder = folder.as_ref();
        write_atomic(folder.join(TEMPLATE), &self.template)?;
        if let Some(tool_use) = &self.tool_use {
            write_atomic(folder.join(TOOL_TEMPLATE), tool_use)?;
        }
        Ok(write_atomic(folder.join(CONFIG), format!("{:#}\n", json!(self.tokens)))?)
    }

    /// The template, as it was given.
    pub fn text(&self) -> &str {
        &self.template
    }

    /// The template for conversations with tools, where there is one.
    pub fn tool_use(&self) -> Option<&str> {
        self.tool_use.as_deref()
    }

    /// The tokens that it calls by a name, such as `bos_token`.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tokens.iter().map(|(name, token)| (name.as_str(), token.as_str()))
    }

    /// Writes the templates alone, where `transformers` looks for them.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn publish(&self, folder: impl AsRef<Path>) -> Result<(), DataError> {
        let folder = folder.as_ref();
        write_atomic(folder.join(TEMPLATE), &self.template)?;
        match &self.tool_use {
            Some(tool_use) => Ok(write_atomic(folder.join(PUBLISHED_TOOL_TEMPLATE), tool_use)?),
            None => Ok(()),
        }
    }

    /// The text of a conversation, with the special tokens spelt out, those that a message spells among them: [`encode`](Self::encode) tells
    /// them apart.
    ///
    /// # Errors
    /// If the template refuses the conversation, such as for roles that do not alternate, or fails, or does not end.
    pub fn render(&self, conversation: &Conversation) -> Result<String, DataError> {
        let name = if self.tool_use.is_some() && conversation.has_tools() { TOOL_USE } else { DEFAULT };
        let variables = context! { ..conversation.variables(), ..Value::from(Serde(&self.tokens)) };
        let rendered = self.jinja.get_template(name).and_then(|template| template.render(variables));
        Ok(rendered.map_err(|error| refused(&error))?)
    }

    fn add(&mut self, name: &'static str, template: String) -> Result<(), Error> {
        self.jinja.add_template_owned(name, functions::without_generation(&template))
    }
}

/// Jinja as `transformers` sets it up.
fn environment() -> Result<Environment<'static>, DataError> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    let syntax = syntax.map_err(|error| DataError::Tokenizer { reason: error.to_string() })?;
    let mut jinja = Environment::new();
    jinja.set_syntax(syntax);
    jinja.set_fuel(Some(FUEL));
    jinja.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    jinja.set_unknown_method_callback(unknown_method_callback);
    functions::add(&mut jinja);
    Ok(jinja)
}

/// The first file that is there, and its text.
fn of_file(folder: &Path, names: &[&str]) -> Result<Option<(PathBuf, String)>, DataError> {
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let read = |path: PathBuf| read_text_file(&path, LIMIT).map(|text| (path, text));
    Ok(found.map(read).transpose()?)
}

/// `chat_template` of `tokenizer_config.json`: one, or a list of them with names.
fn of_config(templates: &Json, name: &str) -> Option<String> {
    let named = || templates.as_array()?.iter().find(|it| it["name"] == name)?["template"].as_str();
    let single = templates.as_str().filter(|_| name == DEFAULT);
    single.or_else(named).map(Into::into)
}

fn wrong(error: &Error) -> String {
    let line = error.line().map_or(String::new(), |line| format!(" in line {line}"));
    format!("the chat template has an error{line}: {}", reason(error))
}

fn refused(error: &Error) -> InputError {
    match error.kind() {
        ErrorKind::OutOfFuel => InputError::new("the chat template does not terminate").advise("shorten its loops"),
        _ => InputError::new(format!("the chat template rejects the conversation: {}", reason(error)))
            .advise("check the roles of the messages and their order"),
    }
}

fn reason(error: &Error) -> String {
    let detail = error.detail().map_or_else(|| error.kind().to_string(), Into::into);
    shortened_reason(&detail).to_string()
}

#[cfg(test)]
mod tests;
