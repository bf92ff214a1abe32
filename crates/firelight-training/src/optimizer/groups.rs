//! Which parameters are updated alike: the groups of a recipe, decay on matrices only, learning rates that fall with the
//! depth, and the matrices that Muon takes.
//!
//! Source of the layer-wise decay: Clark et al. 2020, ELECTRA, appendix A (<https://arxiv.org/abs/2003.10555>), as BEiT and
//! MAE have it: the layer `i` of `n` has the rate times `decay^(n - i)`, counted from 0, what comes before the layers
//! `decay^(n + 1)`, and what comes after them the whole rate.

use std::collections::BTreeMap;

use burn::module::{Module, ParamId};
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::{OptimizerConfig, OptimizerKind, not_negative};
use crate::config::Problems;
use crate::path::{Parameter, distinct_parameters_of, listed};

/// The name under which stacks keep their layers.
const LAYERS: &str = "blocks";

/// Settings for the parameters whose path fits a pattern: `[[optimizer.groups]]`. What a group leaves out stays as it is; of
/// several groups that fit, the last one with a setting counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// The paths, such as `embedding.*`: `*` stands for any text, dots included, and `?` for one character.
    pub parameters: String,
    /// Scales the learning rate. At least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate_factor: Option<f64>,
    /// Decay of these parameters, vectors included. At least 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f64>,
    /// Whether Muon updates the matrices among them, rather than AdamW. Only with `kind = "muon"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muon: Option<bool>,
}

impl ParameterGroup {
    pub(super) fn check(&self, index: usize, kind: OptimizerKind, problems: &mut Problems) {
        let key = |name: &str| format!("groups[{index}].{name}");
        not_negative(problems, &key("learning_rate_factor"), self.learning_rate_factor.unwrap_or(0.0));
        let decay = self.weight_decay.unwrap_or(0.0);
        match kind {
            OptimizerKind::Adam => problems.require(decay == 0.0, &key("weight_decay"), decay, NO_DECAY),
            _ => not_negative(problems, &key("weight_decay"), decay),
        }
        if let Some(muon) = self.muon {
            problems.require(
                kind == OptimizerKind::Muon,
                &key("muon"),
                muon,
                "left out unless optimizer.kind is `muon`",
            );
        }
    }

    fn matches(&self, path: &str) -> bool {
        WildMatch::new(&self.parameters).matches(path)
    }
}

/// What the decay of plain Adam must be.
pub(super) const NO_DECAY: &str = "0 with kind = \"adam\"; kind = \"adamw\" decays";

/// What parameters of one group have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// Whether Muon updates them.
    pub(super) muon: bool,
    /// Scales the learning rate.
    pub(super) rate_factor: f64,
    pub(super) weight_decay: f64,
}

impl Parameter {
    /// The stack that it is a layer's of, and the number of the layer.
    fn layer(&self) -> Option<(&str, usize)> {
        let (stack, rest) = match self.path.strip_prefix(LAYERS) {
            Some(rest) => ("", rest),
            None => self.path.split_once(".blocks")?,
        };
        let index = rest.strip_prefix('.')?.split('.').next()?.parse().ok()?;
        Some((stack, index))
    }
}

/// The parameters of a model in the order of a visit, each once however many places it has.
#[derive(Debug)]
pub(super) struct Parameters {
    all: Vec<Parameter>,
}

impl Parameters {
    pub(super) fn of<M: Module>(model: &M) -> Self {
        Self { all: distinct_parameters_of(model) }
    }

    /// The parameters by what they share, in the order in which the shares are met.
    pub(super) fn shares(&self, config: &OptimizerConfig) -> Vec<(Share, Vec<ParamId>)> {
        let mut shares: Vec<(Share, Vec<ParamId>)> = Vec::new();
        for (parameter, depth_factor) in self.all.iter().zip(self.depth_factors(config.layer_decay)) {
            let share = share_of(parameter, depth_factor, config);
            match shares.iter_mut().find(|(known, _)| *known == share) {
                Some((_, ids)) => ids.push(parameter.id),
                None => shares.push((share, vec![parameter.id])),
            }
        }
        shares
    }

