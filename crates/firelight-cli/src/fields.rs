//! Names options where the library names fields: a user of the command typed `--top-p`, and has never heard of `top_p`.

use clap::Command;

/// Fields as messages of the library and `generation_config.json` name them, and the options that set them.
const OPTIONS: &[(&str, &str)] = &[
    ("amateur.plausibility", "--amateur-plausibility"),
    ("amateur.strength", "--amateur-strength"),
    ("beams", "--beams"),
    ("diversity_penalty", "--diversity-penalty"),
    ("dry.allowed", "--dry-allowed"),
    ("dry.base", "--dry-base"),
    ("dry.multiplier", "--dry-multiplier"),
    ("early_stopping", "--early-stopping"),
    ("epsilon_cutoff", "--epsilon-cutoff"),
    ("eta_cutoff", "--eta-cutoff"),
    ("frequency_penalty", "--frequency-penalty"),
    ("greedy", "--greedy"),
    ("groups", "--beam-groups"),
    ("keep", "--keep"),
    ("length_penalty", "--length-penalty"),
    ("max_new_tokens", "--max-new-tokens"),
    ("min_p", "--min-p"),
    ("mirostat.eta", "--mirostat-eta"),
    ("mirostat.tau", "--mirostat"),
    ("n_best", "--n-best"),
    ("no_repeat_ngram_size", "--no-repeat-ngram-size"),
    ("num_beams", "--beams"),
    ("penalty_alpha", "--contrastive"),
    ("presence_penalty", "--presence-penalty"),
    ("repetition_penalty", "--repetition-penalty"),
    ("stop_strings", "--stop"),
    ("stride", "--stride"),
    ("temperature", "--temperature"),
    ("top_h", "--top-h"),
    ("top_k", "--top-k"),
    ("top_n_sigma", "--top-n-sigma"),
    ("top_p", "--top-p"),
    ("typical_p", "--typical-p"),
    ("xtc.probability", "--xtc-probability"),
    ("xtc.threshold", "--xtc-threshold"),
];

/// Fields that are also words of the messages: they are fields where a message begins with them.
const WORDS: [&str; 1] = ["keep"];

/// The option that sets a field, or the name of the field where none does.
pub(crate) fn option_of(field: &str) -> &str {
    OPTIONS.iter().find(|(known, _)| *known == field).map_or(field, |&(_, option)| option)
}

/// A message about fields, which begins with one, such as `top_p is 2`, with the options of `command` in their place. Other messages, and
/// what stands in backticks, are as they were.
pub(crate) fn with_options(message: &str, command: &Command) -> String {
    let first = message.split(' ').next().unwrap_or_default();
    if own_option(first, command).is_none() {
        return message.to_string();
    }
    let parts = message[first.len()..].split('`').enumerate();
    let told = parts.map(|(place, part)| if place % 2 == 0 { replaced(part, command) } else { part.to_string() });
    told_word(first, command) + &told.collect::<Vec<_>>().join("`")
}

/// The words of a text behind the first one of a message, options in the place of fields.
fn replaced(text: &str, command: &Command) -> String {
    let told = |word: &str| if WORDS.contains(&word) { word.to_string() } else { told_word(word, command) };
    text.split(' ').map(told).collect::<Vec<_>>().join(" ")
}

fn told_word(word: &str, command: &Command) -> String {
    let field = word.trim_end_matches([',', ';', ':']);
    own_option(field, command).unwrap_or(field).to_string() + &word[field.len()..]
}

/// The option of a field, where the command has it.
fn own_option(field: &str, command: &Command) -> Option<&'static str> {
    let (_, option) = OPTIONS.iter().find(|(known, _)| *known == field)?;
    let is_own = command.get_arguments().any(|argument| argument.get_long() == option.strip_prefix("--"));
    is_own.then_some(*option)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn told(message: &str, command: &str) -> String {
        with_options(message, Cli::command().find_subcommand(command).unwrap())
    }

    #[test]
    fn every_option_is_one_of_a_command_that_writes_or_scores() {
        for (field, option) in OPTIONS {
            let is_told = |command| told(&format!("{field} is 0"), command) == format!("{option} is 0");
            assert!(["generate", "translate", "score"].into_iter().any(is_told), "{field}");
        }
    }

    #[test]
    fn fields_are_told_as_options_of_the_called_command() {
        let found = told("n_best is 3, expected at least 1 and at most beams, which is 2", "generate");
        assert_eq!(found, "--n-best is 3, expected at least 1 and at most --beams, which is 2");
        let other = "max_new_tokens is 3, but the JSON schema needs at least 4 tokens; give max_new_tokens 4 or more";
        assert_eq!(told(other, "chat"), other.replace("max_new_tokens", "--max-new-tokens"));
        assert_eq!(told(other, "translate"), other.replace("max_new_tokens", "--max-new-tokens"));
        assert_eq!(told(other, "score"), other, "it has no such option");
    }

    #[test]
    fn a_word_that_is_also_a_field_stays_a_word() {
        let found =
            told("top_p is 2, expected more than 0 and at most 1; leave it out to keep every token", "generate");
        assert_eq!(found, "--top-p is 2, expected more than 0 and at most 1; leave it out to keep every token");
        assert_eq!(told("keep is 9, and keep it", "generate"), "--keep is 9, and keep it");
    }

    #[test]
    fn what_the_user_wrote_and_messages_about_no_field_stay() {
        let pattern = "max_new_tokens is 3, but the regular expression `top_k beams` needs at least 11 tokens";
        assert_eq!(told(pattern, "generate"), format!("--max-new-tokens{}", &pattern["max_new_tokens".len()..]));
        for message in ["the texts have a temperature and beams", "--top-p is 2; leave top_p out", ""] {
            assert_eq!(told(message, "generate"), message);
        }
    }
}
