//! Turns the messages of llguidance into errors of one line.

use firelight_storage::{InputError, shortened_reason};

use super::compiled::Source;
use crate::GenerationError;

/// The prefix of llguidance's reason why nothing satisfies a schema.
const UNSATISFIABLE: &str = "Unsatisfiable schema: ";

/// The error of a constraint that is not understood, or that nothing satisfies.
pub(super) fn of_message(source: &Source, message: &str) -> GenerationError {
    let reason = shortened_reason(reason(message));
    if let (Source::Schema(_), Some((_, reason))) = (source, reason.split_once(UNSATISFIABLE)) {
        return GenerationError::Unsatisfiable { problem: format!("no JSON satisfies the schema: {reason}") };
    }
    let advice = match source {
        Source::Regex(_) => "use the syntax of Rust's `regex` crate, without anchors and look-around",
        Source::Schema(_) => "change or remove that part of the schema",
        Source::Lark(_) => "write it in llguidance's variant of Lark",
    };
    InputError::new(format!("{source} cannot be used: {reason}")).advise(advice).into()
}

/// The most telling line: why nothing satisfies a schema, what is wrong with a regular expression, or else the first line. Leaves out hints at
/// options and features of the crate.
fn reason(message: &str) -> &str {
    let lines = || message.lines().map(str::trim).filter(|line| !line.is_empty());
    let unsatisfiable = lines().find(|line| line.contains(UNSATISFIABLE));
    let line = unsatisfiable.or_else(|| lines().find_map(|line| line.strip_prefix("error: ")));
    let line = line.or_else(|| lines().next()).unwrap_or(message);
    [". Enable ", " without 'referencing'"].iter().fold(line, |line, rest| line.split(rest).next().unwrap_or(line))
}

/// The error of a constraint that needs a character which the tokenizer does not have.
pub(super) fn of_missing(source: &Source, character: char) -> InputError {
    let problem = format!("{source} needs the character {character:?}, for which the tokenizer has no token");
    InputError::new(problem).advise("use a model whose tokenizer has one, such as a tokenizer of bytes")
}

/// The error of a constraint for which no text was found: because the searches `gave_up` after so many bytes, or because there is none.
pub(super) fn of_search(source: &Source, tried: usize, gave_up: bool) -> GenerationError {
    match gave_up {
        true => GenerationError::SearchGaveUp { constraint: source.to_string(), tried },
        false => GenerationError::Unsatisfiable { problem: format!("no text satisfies {source}") },
    }
}
