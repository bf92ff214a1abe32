//! A conversation with a language model: messages become ids by the model's chat template, and what was read of one prompt is not read
//! again for the next.
//!
//! Where the prompt leaves too little of the context for an answer, the oldest exchanges are left out of it: a user's message and what
//! follows it up to the user's next one. The system message stays.

mod answer;

use std::ops::ControlFlow;
use std::time::Instant;

use firelight_data::{ChatTemplate, Conversation, Tokenizer};
use firelight_generation::{GeneratedText, GenerationError, GenerationOptions};
use firelight_storage::{InputError, TaskError};

pub use answer::{ChatAnswer, ChatMessage};

use crate::text_generator::{Past, TextGenerator};

const SYSTEM: &str = "system";
const USER: &str = "user";
const ASSISTANT: &str = "assistant";

/// The share of the context that is left to an answer, unless it may have fewer tokens.
const ANSWER_SHARE: usize = 4;

/// A conversation with a model, which it reads through its chat template.
///
/// ```
/// use std::ops::ControlFlow;
///
/// use burn::tensor::Device;
/// use firelight_data::{ChatTemplate, Tokenizer, TokenizerConfig};
/// use firelight_generation::GenerationOptions;
/// use firelight_language::{ChatSession, LanguageModelConfig, TextGenerator};
///
/// // A model that has learnt nothing; `TextGenerator::load` and `ChatTemplate::of_folder` read one that has.
/// let model = LanguageModelConfig::new(256, 16, 2, 1).with_max_seq_len(128).init(&Device::flex());
/// let generator = TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "").unwrap());
/// let template = ChatTemplate::new("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}").unwrap();
///
/// let mut chat = ChatSession::new(&generator, template).with_system("Be brief.");
/// for question in ["What is a hen?", "And a fox?"] {
///     chat.push(question);
///     let answer = chat.answer(&GenerationOptions::new(8), |piece| {
///         print!("{piece}");
///         ControlFlow::Continue(())
///     })?;
///     println!(" ({} tokens)", answer.generated.ids.len());
/// }
/// assert_eq!(chat.messages().len(), 5);
/// # Ok::<(), firelight_storage::TaskError>(())
/// ```
#[derive(Debug)]
pub struct ChatSession<'g> {
    generator: &'g TextGenerator,
    template: ChatTemplate,
    messages: Vec<ChatMessage>,
    end_of_turn: Option<u32>,
    past: Past,
}

impl<'g> ChatSession<'g> {
    /// A conversation in which nothing is said yet. An answer ends where the generator ends a text, and with the special token that
    /// the template writes behind an answer.
    pub fn new(generator: &'g TextGenerator, template: ChatTemplate) -> Self {
        let end_of_turn = end_of_turn(&template, generator.tokenizer());
        Self { generator, template, messages: Vec::new(), end_of_turn, past: Past::default() }
    }

    /// Sets the system message, as [`set_system`](Self::set_system).
    pub fn with_system(mut self, content: impl Into<String>) -> Self {
        self.set_system(content);
        self
    }

    /// Sets the system message, which stands in front of all others; an empty one is taken away.
    pub fn set_system(&mut self, content: impl Into<String>) {
        self.messages.drain(..self.behind_system());
        let message = ChatMessage::new(SYSTEM, content);
        if !message.content.is_empty() {
            self.messages.insert(0, message);
        }
    }

    /// Goes on with other messages, such as those of a conversation that was saved.
    pub fn set_messages(&mut self, messages: Vec<ChatMessage>) {
        self.messages = messages;
    }

    /// What was said so far.
    pub fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// The most tokens of a prompt and its answer.
    pub fn context(&self) -> usize {
        self.generator.model().max_seq_len()
    }

    /// How many messages are the user's.
    pub fn exchanges(&self) -> usize {
        self.messages.iter().filter(|message| message.role == USER).count()
    }

    /// Adds a message of the user.
    pub fn push(&mut self, content: impl Into<String>) {
        self.messages.push(ChatMessage::new(USER, content));
    }

    /// Answers the last message. `observe` gets the answer piece by piece as it comes, and may break it off: what was written until then is
    /// the answer. An answer under a constraint is then completed. An answer never outgrows the context.
    ///
    /// # Errors
    /// If there is no message to answer, the template refuses the conversation, or the last exchange alone is longer than the context;
    /// and as [`TextGenerator::generate`]. An error in the middle of an answer, which has
    /// [texts before it](GenerationError::texts_before), leaves what was written as the answer; after others the messages stay as they are.
    /// [`undo`](Self::undo) takes the last exchange back.
    pub fn answer(
        &mut self,
        options: &GenerationOptions,
        mut observe: impl FnMut(&str) -> ControlFlow<()>,
    ) -> Result<ChatAnswer, TaskError> {
        let (prompt, left_out) = self.fitting(options.max_new_tokens)?;
        let options = self.within(options, prompt.len());
        let (prompt_tokens, read_tokens) = (prompt.len(), self.unread(&prompt));
        let (begun, mut reading) = (Instant::now(), None);
        let generated = self.generator.generate_after(&mut self.past, prompt, &options, |piece| {
            reading.get_or_insert_with(|| begun.elapsed());
            observe(piece)
        });
        let generated = generated.inspect_err(|error| self.keep_part(GenerationError::texts_before(error)))?;
        let taken = begun.elapsed();
        let reading = reading.unwrap_or(taken);
        self.keep(std::slice::from_ref(&generated));
        Ok(ChatAnswer { generated, prompt_tokens, read_tokens, left_out, reading, writing: taken - reading })
    }

