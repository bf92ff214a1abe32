//! `firelight translate`: lines in, translations out, as many and in the same order.

use anyhow::{Error, Result, bail, ensure};
use firelight::generation::{Autoregressive, BeamOptions, GenerationDefaults};
use firelight::seq2seq::{AlignedTokens, Draws, TranslateOptions, Translation, Translator};
use firelight::storage::TaskError;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::ending::{Ends, logprobs};
use super::guessing::Guesses;
use super::restricting::Restrictions;
use super::sampling::Sampling;
use super::searching::Search;
use super::sheet::{Sheet, Tally};
use super::text_input::TextInput;
use super::texts::Texts;
use super::trained_model::{TrainedModel, beside};
use crate::failure::{Mistake, is_user_error};
use crate::{output, ranks};

const EXAMPLES: &str = "\
Examples:
  firelight translate runs/dates-1 --text \"3rd of March 1997\"
  firelight translate runs/multi30k-de-en-1 --file captions.de --beams 8 > captions.en
  firelight translate runs/dates-1 --text \"7 July 2021\" --n-best 3 --alignment --json
  firelight translate runs/multi30k-de-en-1 --file stories.de --sentences > stories.en
  firelight translate runs/dates-1 --file dates.txt --beams 1 --prompt-lookup
  firelight translate runs/large --file captions.de --beams 1 --draft runs/small
  firelight translate runs/large --file captions.en --temperature 1 --top-p 0.9 --seed 7 > drawn.de
  firelight translate runs/dates-1 --file dates.txt --regex \"[0-9]{4}-[0-9]{2}-[0-9]{2}\"

An option that chooses tokens, such as --temperature, writes each translation token by token in the place of the search.

A line that cannot be translated, such as one with a character that the model does not know, gives an empty line and a \
message; the others are translated, and the exit code is 2.";

/// Translate lines with a trained encoder-decoder; without --file and --text, those of the standard input
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(mut_arg("file", |arg| arg.help("File of lines to translate")))]
#[command(mut_arg("text", |arg| arg.help("Text to translate; may hold several lines")))]
pub(crate) struct Translate {
    #[command(flatten)]
    model: TrainedModel,
    #[command(flatten)]
    input: TextInput,
    #[command(flatten)]
    ends: Ends,
    #[command(flatten)]
    search: Search,
    #[command(flatten)]
    restrictions: Restrictions,
    #[command(flatten)]
    guesses: Guesses,
    /// Translate each line sentence by sentence, and join the translations with spaces
    #[arg(long, conflicts_with_all = ["alignment", "n_best", "prefix", "constraint"])]
    sentences: bool,
    /// Cut lines that are too long for the model, which are an error otherwise
    #[arg(long)]
    truncate: bool,
    /// Translate at most N lines together: fewer take less memory and more time
    #[arg(long, value_name = "N", default_value_t = u32::MAX, hide_default_value = true,
        conflicts_with_all = ["draft", "prompt_lookup"], value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Print the source token that each target token attended to most, as places SOURCE-TARGET after a tab
    #[arg(long)]
    alignment: bool,
    /// Print one line of JSON for each line: the source and its translations with their scores
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "How tokens are chosen")]
    sampling: Sampling,
}

/// A translation, and which tokens belong together, where that was asked for.
struct Found {
    translation: Translation,
    alignment: Option<Vec<AlignedTokens>>,
    /// The log-probabilities of its tokens, for JSON.
    logprobs: Option<Value>,
}

impl Translate {
    pub(crate) fn run(self) -> Result<()> {
        self.check()?;
        self.model.is_for("translate")?;
        let texts = self.input.lines()?;
        let mut texts = if self.guesses.given().is_some() { texts.one_by_one() } else { texts };
        let Tally { lines, failed } = self.translate_all(&self.translator()?, &mut texts)?;
        ensure!(failed == 0, Mistake(format!("{failed} of {lines} lines could not be translated, see above")));
        Ok(())
    }

    /// Refuses options of a search beside those of a choice token by token, and a seed where nothing is drawn.
    fn check(&self) -> Result<()> {
        let Some(chosen) = self.sampling.given() else {
            let problem = "--seed is for draws, not for a search: add a sampling option, such as --temperature 1";
            ensure!(!self.sampling.has_seed(), Mistake(problem.into()));
            return Ok(());
        };
        let clash = |option: &str| Mistake(format!("{chosen} cannot be used with {option}: remove one of the two"));
        ensure!(!self.search.is_wanted(), clash("--beams"));
        match self.search.given() {
            Some(option) => bail!(clash(option)),
            None => Ok(()),
        }
    }

