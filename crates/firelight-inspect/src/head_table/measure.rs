//! The scores of all heads for a text: what they look at, by the weights of one pass, and what is lost without them, by the loss.

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor};
use firelight_core::inspect::{Columns, Grid, ablation_effects, head_sensitivity, heads};
use firelight_core::{Ablation, Hooks, Pass};
use firelight_data::right_padded;
use firelight_storage::{InputError, TaskError};

use super::kinds::Kinds;
use super::{HeadScore, ScoredHead};
use crate::annotated::Annotations;
use crate::text_model::{ReadText, TextModel, lacking};

/// The weights, and what the heads found.
const WEIGHTS: &str = "blocks.*.attention.weights";
const FOUND: &str = "blocks.*.attention.heads";

/// The scores of a head over several texts, and of how many of them it has each.
struct Sums {
    place: [usize; 2],
    sums: [f64; HeadScore::ALL.len()],
    counts: [usize; HeadScore::ALL.len()],
}

impl Sums {
    fn of(place: [usize; 2], scores: [f64; HeadScore::ALL.len()]) -> Self {
        let sums = scores.map(|score| if score.is_nan() { 0.0 } else { score });
        Self { place, sums, counts: scores.map(|score| usize::from(!score.is_nan())) }
    }

    fn add(&mut self, more: &Self) {
        self.sums.iter_mut().zip(more.sums).for_each(|(sum, more)| *sum += more);
        self.counts.iter_mut().zip(more.counts).for_each(|(count, more)| *count += more);
    }

    fn mean(&self) -> ScoredHead {
        let mean = |place: usize| (self.counts[place] > 0).then(|| self.sums[place] / self.counts[place] as f64);
        ScoredHead { layer: self.place[0], head: self.place[1], scores: std::array::from_fn(mean) }
    }
}

/// Reads texts, each by itself, of which one is on a line of its own where there are several.
///
/// # Errors
/// If one does not fit the model, or is of a single token where the loss is measured.
pub(super) fn read_texts<S: AsRef<str>>(model: &TextModel, texts: &[S]) -> Result<Vec<ReadText>, TaskError> {
    let read = |(line, text): (usize, &S)| {
        let found = model.read(text.as_ref()).and_then(|read| match is_measured(model, &read) {
            true => Ok(read),
            false => {
                let problem = "the text is of one token, of which a language model has no loss";
                Err(InputError::new(problem).advise("give a longer one").into())
            }
        });
        if texts.len() > 1 { found.map_err(TaskError::in_line(line)) } else { found }
    };
    (1..).zip(texts).map(read).collect()
}

/// The same of texts with links; a treebank may have sentences of one token, which are left out.
pub(super) fn read_annotated(model: &TextModel, annotations: &Annotations) -> Result<Vec<ReadText>, TaskError> {
    let mut found = Vec::new();
    for text in annotations.all() {
        let read = model.read(&text.text).map_err(text.at_its_line())?;
        if is_measured(model, &read) {
            found.push(read);
        }
    }
    Ok(found)
}

/// Whether a text has all scores: a language model has no loss of a single token.
fn is_measured(model: &TextModel, read: &ReadText) -> bool {
    model.language().is_none() || read.ids.len() > 1
}

/// The mean scores of all heads over texts, layer by layer; empty without a text.
pub(super) fn of_texts(model: &TextModel, reads: &[ReadText]) -> Result<Vec<ScoredHead>, TaskError> {
    let kinds = Kinds::of(model, reads);
    let mut sums: Vec<Sums> = Vec::new();
    for read in reads {
        let found = of_text(model, read, &kinds)?;
        match sums.is_empty() {
            true => sums = found,
            false => sums.iter_mut().zip(&found).for_each(|(sum, more)| sum.add(more)),
        }
    }
    Ok(sums.iter().map(Sums::mean).collect())
}

/// The scores of all heads for one text.
fn of_text(model: &TextModel, read: &ReadText, kinds: &Kinds) -> Result<Vec<Sums>, TaskError> {
    let layers = weights_of(model, read)?;
    let [ablated, gradients] = importance(model, read)?;
    let kinds = kinds.of_text(model, read)?;
    let mut all = Vec::new();
    for (layer, weights) in layers {
        let looks = looks(weights.clone(), read, kinds.specials)?;
        let [rare, copied, similar] = kinds.scores(model, layer, weights)?;
        all.extend((0..looks[0].len()).map(|head| {
            let scores = std::array::from_fn(|place| match HeadScore::ALL[place] {
                HeadScore::Ablation => at(ablated.as_ref(), layer, head),
                HeadScore::Gradient => at(gradients.as_ref(), layer, head),
                HeadScore::Rare => rare[head],
                HeadScore::Copying => copied.get(head).copied().unwrap_or(f64::NAN),
                HeadScore::Semantic => similar[head],
                // These two are of links.
                HeadScore::Syntactic | HeadScore::Coreference => f64::NAN,
                _ => looks[place][head],
            });
            Sums::of([layer, head], scores)
        }));
    }
    Ok(all)
}

