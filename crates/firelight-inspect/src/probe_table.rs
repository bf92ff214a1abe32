//! What can be read off each layer: linear probes of labelled texts.
//!
//! Source: Alain and Bengio 2016, <https://arxiv.org/abs/1610.01644>.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use firelight_core::inspect::LinearProbe;
use firelight_core::{ConfigError, Hooks};
use firelight_data::labelled::LabelledText;
use firelight_storage::{InputError, TaskError, shortened};
use serde_json::{Value, json};

use crate::text_model::{TextModel, lacking};

/// What is probed: what the first layer reads, and what each layer leaves.
const PROBED: [&str; 2] = ["embedding", "blocks.*.output"];

/// The penalty of the weights, which keeps them finite where classes can be told apart.
const PENALTY: f64 = 1.0;

/// A probe of one activation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProbedLayer {
    /// The path of the activation.
    pub path: String,
    /// The share of the texts that the probe was fitted on whose label it says.
    pub fitted: f64,
    /// The same of texts that it has not seen.
    pub held_out: f64,
}

/// How well the label of a text can be read off each layer, by a linear map of the mean over its tokens.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProbeTable {
    /// The probes, in the order of the pass.
    pub layers: Vec<ProbedLayer>,
    /// The share of the held-out texts that have the most frequent label of the others: what a probe that sees nothing says.
    pub baseline: f64,
}

impl ProbeTable {
    /// Fits a probe of each layer on some texts, and tries it on others. A pass for each text.
    ///
    /// # Errors
    /// If one of the lists is empty, the texts have fewer than two labels, a held-out label is new, or a text does not fit the model.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use firelight_data::labelled::LabelledText;
    /// use firelight_data::{Tokenizer, TokenizerConfig};
    /// use firelight_inspect::{ProbeTable, TextModel};
    /// use firelight_language::{LanguageModelConfig, TextGenerator};
    ///
    /// let model = LanguageModelConfig::new(256, 16, 2, 1).init(&Device::flex());
    /// let model = TextModel::from(TextGenerator::new(model, Tokenizer::train(&TokenizerConfig::Byte, "")?));
    /// let text = |text: &str, label: &str| LabelledText { text: text.into(), pair: None, label: label.into(), line: 1 };
    /// let texts = [text("aaa", "a"), text("bbb", "b"), text("aaaa", "a"), text("bbbb", "b")];
    /// let table = ProbeTable::measure(&model, &texts[..2], &texts[2..])?;
    /// assert_eq!((table.layers.len(), table.baseline), (2, 0.5)); // The embedding, and the layer.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn measure(model: &TextModel, fitted: &[LabelledText], held_out: &[LabelledText]) -> Result<Self, TaskError> {
        let names = names(fitted, held_out)?;
        let [labels, others] =
            [fitted, held_out].map(|texts| texts.iter().map(|text| names[&text.label]).collect::<Vec<_>>());
        let [seen, unseen] = [features(model, fitted)?, features(model, held_out)?];
        let mut layers = Vec::with_capacity(seen.len());
        for ((path, seen), (_, unseen)) in seen.into_iter().zip(unseen) {
            let [seen, unseen] = standardised(seen, unseen);
            let probe = LinearProbe::logistic(seen.clone(), &labels, PENALTY).map_err(unfit)?;
            let [fitted, held_out] = [probe.accuracy(seen, &labels), probe.accuracy(unseen, &others)];
            layers.push(ProbedLayer { path, fitted, held_out });
        }
        let most = (0..names.len()).max_by_key(|name| labels.iter().filter(|label| *label == name).count());
        let hits = others.iter().filter(|label| Some(**label) == most).count();
        Ok(Self { layers, baseline: hits as f64 / others.len() as f64 })
    }

    /// As text of at most 80 columns.
    pub fn to_text(&self) -> String {
        let row = |layer: &ProbedLayer| format!("{:<24}{:>10.3}{:>10.3}\n", layer.path, layer.held_out, layer.fitted);
        let rows: String = self.layers.iter().map(row).collect();
        let baseline = format!("{:<24}{:>10.3}\n", "most frequent label", self.baseline);
        format!("{:<24}{:>10}{:>10}\n", "accuracy", "held out", "fitted") + &rows + &baseline
    }

    /// As an object.
    pub fn to_json(&self) -> Value {
        let row = |layer: &ProbedLayer| json!({"path": layer.path, "held_out": layer.held_out, "fitted": layer.fitted});
        json!({"baseline": self.baseline, "layers": self.layers.iter().map(row).collect::<Vec<_>>()})
    }
}