    /// Finds what a recipe says of parameters that are not there.
    pub(super) fn check(&self, config: &OptimizerConfig, problems: &mut Problems) {
        for (index, group) in config.groups.iter().enumerate() {
            let fits = self.all.iter().any(|parameter| group.matches(&parameter.path));
            let expected = format!(
                "the pattern of a parameter; there are {}",
                listed(self.all.iter().map(|parameter| &parameter.path))
            );
            let (key, found) = (format!("groups[{index}].parameters"), format!("\"{}\"", group.parameters));
            problems.require(fits, &key, found, &expected);
        }
        let layers = self.all.iter().any(|parameter| parameter.layer().is_some());
        let flat = config.layer_decay == 1.0;
        problems.require(layers || flat, "layer_decay", config.layer_decay, "1 for a model without `blocks`");
        let muon = self.shares(config).iter().any(|(share, _)| share.muon);
        let idle = "given a matrix: none is in `blocks`, and no group says muon = true of one";
        problems.require(muon || config.kind() != OptimizerKind::Muon, "kind", "\"muon\"", idle);
    }

    /// The share of the learning rate by depth.
    fn depth_factors(&self, decay: f64) -> Vec<f64> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (stack, index) in self.all.iter().filter_map(Parameter::layer) {
            let count = counts.entry(stack).or_default();
            *count = (*count).max(index + 1);
        }
        let mut input = true;
        let deepest = counts.values().copied().max().unwrap_or(0);
        let exponent = |parameter: &Parameter| match parameter.layer() {
            Some((stack, index)) => {
                input = false;
                counts[stack] - index
            }
            None if input => deepest + 1,
            None => 0,
        };
        self.all.iter().map(exponent).map(|exponent| decay.powi(exponent.min(i32::MAX as usize) as i32)).collect()
    }
}

