//! `firelight chat`: a conversation with a language model in the terminal, by the model's chat template.

mod failures;
mod input;
mod order;
mod talk;

use std::path::{Path, PathBuf};

use anyhow::Result;
use firelight::data::{ChatTemplate, DataError, SpecialRole, Tokenizer, read_text};
use firelight::generation::GenerationOptions;
use firelight::language::ChatSession;
use firelight::storage::InputError;

use super::cache_type::KvCache;
use super::precision::ComputeIn;
use super::restricting::Restrictions;
use super::sampling::Sampling;
use super::trained_model::TrainedModel;
use crate::failure::Mistake;
use crate::interruption::Breakable;
use input::Input;
use talk::Talk;

const EXAMPLES: &str = "\
Examples:
  firelight chat Qwen/Qwen2.5-0.5B-Instruct
  firelight chat Qwen/Qwen2.5-0.5B-Instruct --system \"Answer in one sentence.\" --temperature 0.7 --seed 7
  firelight chat runs/chat-1 --template chatml.jinja --max-new-tokens 200
  printf 'What is a hen?\\nAnd a fox?\\n' | firelight chat runs/chat-1 --greedy > answers.txt

A line is a message; one that ends with a backslash goes on in the next line, and so does all between two lines of three double quotes. \
/help lists the commands of a conversation. Ctrl-C stops an answer, and pressed again at once it ends the program. Each line of a standard \
input that is no terminal is a message; where one of them fails the others are answered, and the exit code at the end is that of the first \
failure.";

/// Talk with a language model by its chat template
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Chat {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    compute: ComputeIn,
    /// System message, which says how the model is to answer
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// File with a chat template in Jinja, in the place of the model's own
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// The most tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_new_tokens: usize,
    #[command(flatten)]
    kv_cache: KvCache,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    restrictions: Restrictions,
}

impl Chat {
    pub(crate) fn run(self) -> Result<()> {
        self.options(&self.sampling)?; // before anything is read
        self.model.is_for("chat")?;
        let template = self.template()?;
        let generator = self.kv_cache.apply(self.compute.load(&self.model)?)?;
        let template = match &self.template {
            Some(_) => with_tokens(template, generator.tokenizer()),
            None => template,
        };
        let sampling = self.sampling.clone();
        let mut options = self.options(&match generator.defaults() {
            Some(defaults) => sampling.with_defaults(defaults),
            None => sampling,
        })?;
        self.restrictions.add_to(&mut options.processing, generator.tokenizer(), "", self.max_new_tokens)?;
        self.sampling.penalties().repetitions.add_breakers(&mut options.processing, generator.tokenizer())?;
        options.validate()?;
        let session = ChatSession::new(&generator, template).with_system(self.system.unwrap_or_default());
        let talk = Talk::new(session, options, Breakable::listen()?);
        self.compute.within(|| talk.run(Input::new()?))
    }

    fn options(&self, sampling: &Sampling) -> Result<GenerationOptions> {
        let options = sampling.options(self.max_new_tokens);
        options.validate()?;
        Ok(options)
    }

    /// The template of the command line, or the model's own.
    fn template(&self) -> Result<ChatTemplate> {
        match &self.template {
            Some(path) => template_in(path),
            None => {
                let run = self.model.run_dir()?;
                ChatTemplate::of_folder(run)?.ok_or_else(|| without_template(run).into())
            }
        }
    }
}

fn template_in(path: &Path) -> Result<ChatTemplate> {
    let refused = |error: DataError| {
        InputError::in_file(path, format!("cannot be used: {error}")).advise("give a valid Jinja template")
    };
    Ok(ChatTemplate::new(read_text(path)?).map_err(refused)?)
}

/// The template with the tokens that the tokenizer has for their names, such as `eos_token`.
fn with_tokens(template: ChatTemplate, tokenizer: &Tokenizer) -> ChatTemplate {
    let token = |role: SpecialRole| Some((role.key(), tokenizer.token(tokenizer.role(role)?)?));
    let tokens = SpecialRole::ALL.into_iter().filter_map(token);
    tokens.fold(template, |template, (name, token)| template.with_token(name, token))
}

fn without_template(run: &Path) -> Mistake {
    Mistake(format!(
        "`{run}` has no chat template, so that it cannot read a conversation: give the template that it was trained with by --template \
         FILE, or continue a text with `firelight generate {run}`",
        run = run.display()
    ))
}
