//! How similar the vectors are that a model makes of tokens: of one word in several sentences, or of all tokens of texts.

use std::ops::Range;

use firelight_classification::cosine_similarities;
use firelight_core::{Hooks, Pass};
use firelight_storage::{InputError, TaskError, shortened};

use crate::explain::check_layer;
use crate::figure::{ColourScale, Figure, HeatMap, check_size, numbers};
use crate::labels::shown;
use crate::text_model::{ReadText, TextModel, lacking, rows};

/// The most characters of a sentence on either side of the word.
const AROUND: usize = 10;

/// Whose vectors are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddingQuestion<'a> {
    /// A word, which stands in every text; none: all tokens.
    pub word: Option<&'a str>,
    /// The layer after which they are read, counted from 0; none: after the last one, its final norm included.
    pub layer: Option<usize>,
}

/// The cosine of every two contextual vectors: of a word wherever it stands in the texts, the mean over its tokens, or of all tokens of
/// the texts.
///
/// # Errors
/// If there is no text, one does not fit the model, the word does not stand in each of them, there is no such layer, or there are more than
/// 1,024 vectors.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_data::{Tokenizer, TokenizerConfig};
/// use firelight_inspect::{EmbeddingQuestion, TextModel, embedding_figure};
/// use firelight_language::{LanguageModelConfig, TextGenerator};
///
/// let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::flex());
/// let model = TextModel::from(TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "")?));
/// let question = EmbeddingQuestion { word: Some("ab"), layer: Some(0) };
/// let figure = embedding_figure(&model, &["ab c", "c ab"], &question)?;
/// assert!((figure.maps[0].values[0][0] - 1.0).abs() < 1e-6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn embedding_figure(model: &TextModel, texts: &[&str], question: &EmbeddingQuestion) -> Result<Figure, TaskError> {
    let (mut names, mut found) = (Vec::new(), Vec::new());
    for (number, text) in (1..).zip(texts.iter().copied()) {
        let read = model.read(text)?;
        let vectors = vectors(model, &read, question.layer)?;
        let (some, means) = match question.word {
            Some(word) => of_word(model, (text, &read), word, &vectors)?,
            None => (read.labels.iter().map(|label| shown(label)).collect(), vectors),
        };
        let is_one = texts.len() == 1 || question.word.is_some();
        names.extend(some.into_iter().map(|name| if is_one { name } else { format!("{number}: {name}") }));
        found.extend(means);
    }
    check_size("the number of vectors", found.len())?;
    let names = if question.word.is_some() { numbered(names) } else { [names.clone(), names] };
    Ok(Figure::new(title(texts, question), vec![cosines(caption(question), names, &found)]))
}

/// Long names with their numbers from 1, for rows, and these numbers alone, for columns.
fn numbered(names: Vec<String>) -> [Vec<String>; 2] {
    let columns = numbers(names.len() + 1).split_off(1);
    let rows = columns.iter().zip(names).map(|(number, name)| format!("{number}: {name}")).collect();
    [rows, columns]
}

fn title(texts: &[&str], question: &EmbeddingQuestion) -> String {
    let what = question.word.or(texts.first().copied()).unwrap_or_default();
    format!("Contextual vectors: {}", shortened(what))
}

fn caption(question: &EmbeddingQuestion) -> String {
    let what = question.word.map_or("tokens".into(), |word| format!("\"{}\"", shortened(word)));
    let place = question.layer.map_or("the last layer".into(), |layer| format!("layer {layer}"));
    format!("cosine of the vectors of {what} after {place}")
}

/// The cosine of every two vectors, with the names of rows and of columns.
pub(crate) fn cosines(title: impl Into<String>, [rows, columns]: [Vec<String>; 2], vectors: &[Vec<f64>]) -> HeatMap {
    let narrow = |vector: &Vec<f64>| vector.iter().map(|number| *number as f32).collect();
    let vectors: Vec<Vec<f32>> = vectors.iter().map(narrow).collect();
    let similar = cosine_similarities(&vectors, &vectors);
    HeatMap::new(title, rows, columns, similar).with_scale(ColourScale::Signed(1.0))
}

