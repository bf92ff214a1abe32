//! Activation patching between two texts: which token of which layer carries what makes the answer differ.

use burn::tensor::Tensor;
use firelight_core::Pass;
use firelight_core::inspect::{Columns, patching_effects};
use firelight_storage::{InputError, TaskError, shortened};
use maud::{PreEscaped, html};
use serde_json::{Value, json};

use crate::head_table::layer_of;
use crate::labels::shown;
use crate::page::frame;
use crate::scale::step;
use crate::svg::{self, Drawing};
use crate::terminal::{WIDTH, fitted, push_line, wide};
use crate::text_model::{ReadText, TextModel, lacking};

/// The residual stream behind each layer.
const STREAM: &str = "blocks.*.output";

/// Columns of a share in a terminal, and of the label of its row.
const CELL: usize = 7;
const BESIDE: usize = 9;

/// Pixels of a share in a picture: width and height.
const BOX: [usize; 2] = [52, 26];
const ROOM: usize = 80;
const TITLE: usize = 44;

/// What is asked: two texts of as many tokens, and the answers that they lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchQuestion<'a> {
    /// The text that the answer follows.
    pub clean: &'a str,
    /// A text that differs in what matters.
    pub corrupted: &'a str,
    /// What follows the clean text: a single token.
    pub answer: &'a str,
    /// What follows the other one: a single token.
    pub wrong: &'a str,
}

/// How much of the difference of two logits comes back when the residual stream of one token behind one layer is carried from the clean text
/// into the corrupted one: 0 where nothing does, 1 where all of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PatchGrid {
    /// The tokens of the clean text.
    pub clean: Vec<String>,
    /// The tokens of the corrupted text.
    pub corrupted: Vec<String>,
    /// The logit of the answer above that of the wrong one: behind the clean text, and behind the corrupted one.
    pub differences: [f64; 2],
    /// The layers, from 0.
    pub layers: Vec<usize>,
    /// The share of each layer's tokens.
    pub shares: Vec<Vec<f64>>,
}

