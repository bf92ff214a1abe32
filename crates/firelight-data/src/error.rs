//! Everything that can be wrong with a text, a tokenizer or a token file, in words that name the place and the way out.
//! Every function of this crate returns it; the command line turns it into one line and an exit code.

use std::path::{Path, PathBuf};

use firelight_storage::{StorageError, listed, shortened, shortened_reason};

use crate::records::RecordFormat;
use crate::{ImageError, SpecialRole, Split};

/// An error of reading text or turning it into tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Images could not be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// There is no such text.
    #[error("there is no file `{}`: give the path of a text file", path.display())]
    MissingText {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The file of the text is empty.
    #[error("the file `{}` is empty: give a file with text", path.display())]
    EmptyText {
        /// The file.
        path: PathBuf,
    },
    /// The file of the text is not UTF-8.
    #[error(
        "the file `{}` is not UTF-8 text: the byte at offset {offset} is {byte:#04x}; convert the file to UTF-8",
        path.display()
    )]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is not UTF-8, in bytes from 0.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// A line of a file is not UTF-8.
    #[error(
        "line {line} of `{}` is not UTF-8 text: the byte at offset {offset} of the file is {byte:#04x}; convert the file to \
         UTF-8",
        path.display()
    )]
    LineNotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Offset of the first byte that is not UTF-8, in bytes from 0 of the file.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// Two files that belong together have different numbers of lines.
    #[error(
        "`{}` has {source_lines} lines, but `{}` has {target_lines}: line {} of `{}` has no partner; give files whose lines \
         belong together one by one",
        source_path.display(), target_path.display(), source_lines.min(target_lines) + 1,
        if source_lines > target_lines { source_path.display() } else { target_path.display() }
    )]
    UnequalLines {
        /// File of the sources.
        source_path: PathBuf,
        /// Its number of lines.
        source_lines: usize,
        /// File of the targets.
        target_path: PathBuf,
        /// Its number of lines.
        target_lines: usize,
    },
    /// A line of a table has too many or too few columns.
    #[error(
        "line {line} of `{}` has {found} columns separated by {separator}: expected {expected}",
        path.display()
    )]
    Columns {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Columns that the line should have.
        expected: usize,
        /// Columns that it has.
        found: usize,
        /// What separates them.
        separator: &'static str,
    },
    /// A table that should hold texts with labels has nothing but texts.
    #[error(
        "line {line} of `{}` has one column: expected a text and its label separated by {separator}; give a table with both, or \
         the ending that fits how the file is written (.tsv, .csv or .jsonl)",
        path.display()
    )]
    OneColumn {
        /// The file.
        path: PathBuf,
        /// Its first line with a text, from 1.
        line: usize,
        /// What should separate the columns.
        separator: &'static str,
    },
    /// A table has fewer columns than the number of one that is asked for.
    #[error(
        "`{}` has no column {number}: its lines have {columns} columns, numbered from 0; give one of these numbers, or a name \
         of its header",
        path.display()
    )]
    ColumnNumber {
        /// The file.
        path: PathBuf,
        /// The column that was asked for, from 0.
        number: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A quote in CSV has no partner.
    #[error(
        "the quote on line {line} of `{}` {reason}; put quotes around the whole value, and double those within it",
        path.display()
    )]
    Quotes {
        /// The file.
        path: PathBuf,
        /// The line of the quote that begins the value, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The `parquet` crate refuses a file.
    #[error("`{}` cannot be read as Parquet: {}; is it whole?", path.display(), shortened_reason(reason))]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the crate says.
        reason: String,
    },
    /// A file in a format that was left out when the program was built.
    #[error("`{}` is {format}, which this program was built without: build it with the cargo feature `{feature}`", path.display())]
    FormatNotBuilt {
        /// The file.
        path: PathBuf,
        /// The format.
        format: &'static str,
        /// The cargo feature.
        feature: &'static str,
    },
    /// The ending of a file names no format of records.
    #[error("the ending of `{}` tells no format of records: expected .tsv, .csv, .jsonl or .parquet", path.display())]
    RecordEnding {
        /// The file.
        path: PathBuf,
    },
    /// A line that is too long to be held in memory.
    #[error("line {line} of `{}` is longer than {} MiB: is this a text?", path.display(), limit >> 20)]
    LongLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The longest that is read, in bytes.
        limit: u64,
    },
    /// Labelled texts without a column of text.
    #[error("columns.text is empty: name at least one column, such as [\"sentence\"] or [\"0\"]")]
    NoTextColumn,
    /// A file of labelled texts has nothing but a header or empty lines.
    #[error("`{}` holds no example: give a file with a text and its label a line", path.display())]
    NoExamples {
        /// The file.
        path: PathBuf,
    },
    /// An example without a label.
    #[error(
        "{} has an empty label in the column `{}`: give every example a label", place(*line, path), shortened(column)
    )]
    EmptyLabel {
        /// The file.
        path: PathBuf,
        /// The line, or of Parquet the row, from 1.
        line: usize,
        /// The column of the labels.
        column: String,
    },
    /// A label that no example of the training had.
    #[error(
        "{} has the label `{}`, which the training did not have: the known labels are {known}",
        place(*line, path), shortened(label)
    )]
    UnknownLabel {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The label.
        label: String,
        /// The labels of the training.
        known: String,
    },
    /// A label of a regression that is no number.
    #[error(
        "{} has the label `{}`: a regression needs a finite number", place(*line, path), shortened(label)
    )]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The label.
        label: String,
    },
    /// Names of classes that make no classifier.
    #[error("{problem}; does columns.label name the column of the labels?")]
    Labels {
        /// What is wrong with them.
        problem: String,
    },
    /// The ending of a file names no format of tagged sentences.
    #[error("the ending of `{}` tells no format of tagged sentences: expected .conll, .txt, .tsv or .jsonl", path.display())]
    TaggedEnding {
        /// The file.
        path: PathBuf,
    },
    /// A file of tagged sentences has nothing but empty lines.
    #[error("`{}` holds no sentence: give a file with a token and its tag a line", path.display())]
    NoSentences {
        /// The file.
        path: PathBuf,
    },
    /// A line with tokens that do not fit their tags.
    #[error("{} {reason}", place(*line, path))]
    TaggedLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, and how to mend it.
        reason: String,
    },
    /// A tag that breaks the rules of its scheme.
    #[error("{} has the tag `{}`, which {reason}", place(*line, path), shortened(tag))]
    Tag {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The tag.
        tag: String,
        /// What is wrong with it, and how to mend it.
        reason: String,
    },
    /// A tag that no token of the training had.
    #[error(
        "{} has the tag `{}` of the token `{}`, which the training did not have: the known tags are {known}",
        place(*line, path), shortened(tag), shortened(token)
    )]
    UnknownTag {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The tag.
        tag: String,
        /// The token that has it.
        token: String,
        /// The tags of the training.
        known: String,
    },
    /// The ending of a file names no format of questions.
    #[error("the ending of `{}` tells no format of questions: expected .jsonl or .parquet", path.display())]
    QuestionEnding {
        /// The file.
        path: PathBuf,
    },
    /// A file of questions has nothing but empty lines.
    #[error("`{}` holds no question: give a file with a question, its context and its answers a line", path.display())]
    NoQuestions {
        /// The file.
        path: PathBuf,
    },
    /// A question whose answers do not fit its text.
    #[error("{} {reason}", place(*line, path))]
    QuestionLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it, and how to mend it.
        reason: String,
    },
    /// A table or a Parquet file lacks a column.
    #[error(
        "`{}` has no column `{}`: its columns are {found}; give one of these",
        path.display(), shortened(column)
    )]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column that was asked for.
        column: String,
        /// The columns that there are.
        found: String,
    },
    /// A line of JSON lines lacks a key.
    #[error(
        "{} lacks the key `{}`: its keys are {found}; give one of these as the key", place(*line, path), shortened(key)
    )]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key that was asked for.
        key: String,
        /// The keys that there are.
        found: String,
    },
    /// A record that cannot be read, or has no value of the kind that is asked for.
    #[error("{} cannot be read: {}", place(*line, path), shortened_reason(reason))]
    Record {
        /// The file.
        path: PathBuf,
        /// The line, or of Parquet the row, from 1.
        line: usize,
        /// What was found, and what is expected.
        reason: String,
    },
    /// Numbers of a [`LengthFilter`](crate::LengthFilter) that are out of their range.
    #[error("{problems}")]
    Filter {
        /// Each with its key, what was found and what is expected.
        problems: String,
    },
    /// Numbers of a [`Toy`](crate::Toy) that are out of their range.
    #[error("{problems}")]
    Toy {
        /// Each with its key, what was found and what is expected.
        problems: String,
    },
    /// A generated task has fewer sources than pairs were asked for.
    #[error(
        "the task gives at most {available} pairs of different sources, but {asked} were asked for: give fewer, or longer sources \
         from more letters or digits"
    )]
    ToyTooSmall {
        /// Pairs that were asked for.
        asked: usize,
        /// Pairs that there are at most.
        available: u128,
    },
    /// Numbers of a denoising objective that are out of their range.
    #[error("{problems}")]
    Denoising {
        /// Each with its key, what was found and what is expected.
        problems: String,
    },
    /// Too few documents for next-sentence pairs.
    #[error(
        "there {} with {pairs} sentences that another one follows: pairs of sentences need two documents or more, and one of \
         two sentences", if *documents == 1 { "is 1 document".to_owned() } else { format!("are {documents} documents") }
    )]
    SentencePairs {
        /// Documents with a sentence.
        documents: usize,
        /// Sentences that another one follows.
        pairs: usize,
    },
    /// A split of the text has fewer tokens than one window needs.
    #[error(
        "the {split} split of the text is too short: a context of {length} tokens needs at least {} tokens, found {tokens}; \
         give more text, a shorter context (max_seq_len), or a {} validation_fraction",
        length + 1, split.more()
    )]
    TooShort {
        /// The split.
        split: Split,
        /// Tokens of the split.
        tokens: usize,
        /// The context, in tokens.
        length: usize,
    },
    /// Nothing is left to validate on.
    #[error(
        "there is no validation split: validation_fraction leaves it no token, but a training needs one to tell how good \
         the model is; give a validation_fraction above 0, such as 0.1"
    )]
    NoValidationSplit,
    /// A split has no document with a token to predict.
    #[error(
        "the {split} split of the text holds no document with a token to predict: the splits are cut between two documents, so \
         give more documents or a {} validation_fraction", split.more()
    )]
    NoDocument {
        /// The split.
        split: Split,
    },
    /// An empty text separates no documents.
    #[error("the text that separates documents is empty: give one, such as \"<|endoftext|>\"")]
    EmptySeparator,
    /// The validation split is no part of the text.
    #[error("validation_fraction is {fraction}: expected a number of at least 0 and less than 1, such as 0.1")]
    ValidationFraction {
        /// The fraction that was asked for.
        fraction: f64,
    },
    /// Numbers of a [`Batching`](crate::Batching) that are out of their range.
    #[error("{problems}")]
    Batching {
        /// Each with its key, what was found and what is expected.
        problems: String,
    },
    /// Items that fit into no batch of a token budget.
    #[error(
        "a batch of {max_tokens} tokens cannot hold every item: {too_long} above it, the longest of {longest}; give \
         batching.max_tokens = {longest} or more, or cut these items or leave them out"
    )]
    AboveBudget {
        /// How many items are too long.
        too_long: usize,
        /// The length of the longest, in tokens.
        longest: usize,
        /// The budget, in tokens.
        max_tokens: usize,
    },
    /// A character that the vocabulary lacks.
    #[error(
        "the character {character:?} at position {position} (line {line}, column {column}) is not in the vocabulary of \
         {vocab_size} characters; remove it, or train with a text that has it or with the `byte` tokenizer"
    )]
    UnknownCharacter {
        /// The character.
        character: char,
        /// Its position in characters, from 0.
        position: usize,
        /// Its line, from 1.
        line: usize,
        /// Its column in characters, from 1.
        column: usize,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// A tokenizer cannot be trained on nothing.
    #[error("a character tokenizer needs a text to take its characters from, but the text is empty")]
    NoCharacters,
    /// A tokenizer of words or pieces of words cannot be trained without them.
    #[error(
        "the tokenizer has nothing to learn from: no word occurs {min_frequency} times or more in its text; give more text \
         or a smaller min_frequency"
    )]
    NoWords {
        /// How often a word has to occur.
        min_frequency: usize,
    },
    /// A special token that the vocabulary cannot take.
    #[error("the special token {:?} {reason}; give another name, such as \"</s>\"", shortened(token))]
    SpecialToken {
        /// The token.
        token: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The name of a tokenizer could not be read.
    #[error(
        "`{}` is no tokenizer: expected `char`, `byte`, `bpe:N`, `sentence_bpe:N`, `unigram:N` or `word_piece:N` with N tokens, such as \
         `bpe:4096`, `word:N` with the words that occur N times or more, or `file:PATH` with a tokenizer.json",
        shortened(name)
    )]
    TokenizerName {
        /// The name that was given.
        name: String,
    },
    /// A vocabulary that does not even hold the bytes.
    #[error(
        "a subword tokenizer of {vocab_size} tokens is too small: the 256 bytes alone need 256, so give vocab_size = 256 or more"
    )]
    VocabSize {
        /// The size that was asked for, in tokens.
        vocab_size: usize,
    },
    /// A vocabulary of WordPiece that does not even hold the characters.
    #[error(
        "a WordPiece tokenizer of {vocab_size} tokens is too small: the special tokens and the characters of this text alone \
         need {needed}, so give vocab_size = {needed} or more"
    )]
    WordPieceSize {
        /// The size that was asked for, in tokens.
        vocab_size: usize,
        /// The least size, in tokens.
        needed: usize,
    },
    /// A vocabulary that no text of this length can fill.
    #[error(
        "a subword tokenizer of {vocab_size} tokens is too large: a text of {bytes} bytes can give at most {limit}; give a \
         smaller vocab_size"
    )]
    VocabTooLarge {
        /// The size that was asked for, in tokens.
        vocab_size: usize,
        /// The largest size, in tokens.
        limit: usize,
        /// The length of the text, in bytes.
        bytes: usize,
    },
    /// The file of a tokenizer is cut short, or of another kind.
    #[error("`{}` is no tokenizer that can be read: {}; give a tokenizer.json", path.display(), shortened_reason(reason))]
    TokenizerFile {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A file beside a tokenizer, which says what its special tokens are for, is damaged.
    #[error(
        "`{}` does not say what special tokens are for: {}; restore it, or take it away",
        path.display(), shortened_reason(reason)
    )]
    SpecialTokens {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A tokenizer lacks a special token that a task needs.
    #[error(
        "the tokenizer{} has no {role} token, {}; name one as {:?} in a special_tokens_map.json beside its file, or take another \
         tokenizer",
        file.as_ref().map_or(String::new(), |file| format!(" `{}`", file.display())),
        if special.is_empty() { "and no special token at all".to_owned() }
        else { format!("only the special tokens {}", listed(special)) },
        role.key()
    )]
    NoRole {
        /// The file that it was read from.
        file: Option<PathBuf>,
        /// What the token is for.
        role: SpecialRole,
        /// The special tokens that it has.
        special: Vec<String>,
    },
    /// Windows on a text that are too short.
    #[error(
        "a window of {max_len} tokens is too short: {taken} of them are not for the text that is cut, and {overlap} are shared with \
         the window before; give a larger max_len or a smaller overlap"
    )]
    Window {
        /// Tokens of a window.
        max_len: usize,
        /// Those around the texts, and of a text that is not cut.
        taken: usize,
        /// Those that two windows share.
        overlap: usize,
    },
    /// A failure inside the `tokenizers` crate.
    #[error("the tokenizer failed: {}", shortened_reason(reason))]
    Tokenizer {
        /// What the crate says.
        reason: String,
    },
    /// The token file is cut short or of another kind.
    #[error(
        "`{}` is no whole token file: {reason}; it was cut short or is of another kind, so write it again",
        path.display()
    )]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// What was expected and found.
        reason: String,
    },
}