    /// Adds what was written before an error as the answer, if it is any text.
    fn keep_part(&mut self, written: &[GeneratedText]) {
        if written.iter().any(|answer| !answer.text.is_empty()) {
            self.keep(written);
        }
    }

    /// Adds what was written as the answer, if anything was.
    fn keep(&mut self, written: &[GeneratedText]) {
        self.messages.extend(written.first().map(|answer| ChatMessage::new(ASSISTANT, answer.text.clone())));
    }

    /// Takes the last answer back, for another one; none where the conversation does not end with one.
    pub fn take_answer(&mut self) -> Option<String> {
        Some(self.messages.pop_if(|message| message.role == ASSISTANT)?.content)
    }

    /// Takes the last exchange back and returns the user's message; none where there is none.
    pub fn undo(&mut self) -> Option<String> {
        let place = self.messages.iter().rposition(|message| message.role == USER)?;
        self.messages.drain(place..).next().map(|message| message.content)
    }

    /// Forgets the conversation; the system message stays.
    pub fn clear(&mut self) {
        self.messages.truncate(self.behind_system());
    }

    /// The text that the model reads of the whole conversation, with the special tokens spelt out.
    ///
    /// # Errors
    /// If the template refuses the conversation.
    pub fn prompt(&self) -> Result<String, TaskError> {
        Ok(self.template.render(&self.conversation(self.behind_system()))?)
    }

    /// The system message, and the others from one on. Its text ends with the beginning of an answer unless it ends with one.
    fn conversation(&self, from: usize) -> Conversation {
        let messages = self.messages[..self.behind_system()].iter().chain(&self.messages[from..]);
        let is_answered = self.messages.last().is_none_or(|message| message.role == ASSISTANT);
        Conversation::new(messages.map(|message| (message.role.as_str(), message.content.as_str())))
            .with_generation_prompt(!is_answered)
    }

    /// The ids of as many of the last exchanges as leave room for an answer, and how many others there are.
    fn fitting(&self, max_new_tokens: usize) -> Result<(Vec<u32>, usize), TaskError> {
        self.check_answerable()?;
        let context = self.context();
        let most = context - max_new_tokens.min(context / ANSWER_SHARE).max(1);
        let begins = self.begins();
        let mut tokens = 0;
        for (left_out, &from) in begins.iter().enumerate() {
            let ids = self.template.encode(&self.conversation(from), self.generator.tokenizer())?;
            let is_last = left_out + 1 == begins.len();
            if ids.len() <= if is_last { context - 1 } else { most } {
                return Ok((ids, left_out));
            }
            tokens = ids.len();
        }
        Err(too_long(tokens, context).into())
    }

    /// Where the prompt may begin behind the system message: there, and at each of the user's messages but the first.
    fn begins(&self) -> Vec<usize> {
        let first = self.behind_system();
        let users = (first..self.messages.len()).filter(|&place| self.messages[place].role == USER);
        std::iter::once(first).chain(users.skip(1)).collect()
    }

    fn check_answerable(&self) -> Result<(), InputError> {
        let last = self.messages[self.behind_system()..].last();
        if last.is_some_and(|message| message.role != ASSISTANT) { Ok(()) } else { Err(nothing_to_answer()) }
    }

    /// The options of an answer behind so many tokens.
    fn within(&self, options: &GenerationOptions, prompt_tokens: usize) -> GenerationOptions {
        let mut options = options.clone();
        let room = self.context() - prompt_tokens;
        options.max_new_tokens = options.max_new_tokens.min(room);
        options.stop_tokens.extend(self.end_of_turn);
        options
    }

    /// How many tokens of a prompt were not read before; the last one is read in any case, for its logits.
    fn unread(&self, prompt: &[u32]) -> usize {
        let read = self.past.ids().iter().zip(prompt).take_while(|(read, id)| read == id).count();
        (prompt.len() - read).max(1)
    }

    /// Where the messages behind the system message begin.
    fn behind_system(&self) -> usize {
        usize::from(self.messages.first().is_some_and(|message| message.role == SYSTEM))
    }
}

/// The special token that a template writes behind an answer, where it does.
fn end_of_turn(template: &ChatTemplate, tokenizer: &Tokenizer) -> Option<u32> {
    const ANSWER: &str = "answer";
    let text = template.render(&Conversation::new([(USER, "question"), (ASSISTANT, ANSWER)])).ok()?;
    let (_, behind) = text.rsplit_once(ANSWER)?;
    tokenizer.encode_with_special(behind).ok()?.into_iter().find(|&id| tokenizer.is_special(id))
}

fn nothing_to_answer() -> InputError {
    InputError::new("there is no message to answer: the conversation is empty, or ends with an answer")
        .advise("add a user message first")
}

fn too_long(tokens: usize, context: usize) -> InputError {
    let problem = format!(
        "the message has {tokens} tokens with its template, expected fewer than {context}, the model's context"
    );
    InputError::new(problem).advise("write a shorter message")
}

#[cfg(test)]
mod tests;