fn unfit(error: ConfigError) -> TaskError {
    InputError::new(error.problems().join("; ")).into()
}

/// The number of each label.
fn names(fitted: &[LabelledText], held_out: &[LabelledText]) -> Result<BTreeMap<String, usize>, InputError> {
    let mut names: BTreeMap<String, usize> = fitted.iter().map(|text| (text.label.clone(), 0)).collect();
    (0..).zip(names.values_mut()).for_each(|(number, name)| *name = number);
    if names.len() < 2 || held_out.is_empty() {
        let (labels, texts) = (names.len(), held_out.len());
        let problem = format!(
            "a probe needs texts of two labels, and others to try it on: found {labels} labels and {texts} others"
        );
        return Err(InputError::new(problem).advise("give more texts"));
    }
    match held_out.iter().find(|text| !names.contains_key(&text.label)) {
        None => Ok(names),
        Some(text) => {
            let problem = format!("the label \"{}\" of a held-out text is none of the others", shortened(&text.label));
            Err(InputError::new(problem).advise("give more texts, in an order that mixes the labels"))
        }
    }
}

/// Vectors less the mean of those that were seen, in units of their spread: layers differ in size, and the penalty does not.
fn standardised(seen: Tensor<2>, unseen: Tensor<2>) -> [Tensor<2>; 2] {
    let mean = seen.clone().mean_dim(0);
    let [seen, unseen] = [seen - mean.clone(), unseen - mean];
    let spread = seen.clone().square().mean().into_scalar::<f64>().sqrt().max(1e-12);
    [seen / spread, unseen / spread]
}

/// The mean over the tokens of each text, `[N, D]`, for each activation that is probed.
fn features(model: &TextModel, texts: &[LabelledText]) -> Result<Vec<(String, Tensor<2>)>, TaskError> {
    let mut all: Vec<(String, Vec<Tensor<2>>)> = Vec::new();
    for text in texts {
        let found = means(model, text).map_err(TaskError::in_line(text.line))?;
        match all.is_empty() {
            true => all = found.into_iter().map(|(path, mean)| (path, vec![mean])).collect(),
            false => all.iter_mut().zip(found).for_each(|((_, means), (_, mean))| means.push(mean)),
        }
    }
    Ok(all.into_iter().map(|(path, means)| (path, Tensor::cat(means, 0))).collect())
}

/// Those of one text, `[1, D]`.
fn means(model: &TextModel, text: &LabelledText) -> Result<Vec<(String, Tensor<2>)>, TaskError> {
    let whole = text.pair.as_ref().map_or_else(|| text.text.clone(), |pair| format!("{}\t{pair}", text.text));
    let read = model.read(&whole)?;
    let lacks = lacking("the model has no layers that could be probed");
    let mut hooks = PROBED.iter().fold(Hooks::new(), |hooks, path| hooks.record(*path));
    let (_, found) = hooks.run(|pass| model.hidden(&read, pass)).map_err(&lacks)?;
    let mean = |path: &str| -> Result<(String, Tensor<2>), TaskError> {
        let stream = found.get::<3>(path).map_err(&lacks)?;
        let width = stream.dims()[2];
        Ok((path.to_string(), stream.mean_dim(1).reshape([1, width])))
    };
    found.paths().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(label: &str) -> LabelledText {
        LabelledText { text: "a".into(), pair: None, label: label.into(), line: 1 }
    }

    #[test]
    fn labels_are_numbered_in_their_order() {
        let found = names(&[text("b"), text("a"), text("b")], &[text("a")]).unwrap();
        assert_eq!(found, BTreeMap::from([("a".to_string(), 0), ("b".to_string(), 1)]));
        let message = |held_out: &[LabelledText]| names(&[text("a"), text("b")], held_out).unwrap_err().to_string();
        assert!(message(&[]).contains("found 2 labels and 0 others"));
        assert!(message(&[text("c")]).contains("the label \"c\""));
        assert!(names(&[text("a")], &[text("a")]).is_err());
    }

    #[test]
    fn a_row_is_a_layer() {
        let layer = ProbedLayer { path: "blocks.0.output".into(), fitted: 1.0, held_out: 0.75 };
        let table = ProbeTable { layers: vec![layer], baseline: 0.5 };
        let text = table.to_text();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["blocks.0.output", "0.750", "1.000"]);
        assert_eq!(lines[2], ["most", "frequent", "label", "0.500"]);
        assert_eq!(table.to_json()["layers"][0]["held_out"], 0.75);
    }
}