    fn translator(&self) -> Result<Translator> {
        let translator = self.model.load(Translator::load_from)?;
        if let Some(draft) = &self.guesses.draft {
            let draft = beside(draft, &translator.model().device(), Translator::load_from)?;
            return Ok(translator.with_draft(draft, self.guesses.draft_tokens())?);
        }
        Ok(match self.guesses.lookup() {
            Some(lookup) => translator.with_lookup(lookup),
            None => translator,
        })
    }

    /// The options with what the model's makers say, without restrictions.
    fn options(&self, defaults: &GenerationDefaults) -> TranslateOptions {
        let options = match self.sampling.given() {
            Some(_) => self.token_by_token(defaults),
            None => self.searched(defaults),
        };
        TranslateOptions {
            sentences: self.sentences,
            truncate: self.truncate,
            batch: self.batch as usize,
            max_new_tokens: self.ends.max_new_tokens,
            stop_strings: self.ends.stop.clone(),
            logprobs: self.ends.logprobs,
            ..options
        }
    }

    fn token_by_token(&self, defaults: &GenerationDefaults) -> TranslateOptions {
        let chosen = self.sampling.clone().with_defaults(defaults);
        let draws = chosen.random().map(|sampling| Draws { sampling, seed: chosen.seed() });
        TranslateOptions { draws, processing: chosen.processing(), ..TranslateOptions::greedy() }
    }

    fn searched(&self, defaults: &GenerationDefaults) -> TranslateOptions {
        let usual = BeamOptions::new(1).with_beams(TranslateOptions::default().beams);
        let search = self.search.with_defaults(usual, self.sampling.penalties(), defaults);
        TranslateOptions {
            beams: search.beams,
            length_penalty: search.length_penalty,
            n_best: search.n_best,
            groups: search.groups,
            diversity_penalty: search.diversity_penalty,
            early_stopping: search.early_stopping,
            processing: search.processing,
            ..TranslateOptions::default()
        }
    }

    fn translate_all(&self, translator: &Translator, texts: &mut Texts) -> Result<Tally> {
        let mut options = self.options(translator.defaults());
        let (target, longest) = (translator.vocabulary().target(), translator.model().max_target_len());
        let longest = options.max_new_tokens.map_or(longest, |most| most.min(longest));
        options.end_tokens = self.ends.tokens(target)?;
        self.sampling.penalties().repetitions.add_breakers(&mut options.processing, target)?;
        self.restrictions.add_to(&mut options.processing, target, "", longest)?;
        let is_shown = !texts.are_typed() && ranks::several().is_none();
        let progress = if is_shown { output::progress() } else { ProgressBar::hidden() };
        let tally = texts.answer_on(|before, lines, sheet| {
            let observe = |done: usize| progress.set_position((before + done) as u64);
            let found = translator.translate_each(before, lines, &options, observe)?;
            progress.set_position((before + lines.len()) as u64);
            let aligned = |(line, best): (&String, Result<Vec<Translation>, TaskError>)| {
                best.map_err(Error::from).and_then(|best| self.aligned(translator, line, best))
            };
            let found = lines.iter().zip(found).map(aligned).collect();
            progress.suspend(|| self.show_all(lines, found, sheet))
        })?;
        progress.finish_and_clear();
        Ok(tally)
    }

    fn aligned(&self, translator: &Translator, line: &str, best: Vec<Translation>) -> Result<Vec<Found>> {
        let aligned = |translation: Translation| {
            let alignment = if self.alignment { Some(translator.align_tokens(line, &translation)?) } else { None };
            let target = translator.vocabulary().target();
            let scores = self.ends.logprobs.map(|_| logprobs(target, &translation.scores));
            Ok(Found { translation, alignment, logprobs: scores })
        };
        best.into_iter().map(aligned).collect()
    }