impl PatchGrid {
    /// Patches one activation after the other: a pass for each token and layer.
    ///
    /// # Errors
    /// If the model is no language model, a text does not fit it, the texts differ in their number of tokens, an answer is no single token, or both
    /// texts lead to the same difference.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_inspect::{PatchGrid, PatchQuestion, TextModel};
    /// use firelight_language::{LanguageModelConfig, TextGenerator};
    ///
    /// let model = LanguageModelConfig::new(256, 16, 2, 2).init(&Device::flex());
    /// let model = TextModel::from(TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "")?));
    /// let question = PatchQuestion { clean: "a b", corrupted: "c b", answer: "x", wrong: "y" };
    /// let grid = PatchGrid::measure(&model, &question)?;
    /// assert_eq!((grid.layers, grid.shares[1].len()), (vec![0, 1], 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measure(model: &TextModel, question: &PatchQuestion) -> Result<Self, TaskError> {
        if model.language().is_none() {
            let problem = "a text encoder answers with no token";
            return Err(InputError::new(problem).advise("give a language model").into());
        }
        let [clean, corrupted] = [model.read(question.clean)?, model.read(question.corrupted)?];
        check_lengths(&clean, &corrupted)?;
        let answers = [("answer", question.answer), ("wrong", question.wrong)];
        let [answer, wrong] = answers.map(|(name, text)| single_token(model, name, text));
        let answers = [answer?, wrong?];
        let of = |text: &ReadText, pass: &mut Pass| difference(model, text, answers, pass);
        let numbers = [&clean, &corrupted].map(|text| of(text, &mut Pass::default()).into_scalar::<f64>());
        TaskError::require_finite(numbers.iter().all(|number| number.is_finite()))?;
        let lacks = lacking("nothing can be carried over");
        let grid = patching_effects(STREAM, Columns::Positions, |pass| of(&clean, pass), |pass| of(&corrupted, pass));
        let grid = grid.map_err(lacks)?;
        let layers = grid.paths.iter().map(|path| layer_of(path)).collect();
        let [clean, corrupted] = [clean.labels, corrupted.labels];
        Ok(Self { clean, corrupted, differences: numbers, layers, shares: grid.values })
    }

    /// The tokens of both texts for a column: one where they are the same.
    fn columns(&self) -> Vec<String> {
        let pairs = self.clean.iter().zip(&self.corrupted).map(|(clean, corrupted)| (shown(clean), shown(corrupted)));
        pairs.map(|(clean, other)| if clean == other { clean } else { format!("{clean}/{other}") }).collect()
    }

    /// As text of at most 80 columns: a row for each layer, a column for each token; those that do not fit follow below.
    pub fn to_text(&self) -> String {
        let [clean, corrupted] = self.differences;
        let mut found = format!(
            "logit difference: clean {clean:.3}, corrupted {corrupted:.3}\nshare that one token behind one layer restores\n"
        );
        let columns = self.columns();
        let together = (WIDTH - BESIDE) / CELL;
        for from in (0..columns.len()).step_by(together) {
            let to = (from + together).min(columns.len());
            let heads: String = columns[from..to].iter().map(|label| right(label)).collect();
            push_line(&mut found, &format!("{}{heads}", " ".repeat(BESIDE)));
            for (layer, shares) in self.layers.iter().zip(&self.shares) {
                let cells: String = shares[from..to].iter().map(|share| format!("{:>CELL$}", number(*share))).collect();
                let row = format!("layer {layer}");
                push_line(&mut found, &format!("{row:<BESIDE$}{cells}"));
            }
        }
        found
    }

    /// As an object: tokens, both differences, and the shares of each layer.
    pub fn to_json(&self) -> Value {
        let [clean, corrupted] = self.differences;
        json!({
            "clean": self.clean,
            "corrupted": self.corrupted,
            "clean_difference": clean,
            "corrupted_difference": corrupted,
            "layers": self.layers,
            "shares": self.shares,
        })
    }

    /// As a picture: the stronger the colour, the more comes back. Shares below 0 and above 1 have the colours of the ends, and their numbers.
    pub fn to_svg(&self) -> String {
        self.drawing().to_file()
    }

    fn drawing(&self) -> Drawing {
        let [clean, corrupted] = self.differences;
        let columns: Vec<String> = self.columns().iter().map(|label| svg::shortened(label)).collect();
        let ([width, height], top) = (BOX, TITLE + 8 * svg::longest(&columns));
        let title = format!("Share of the logit difference restored: clean {clean:.3}, corrupted {corrupted:.3}");
        let mut body = String::new();
        svg::text(&mut body, "x=\"8\" y=\"20\"", &title);
        for (column, label) in columns.iter().enumerate() {
            let (x, y) = (ROOM + column * width + width / 2 + 4, top - 6);
            svg::text(&mut body, &format!("transform=\"translate({x} {y}) rotate(-90)\""), label);
        }
        for (row, (layer, shares)) in self.layers.iter().zip(&self.shares).enumerate() {
            let y = top + row * height;
            svg::text(&mut body, &format!("x=\"8\" y=\"{}\"", y + 17), &format!("layer {layer}"));
            for (column, share) in shares.iter().enumerate() {
                square(&mut body, [ROOM + column * width, y], *share, &format!("layer {layer}, {}", columns[column]));
            }
        }
        let across = (ROOM + columns.len() * width + 8).max(16 + 8 * title.chars().count());
        Drawing { size: [across, top + self.layers.len() * height + 8], body }
    }

    /// As one file of HTML that loads nothing: the picture, with its numbers under the pointer.
    pub fn to_page(&self, title: &str) -> String {
        let hint = "A row is a layer, a column a token. 1: this token behind this layer carries all that makes the answer differ.";
        let body = html! {
            p.hint { (hint) }
            div style="overflow: auto" { (PreEscaped(self.drawing().to_element())) }
        };
        frame(title, "", &body)
    }
}