/// The attention weights of each layer that has some, with its place in the stack.
pub(super) fn weights_of(model: &TextModel, read: &ReadText) -> Result<Vec<(usize, Tensor<4>)>, TaskError> {
    let lacks = lacking("the model has no heads that could be scored");
    let (_, found) = Hooks::new().record(WEIGHTS).run(|pass| model.hidden(read, pass)).map_err(&lacks)?;
    let of_path = |path: &str| found.get::<4>(path).map(|weights| (layer_of(path), weights)).map_err(&lacks);
    found.paths().map(of_path).collect()
}

/// The weights of each head of a layer, row by row.
pub(super) fn by_head(weights: Tensor<4>) -> Result<Vec<Vec<f32>>, TaskError> {
    let [_, _, queries, keys] = weights.dims();
    let numbers: Vec<f32> = weights.try_into_vec_as().map_err(TaskError::device("the attention weights"))?;
    Ok(numbers.chunks(queries * keys).map(<[f32]>::to_vec).collect())
}

/// Scores as numbers.
pub(super) fn numbers(scores: Tensor<1>) -> Result<Vec<f64>, TaskError> {
    let numbers: Vec<f32> = scores.try_into_vec_as().map_err(TaskError::device("the scores of heads"))?;
    Ok(numbers.into_iter().map(f64::from).collect())
}

/// What the heads of a layer look at: the first seven scores, each with a number for every head.
fn looks(weights: Tensor<4>, read: &ReadText, specials: &[u32]) -> Result<[Vec<f64>; 7], TaskError> {
    let ids = std::slice::from_ref(&read.ids);
    Ok([
        numbers(heads::entropy(weights.clone()))?,
        numbers(heads::at_distance(weights.clone(), -1))?,
        numbers(heads::at_distance(weights.clone(), 1))?,
        numbers(heads::first_token(weights.clone()))?,
        numbers(heads::on_tokens(weights.clone(), ids, specials))?,
        numbers(heads::same_token(weights.clone(), ids))?,
        numbers(heads::induction(weights, ids))?,
    ])
}

/// By ablation and, with autodiff, by gradient; nothing of a model without a loss.
fn importance(model: &TextModel, read: &ReadText) -> Result<[Option<Grid>; 2], TaskError> {
    let Some(language) = model.language() else { return Ok([None, None]) };
    let lacks = lacking("the model has no heads that could be switched off");
    let loss = |pass: &mut Pass| next_token_loss(model, read, pass);
    let ablated = ablation_effects(FOUND, Columns::Heads, Ablation::Zero, loss).map_err(&lacks)?;
    let has_gradients = language.embedding.weight.device().is_autodiff();
    let gradients = has_gradients.then(|| head_sensitivity(FOUND, loss).map_err(&lacks)).transpose()?;
    Ok([Some(ablated), gradients])
}

/// The mean loss of the next tokens, `[1]`, in nats.
fn next_token_loss(model: &TextModel, read: &ReadText, pass: &mut Pass) -> Tensor<1> {
    let hidden = model.hidden(read, pass);
    let Some(language) = model.language() else { return hidden.mean() * f64::NAN };
    let device = hidden.device();
    let logits = language.logits(hidden);
    let count = read.ids.len() - 1;
    let log_probabilities = log_softmax(logits.narrow(1, 0, count), 2);
    let targets: Tensor<3, Int> = right_padded(&[&read.ids[1..]], &device).0.unsqueeze_dim(2);
    log_probabilities.gather(2, targets).mean().neg()
}

/// The number of a head in a grid; not a number where there is none.
fn at(grid: Option<&Grid>, layer: usize, head: usize) -> f64 {
    let of = |grid: &Grid| {
        let row = grid.paths.iter().position(|path| layer_of(path) == layer)?;
        grid.values[row].get(head).copied()
    };
    grid.and_then(of).unwrap_or(f64::NAN)
}

/// The layer of a path `blocks.N.name`.
pub(crate) fn layer_of(path: &str) -> usize {
    path.split('.').nth(1).and_then(|number| number.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_leave_out_what_a_text_does_not_have() {
        let mut first = [f64::NAN; HeadScore::ALL.len()];
        first[0] = 1.0;
        let mut sums = Sums::of([0, 0], first);
        sums.add(&Sums::of([0, 0], [3.0; HeadScore::ALL.len()]));
        let mean = sums.mean();
        assert_eq!((mean.score(HeadScore::Entropy), mean.score(HeadScore::Same)), (Some(2.0), Some(3.0)));
        assert_eq!(Sums::of([0, 0], first).mean().score(HeadScore::Same), None);
    }
}