/// The vectors of the tokens of a text, `[T, D]`.
fn vectors(model: &TextModel, read: &ReadText, layer: Option<usize>) -> Result<Vec<Vec<f64>>, TaskError> {
    let Some(layer) = layer else { return rows(model.hidden(read, &mut Pass::default())) };
    check_layer(model, read, layer)?;
    let (path, lacks) = (format!("blocks.{layer}.output"), lacking("no vectors can be read"));
    let mut hooks = Hooks::new().record(path.as_str());
    let (_, found) = hooks.run(|pass| model.hidden(read, pass)).map_err(&lacks)?;
    rows(found.get::<3>(&path).map_err(&lacks)?)
}

/// The mean vector of a word at each of its places, named by what stands around it.
fn of_word(
    model: &TextModel,
    (text, read): (&str, &ReadText),
    word: &str,
    vectors: &[Vec<f64>],
) -> Result<(Vec<String>, Vec<Vec<f64>>), TaskError> {
    let places = places_of(word, text);
    if places.is_empty() {
        let [word, text] = [word, text].map(shortened);
        let problem = format!("the word \"{word}\" does not stand in the text \"{text}\"");
        return Err(InputError::new(problem)
            .advise("write it as the text does; a part of a word does not count")
            .into());
    }
    let mut means = Vec::with_capacity(places.len());
    for place in &places {
        let tokens = model.tokens_of(read, text, place)?;
        means.push(mean(tokens.iter().map(|token| &vectors[*token])));
    }
    Ok((places.iter().map(|place| around(text, place)).collect(), means))
}

/// Where a word stands in a text as a whole, in bytes.
pub(crate) fn places_of(word: &str, text: &str) -> Vec<Range<usize>> {
    let is_whole = |place: &Range<usize>| {
        let (before, behind) = (text[..place.start].chars().next_back(), text[place.end..].chars().next());
        ![before, behind].into_iter().flatten().any(char::is_alphanumeric)
    };
    match word.trim().is_empty() {
        true => Vec::new(),
        false => text.match_indices(word).map(|(start, _)| start..start + word.len()).filter(is_whole).collect(),
    }
}

/// A word with the characters before and behind it.
fn around(text: &str, place: &Range<usize>) -> String {
    let before: Vec<char> = text[..place.start].chars().rev().take(AROUND).collect();
    let behind = text[place.end..].chars().take(AROUND);
    before.into_iter().rev().chain(text[place.clone()].chars()).chain(behind).collect()
}

/// The mean of vectors, of which there is at least one.
fn mean<'a>(vectors: impl ExactSizeIterator<Item = &'a Vec<f64>>) -> Vec<f64> {
    let share = 1.0 / vectors.len() as f64;
    vectors.fold(Vec::new(), |sum: Vec<f64>, vector| match sum.is_empty() {
        true => vector.iter().map(|number| share * number).collect(),
        false => sum.iter().zip(vector).map(|(sum, number)| sum + share * number).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_where_it_stands_alone() {
        let text = "bank, banks; embank (bank) \u{fc}bank";
        let found: Vec<&str> = places_of("bank", text).into_iter().map(|place| &text[place]).collect();
        assert_eq!((found.len(), places_of("bank", text)), (2, vec![0..4, 21..25]));
        assert!(places_of("", text).is_empty() && places_of("money", text).is_empty());
        assert_eq!(around("on the \u{e9}t\u{e9} of a longer", &(13..15)), "n the \u{e9}t\u{e9} of a longer");
    }

    #[test]
    fn cosines_and_means_by_hand() {
        let vectors = [vec![3.0, 4.0], vec![4.0, 3.0], vec![-3.0, -4.0]];
        let names = ["a", "b", "c"].map(String::from);
        let map = cosines("three", [names.to_vec(), names.to_vec()], &vectors);
        // 24 of 25.
        let expected = [[1.0, 0.96, -1.0], [0.96, 1.0, -0.96], [-1.0, -0.96, 1.0]];
        assert_eq!(map.values.iter().map(Vec::len).collect::<Vec<_>>(), [3; 3]);
        for (found, expected) in map.values.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
        }
        assert_eq!(map.scale, ColourScale::Signed(1.0));
        assert_eq!(mean(vectors[..2].iter()), [3.5, 3.5]);
        let [rows, columns] = numbered(names.to_vec());
        assert_eq!((&rows[2][..], &columns[..]), ("3: c", &["1", "2", "3"].map(String::from)[..]));
    }
}