/// A share as a colour and as a number that can be read on it.
fn square(body: &mut String, [x, y]: [usize; 2], share: f64, place: &str) {
    let (width, step) = (BOX[0], step(share.clamp(0.0, 1.0) as f32));
    svg::field(body, step, [x, y], BOX, &format!("{place}: {share:.3}"));
    svg::number(body, step, [x + width / 2, y + 17], &number(share));
}

/// A share in at most six characters.
fn number(share: f64) -> String {
    match share.abs() < 99.5 {
        true => format!("{share:.2}"),
        false => format!("{share:.0e}"),
    }
}

/// A label at the right end of its column.
fn right(label: &str) -> String {
    let label = fitted(label, CELL - 1);
    " ".repeat(CELL - wide(&label)) + &label.into_iter().collect::<String>()
}

fn check_lengths(clean: &ReadText, corrupted: &ReadText) -> Result<(), InputError> {
    let [first, second] = [clean, corrupted].map(|text| text.ids.len());
    match first == second {
        true => Ok(()),
        false => {
            let problem =
                format!("the clean text has {first} tokens and the corrupted one {second}: they must be as many");
            Err(InputError::new(problem).advise("replace tokens, and add or leave out none"))
        }
    }
}

/// The id of an answer.
fn single_token(model: &TextModel, name: &str, text: &str) -> Result<u32, TaskError> {
    match model.tokenizer().encode(text)?[..] {
        [id] => Ok(id),
        ref ids => {
            let problem =
                format!("--{name} \"{}\" is {} tokens, and a single one is compared", shortened(text), ids.len());
            let advice = "give a shorter one; many tokenizers have words with the space in front, such as \" Paris\"";
            Err(InputError::new(problem).advise(advice).into())
        }
    }
}

/// The logit of the answer above that of the wrong one behind the last token, `[1]`.
fn difference(model: &TextModel, text: &ReadText, [answer, wrong]: [u32; 2], pass: &mut Pass) -> Tensor<1> {
    let hidden = model.hidden(text, pass);
    let Some(language) = model.language() else { return hidden.mean() * f64::NAN };
    let last = language.logits(hidden.narrow(1, text.ids.len() - 1, 1));
    let logit = |id: u32| last.clone().narrow(2, id as usize, 1).reshape([1]);
    logit(answer) - logit(wrong)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn grid(tokens: usize) -> PatchGrid {
        let token = |place: usize| if place == 1 { "</a>".to_string() } else { " a".to_string() };
        let clean: Vec<String> = (0..tokens).map(token).collect();
        let mut corrupted = clean.clone();
        corrupted[0] = "b".into();
        let shares = vec![vec![0.25; tokens], vec![-0.001; tokens]];
        PatchGrid { clean, corrupted, differences: [2.0, -1.5], layers: vec![0, 1], shares }
    }

    #[test]
    fn columns_name_both_tokens_where_they_differ() {
        assert_eq!(grid(3).columns(), ["\u{2423}a/b", "</a>", "\u{2423}a"]);
        let text = grid(3).to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[2], "            \u{2423}a/b   </a>     \u{2423}a");
        assert_eq!(lines[3], "layer 0     0.25   0.25   0.25");
        assert_eq!(lines[4], "layer 1    -0.00  -0.00  -0.00");
    }

    #[test]
    fn tokens_that_do_not_fit_beside_each_other_follow_below() {
        let text = grid(25).to_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!((text.matches("0.25").count(), text.matches("layer 1").count()), (25, 3));
    }

    #[test]
    fn pictures_and_pages_have_a_square_for_each_share() {
        let drawn = grid(3).to_svg();
        assert_eq!((drawn.matches("<title>").count(), drawn.matches("<rect").count()), (6, 7));
        assert!(drawn.contains("layer 0, &lt;/a&gt;: 0.250") && drawn.starts_with("<svg"));
        let page = grid(3).to_page("<title>");
        assert!(page.contains("<title>&lt;title&gt;</title>") && page.contains("<svg") && !page.contains("src=\""));
    }

    #[test]
    fn numbers_have_at_most_six_characters() {
        assert_eq!([0.0, 0.126, -12.3, 1234.5].map(number), ["0.00", "0.13", "-12.30", "1e3"]);
    }
}