fn share_of(parameter: &Parameter, depth_factor: f64, config: &OptimizerConfig) -> Share {
    let is_matrix = parameter.shape.len() >= 2;
    let groups = || config.groups.iter().rev().filter(|group| group.matches(&parameter.path));
    let decay = if is_matrix { config.weight_decay } else { 0.0 };
    let muon = groups().find_map(|group| group.muon).unwrap_or(parameter.layer().is_some());
    Share {
        muon: muon && is_matrix && config.kind() == OptimizerKind::Muon,
        rate_factor: depth_factor * groups().find_map(|group| group.learning_rate_factor).unwrap_or(1.0),
        weight_decay: groups().find_map(|group| group.weight_decay).unwrap_or(decay),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::{AdamConfig, MuonConfig, UpdateRule};
    use burn::module::Param;
    use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::{Device, Tensor};

    #[derive(Module, Debug)]
    struct Stack {
        embedding: Embedding,
        blocks: Vec<Linear>,
        head: Linear,
        tied: Param<Tensor<2>>,
    }

    #[derive(Module, Debug)]
    enum Choice {
        Plain(Linear),
    }

    #[derive(Module, Debug)]
    struct Chosen {
        choice: Choice,
    }

    fn stack() -> Stack {
        let device = Device::default();
        let embedding = EmbeddingConfig::new(5, 2).init(&device);
        let linear = || LinearConfig::new(2, 2).init(&device);
        Stack { tied: embedding.weight.clone(), embedding, blocks: vec![linear(), linear()], head: linear() }
    }

    fn group(parameters: &str) -> ParameterGroup {
        ParameterGroup { parameters: parameters.into(), ..ParameterGroup::default() }
    }

    /// Every parameter's path with its share.
    fn shares(config: &OptimizerConfig) -> Vec<(String, Share)> {
        let parameters = Parameters::of(&stack());
        let shares = parameters.shares(config);
        let share_of = |id: &ParamId| shares.iter().find(|(_, ids)| ids.contains(id)).unwrap().0;
        parameters.all.iter().map(|parameter| (parameter.path.clone(), share_of(&parameter.id))).collect()
    }

    #[test]
    fn matrices_alone_decay_and_tied_parameters_count_once() {
        let found = shares(&OptimizerConfig::default());
        let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
        let layers = ["blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"];
        let expected: Vec<&str> = [&["embedding.weight"], &layers[..], &["head.weight", "head.bias"]].concat();
        assert_eq!(paths, expected);
        for (path, share) in found {
            let weight_decay = if path.ends_with("bias") { 0.0 } else { 0.1 };
            assert_eq!(share, Share { muon: false, rate_factor: 1.0, weight_decay }, "{path}");
        }
    }

    #[test]
    fn paths_are_those_of_the_weights_file() {
        let chosen = Chosen { choice: Choice::Plain(LinearConfig::new(1, 1).init(&Device::default())) };
        let paths: Vec<String> = Parameters::of(&chosen).all.into_iter().map(|parameter| parameter.path).collect();
        assert_eq!(paths, ["choice.weight", "choice.bias"]);
    }

    #[test]
    fn the_last_group_with_a_setting_counts() {
        let groups = vec![
            ParameterGroup { learning_rate_factor: Some(0.5), weight_decay: Some(0.3), ..group("*") },
            ParameterGroup { learning_rate_factor: Some(0.25), ..group("blocks.?.weight") },
        ];
        let found = shares(&OptimizerConfig { groups, ..OptimizerConfig::default() });
        for (path, share) in found {
            let rate_factor = if path.starts_with("blocks") && path.ends_with("weight") { 0.25 } else { 0.5 };
            assert_eq!(share, Share { muon: false, rate_factor, weight_decay: 0.3 }, "{path}");
        }
    }

    #[test]
    fn rates_fall_towards_the_input_and_a_group_scales_what_is_left() {
        let factors = |groups| -> Vec<f64> {
            let found = shares(&OptimizerConfig { layer_decay: 0.5, groups, ..OptimizerConfig::default() });
            found.iter().map(|(_, share)| share.rate_factor).collect()
        };
        // Two layers and a decay of a half: an eighth before them, a quarter, a half, and the whole rate after them.
        assert_eq!(factors(vec![]), [0.125, 0.25, 0.25, 0.5, 0.5, 1.0, 1.0]);
        let weights = ParameterGroup { learning_rate_factor: Some(3.0), ..group("blocks.*.weight") };
        assert_eq!(factors(vec![weights]), [0.125, 0.75, 0.25, 1.5, 0.5, 1.0, 1.0]);
    }

    #[test]
    fn muon_takes_the_matrices_of_the_blocks_or_those_that_a_group_names() {
        let of = |groups| {
            let config = OptimizerConfig { groups, ..UpdateRule::Muon(MuonConfig::default()).into() };
            let taken = shares(&config).into_iter().filter(|(_, share)| share.muon).map(|(path, _)| path);
            taken.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(vec![]), "blocks.0.weight blocks.1.weight");
        let [head, first] = [("head.*", true), ("blocks.0.*", false)]
            .map(|(parameters, muon)| ParameterGroup { muon: Some(muon), ..group(parameters) });
        assert_eq!(of(vec![head, first]), "blocks.1.weight head.weight");
    }

    #[test]
    fn what_a_recipe_says_of_parameters_that_are_not_there_is_found() {
        let config = OptimizerConfig { groups: vec![group("embedder.*")], ..OptimizerConfig::default() };
        assert_eq!(
            config.validate_for(&stack()).unwrap_err().to_string(),
            "optimizer.groups[0].parameters = \"embedder.*\" must be the pattern of a parameter; there are \
             `embedding.weight`, `blocks.*.weight`, `blocks.*.bias`, `head.weight`, `head.bias`"
        );
        let head = LinearConfig::new(1, 1).init(&Device::default());
        let config = OptimizerConfig { layer_decay: 0.9, ..UpdateRule::Muon(MuonConfig::default()).into() };
        assert_eq!(
            config.validate_for(&head).unwrap_err().to_string(),
            "optimizer.layer_decay = 0.9 must be 1 for a model without `blocks`; optimizer.kind = \"muon\" must be given \
             a matrix: none is in `blocks`, and no group says muon = true of one"
        );
    }

    #[test]
    fn settings_out_of_range_are_all_listed() {
        let groups = vec![ParameterGroup {
            learning_rate_factor: Some(-1.0),
            weight_decay: Some(0.1),
            muon: Some(true),
            ..group("*")
        }];
        let config = OptimizerConfig { groups, ..UpdateRule::Adam(AdamConfig::vaswani()).into() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "optimizer.groups[0].learning_rate_factor = -1 must be at least 0 and finite; \
             optimizer.groups[0].weight_decay = 0.1 must be 0 with kind = \"adam\"; kind = \"adamw\" decays; \
             optimizer.groups[0].muon = true must be left out unless optimizer.kind is `muon`"
        );
    }
}