impl DataError {
    /// Whether the user can mend this by giving something else (exit code 2), rather than the machine being at fault
    /// (exit code 1).
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_user_error(),
            Self::Image(error) => error.is_user_error(),
            Self::Tokenizer { .. } => false,
            _ => true,
        }
    }
}

/// Where a record stands: Parquet has rows instead of lines.
fn place(line: usize, path: &Path) -> String {
    let unit = if matches!(RecordFormat::of(path), Ok(RecordFormat::Parquet)) { "row" } else { "line" };
    format!("{unit} {line} of `{}`", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_place_and_the_way_out() {
        let unknown =
            DataError::UnknownCharacter { character: '\u{e9}', position: 7, line: 2, column: 3, vocab_size: 65 };
        assert_eq!(
            unknown.to_string(),
            "the character '\u{e9}' at position 7 (line 2, column 3) is not in the vocabulary of 65 characters; \
             remove it, or train with a text that has it or with the `byte` tokenizer"
        );
        assert_eq!(
            DataError::TooShort { split: Split::Validation, tokens: 8, length: 64 }.to_string(),
            "the validation split of the text is too short: a context of 64 tokens needs at least 65 tokens, found 8; \
             give more text, a shorter context (max_seq_len), or a larger validation_fraction"
        );
        assert_eq!(
            DataError::NotUtf8 { path: "a.txt".into(), offset: 3, byte: 0xff }.to_string(),
            "the file `a.txt` is not UTF-8 text: the byte at offset 3 is 0xff; convert the file to UTF-8"
        );
    }

    #[test]
    fn the_machines_errors_are_not_the_users() {
        assert!(DataError::NoCharacters.is_user_error());
        assert!(!DataError::Tokenizer { reason: String::new() }.is_user_error());
    }
}