    /// Prints what was found of each line. Where the machine failed, prints up to the last line that was finished before it.
    ///
    /// # Errors
    /// The failure of the machine.
    fn show_all(&self, lines: &[String], found: Vec<Result<Vec<Found>>>, sheet: &mut Sheet) -> Result<()> {
        let is_answered = |found: &Result<Vec<Found>>| found.as_ref().map_or_else(is_user_error, |_| true);
        let answered = found.iter().rposition(is_answered).map_or(0, |last| last + 1);
        let mut failure = None;
        for (place, (line, found)) in lines.iter().zip(found).enumerate() {
            if place < answered {
                sheet.print(&self.shown(line, &found))?;
            }
            match found {
                Err(error) if is_user_error(&error) => sheet.fail(&error),
                Err(error) => failure = failure.or(Some(error)),
                Ok(_) => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// One line out for each line in, or as many as translations are asked for.
    fn shown(&self, line: &str, found: &Result<Vec<Found>>) -> String {
        match (found, self.json) {
            (Ok(found), true) => format!("{}\n", to_json(line, found)),
            (Err(error), true) => format!("{}\n", json!({"source": line, "error": error.to_string()})),
            (found, false) => self.to_lines(found.as_deref().unwrap_or_default()),
        }
    }

    /// As many lines as translations are asked for: an empty line, and one that failed, have none.
    fn to_lines(&self, found: &[Found]) -> String {
        let missing = self.search.n_best.max(1).saturating_sub(found.len());
        found.iter().map(Found::to_line).chain(std::iter::repeat_n("\n".to_string(), missing)).collect()
    }
}

fn to_json(line: &str, found: &[Found]) -> Value {
    json!({"source": line, "translations": found.iter().map(Found::to_json).collect::<Vec<_>>()})
}

impl Found {
    fn to_json(&self) -> Value {
        let mut object = json!({"text": self.translation.text, "score": self.translation.score});
        if let Some(pairs) = &self.alignment {
            object["alignment"] = json!(pairs);
        }
        if let Some(scores) = &self.logprobs {
            object["logprobs"] = scores.clone();
        }
        object
    }

    fn to_line(&self) -> String {
        let text = self.translation.text.replace('\n', " ");
        let alignment = self.alignment.iter().map(|pairs| {
            let pairs: Vec<String> = pairs.iter().map(|pair| format!("{}-{}", pair.source, pair.target)).collect();
            format!("\t{}", pairs.join(" "))
        });
        format!("{text}{}\n", alignment.collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use firelight::generation::{EarlyStopping, Processing, PromptLookup};

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        translate: Translate,
    }

    #[test]
    fn every_option_of_the_search_is_handed_on() {
        let options = |words: &str, defaults: &str| {
            let defaults = serde_json::from_str(defaults).unwrap();
            Command::parse_from(words.split(' ')).translate.options(&defaults)
        };
        let words = "translate run --beams 4 --length-penalty=-1 --n-best 2 --early-stopping never --batch 7 --truncate \
                     --no-repeat-ngram-size 3 --beam-groups 2 --diversity-penalty 0.5";
        let expected = TranslateOptions {
            beams: 4,
            length_penalty: -1.0,
            n_best: 2,
            groups: 2,
            diversity_penalty: 0.5,
            early_stopping: EarlyStopping::Never,
            draws: None,
            processing: Processing { no_repeat_ngram_size: 3, ..Processing::default() },
            sentences: false,
            truncate: true,
            batch: 7,
            ..TranslateOptions::default()
        };
        let named = r#"{"num_beams": 6, "length_penalty": 0.5, "early_stopping": true, "repetition_penalty": 1.5}"#;
        assert_eq!(options(words, "{}"), expected);
        let mut penalised = expected;
        penalised.processing.repetition_penalty = 1.5;
        assert_eq!(options(words, named), penalised, "what the user says counts");
        let usual = TranslateOptions { batch: u32::MAX as usize, ..TranslateOptions::default() };
        assert_eq!(options("translate run", "{}"), usual);
        let sentences = TranslateOptions { sentences: true, ..usual };
        assert_eq!(options("translate run --sentences", "{}"), sentences);
        let named = options("translate run", named);
        assert_eq!((named.beams, named.length_penalty, named.early_stopping), (6, 0.5, EarlyStopping::Full));
    }

    #[test]
    fn ends_and_scores_are_handed_on_in_every_way() {
        let ends = "--max-new-tokens 4 --stop . --stop , --json --logprobs 3";
        for how in ["--beams 2", "--greedy", "--temperature 1"] {
            let command = Command::parse_from(format!("translate run {ends} {how}").split(' '));
            let found = command.translate.options(&GenerationDefaults::default());
            assert_eq!((found.max_new_tokens, found.logprobs), (Some(4), Some(3)), "{how}");
            assert_eq!(found.stop_strings, [".", ","]);
        }
        assert!(Command::try_parse_from(["translate", "run", "--logprobs", "3"]).is_err(), "it is told in JSON");
    }

    #[test]
    fn options_that_choose_tokens_take_the_place_of_the_search() {
        let translate = |words: &str| Command::parse_from(words.split(' ')).translate;
        let options = |words: &str, defaults: &str| translate(words).options(&serde_json::from_str(defaults).unwrap());
        assert_eq!(options("translate run --greedy", "{}"), options("translate run --beams 1", "{}"));
        let named = r#"{"num_beams": 6, "top_k": 5, "temperature": 0.5}"#;
        let found = options("translate run --top-p 0.9 --seed 7 --repetition-penalty 1.5", named);
        let draws = found.draws.unwrap();
        let drawn = (draws.sampling.top_p, draws.sampling.top_k, draws.sampling.temperature, draws.seed);
        assert_eq!(drawn, (Some(0.9), Some(5), 0.5, 7));
        assert_eq!((found.beams, found.processing.repetition_penalty), (1, 1.5));
        let refused = |words: &str| translate(words).check().unwrap_err().to_string();
        let search = refused("translate run --temperature 1 --beams 4");
        assert_eq!(search, "--temperature cannot be used with --beams: remove one of the two");
        let several = refused("translate run --greedy --n-best 2");
        assert_eq!(several, "--greedy cannot be used with --n-best: remove one of the two");
        assert!(Command::try_parse_from("translate run --greedy --seed 7".split(' ')).is_err());
        let alone = refused("translate run --seed 7");
        assert!(alone.ends_with("add a sampling option, such as --temperature 1"), "{alone}");
        translate("translate run --seed 7 --top-k 5").check().unwrap();
    }

    #[test]
    fn what_was_finished_before_the_machine_failed_is_printed() {
        let shown = |words: &str, found: Vec<Result<Vec<Found>>>| {
            let (mut sheet, lines) = (Sheet::keeping(), ["a", "b", "c", "d", "e"].map(str::to_string));
            let failure = Command::parse_from(words.split(' ')).translate.show_all(&lines, found, &mut sheet);
            let (results, remarks, _, failed) = sheet.said(lines.len());
            (results, remarks, failed, failure.map_err(|error| error.to_string()))
        };
        let good = |text: &str| {
            let translation = Translation { text: text.to_string(), ids: vec![], score: 0.0, scores: vec![] };
            Ok(vec![Found { translation, alignment: None, logprobs: None }])
        };
        let lost = || Err(TaskError::new(false, "it is lost").into());
        let unread = || Err(Mistake("line 3: no".to_string()).into());
        let failure: Result<(), String> = Err("it is lost".to_string());
        let remarks = vec!["error: line 3: no".to_string()];
        let text = shown("translate run", vec![good("A"), lost(), unread(), good("D"), lost()]);
        assert_eq!(text, ("A\n\n\nD\n".to_string(), remarks, 1, failure.clone()));
        let json = shown("translate run --json", vec![good("A"), lost(), unread(), lost(), lost()]);
        let errors = json.0.lines().filter(|line| line.contains("\"error\"")).count();
        assert_eq!((json.0.lines().count(), errors, json.3), (3, 2, failure));
        let whole = shown("translate run", ["A", "B", "C", "D", "E"].map(good).into());
        assert_eq!(whole, ("A\nB\nC\nD\nE\n".to_string(), Vec::new(), 0, Ok(())));
    }

    #[test]
    fn one_thing_guesses() {
        let guesses = |words: &str| Command::parse_from(words.split(' ')).translate.guesses;
        assert_eq!(guesses("translate run").lookup(), None);
        assert_eq!(guesses("translate run --prompt-lookup").lookup(), Some(PromptLookup::default()));
        let drafting = guesses("translate run --draft small");
        assert_eq!((drafting.draft_tokens(), drafting.draft), (8, Some("small".into())));
        assert!(Command::try_parse_from(["translate", "run", "--draft", "small", "--prompt-lookup"]).is_err());
        assert!(Command::try_parse_from(["translate", "run", "--draft-tokens", "4"]).is_err());
    }
}
