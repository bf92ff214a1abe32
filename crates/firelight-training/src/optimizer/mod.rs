//! The optimizer of a recipe: an update rule, decay on matrices only, and groups of parameters. [`OptimizerConfig::init`]
//! gives Burn's `ModuleOptimizer`, so it also serves a plain `Learner`.
//!
//! Each rule has a file of its own, which names its source; `groups.rs` says which parameters are updated alike,
//! `hosted.rs` holds the state, and `section.rs` is the form of all this in a file. Biases, gains and other vectors are not
//! decayed, as in GPT-2 and after.

mod adafactor;
mod adam;
mod groups;
mod hosted;
mod lion;
mod muon;
mod section;

use burn::module::{Module, ParamGroup};
use burn::optim::ModuleOptimizer;
use serde::{Deserialize, Serialize};

pub use adafactor::{AdafactorConfig, StepSize};
pub use adam::AdamConfig;
pub use groups::ParameterGroup;
pub use lion::LionConfig;
pub use muon::{MuonConfig, UpdateScale};

use crate::config::{Problems, SettingsError};
use groups::{NO_DECAY, Parameters, Share};
use hosted::{Decayed, Hosted};
use section::Section;

/// The name of an update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OptimizerKind {
    /// Adam with decoupled weight decay.
    #[default]
    AdamW,
    /// Adam as the original Transformer had it.
    Adam,
    /// The sign of a running mean.
    Lion,
    /// Running squares by rows and columns, steps relative to the parameters.
    Adafactor,
    /// Orthogonal steps for the matrices inside the blocks, AdamW for the rest.
    Muon,
}

impl OptimizerKind {
    /// The kind as a recipe names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AdamW => "adamw",
            Self::Adam => "adam",
            Self::Lion => "lion",
            Self::Adafactor => "adafactor",
            Self::Muon => "muon",
        }
    }
}

/// The update rule with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum UpdateRule {
    /// Adam with decoupled weight decay.
    AdamW(AdamConfig),
    /// Adam, which knows no decay.
    Adam(AdamConfig),
    /// The sign of a running mean.
    Lion(LionConfig),
    /// Running squares by rows and columns.
    Adafactor(AdafactorConfig),
    /// Orthogonal steps for the matrices inside the blocks, AdamW for the rest.
    Muon(MuonConfig),
}

/// The `[optimizer]` section of a recipe. In a file the settings of the rule stand beside the other keys:
/// `kind = "adamw"`, `beta_1 = 0.9`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Section", into = "Section")]
pub struct OptimizerConfig {
    /// The update rule. Default: AdamW.
    pub rule: UpdateRule,
    /// The peak learning rate, which the schedule scales. Above 0. Default: 0.001 for AdamW and Adam, 0.0001 for Lion, 0.01
    /// for Adafactor, 0.02 for Muon (0.001 where its updates have AdamW's size).
    pub learning_rate: f64,
    /// Decay of the matrices, as a share per unit of learning rate. At least 0, and 0 for Adam. Default: 0.1 for AdamW and
    /// Muon, 1 for Lion, 0 for Adam and Adafactor.
    pub weight_decay: f64,
    /// The largest norm of all gradients together; 0 does not clip. At least 0, default 1.
    pub clip_norm: f64,
    /// The learning rate of every layer is that of the one above it times this. Above 0 and at most 1, default 1.
    pub layer_decay: f64,
    /// Settings of some parameters. Default: none.
    pub groups: Vec<ParameterGroup>,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        UpdateRule::AdamW(AdamConfig::adamw()).into()
    }
}

impl From<UpdateRule> for OptimizerConfig {
    /// The rule with the defaults of its kind.
    fn from(rule: UpdateRule) -> Self {
        let (learning_rate, weight_decay) = match rule {
            UpdateRule::AdamW(_) => (1e-3, 0.1),
            UpdateRule::Adam(_) => (1e-3, 0.0),
            UpdateRule::Lion(_) => (1e-4, 1.0),
            UpdateRule::Adafactor(_) => (1e-2, 0.0),
            UpdateRule::Muon(MuonConfig { update_scale: UpdateScale::AspectRatio, .. }) => (0.02, 0.1),
            UpdateRule::Muon(_) => (1e-3, 0.1),
        };
        Self { rule, learning_rate, weight_decay, clip_norm: 1.0, layer_decay: 1.0, groups: Vec::new() }
    }
}

impl OptimizerConfig {
    /// The name of the update rule.
    pub fn kind(&self) -> OptimizerKind {
        match self.rule {
            UpdateRule::AdamW(_) => OptimizerKind::AdamW,
            UpdateRule::Adam(_) => OptimizerKind::Adam,
            UpdateRule::Lion(_) => OptimizerKind::Lion,
            UpdateRule::Adafactor(_) => OptimizerKind::Adafactor,
            UpdateRule::Muon(_) => OptimizerKind::Muon,
        }
    }

    /// The optimizer of the parameters of `model`. It knows them by their ids: build it after weights are loaded. A parameter
    /// with several places in the model is updated once, and a frozen one, which has no gradient, never.
    ///
    /// `clip_norm` is not its business: see [`clip_global_norm`](crate::clip_global_norm).
    ///
    /// # Panics
    /// With the text of [`validate_for`](Self::validate_for).
    pub fn init<M: Module>(&self, model: &M) -> ModuleOptimizer {
        if let Err(error) = self.validate_for(model) {
            panic!("{error}");
        }
        let rest = Share { muon: false, rate_factor: 1.0, weight_decay: self.weight_decay };
        let others = Parameters::of(model).shares(self).into_iter().filter(|(share, _)| *share != rest);
        others.fold(self.add(None, ParamGroup::all(), rest), |optimizer, (share, ids)| {
            self.add(Some(optimizer), ParamGroup::from_ids(ids), share)
        })
    }

    /// Gives the parameters of `group` their rule.
    fn add(&self, optimizer: Option<ModuleOptimizer>, group: ParamGroup, share: Share) -> ModuleOptimizer {
        match self.rule {
            UpdateRule::AdamW(config) | UpdateRule::Adam(config) => share.rule(config).join(optimizer, group),
            UpdateRule::Lion(config) => share.rule(config).join(optimizer, group),
            UpdateRule::Adafactor(config) => share.rule(config).join(optimizer, group),
            UpdateRule::Muon(config) if share.muon => share.rule(config).join(optimizer, group),
            UpdateRule::Muon(MuonConfig { adamw, adamw_learning_rate, .. }) => {
                let rate_factor = share.rate_factor * adamw_learning_rate / self.learning_rate;
                Share { rate_factor, ..share }.rule(adamw).join(optimizer, group)
            }
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns one error that lists all bad fields.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let mut problems = Problems::of("optimizer");
        above_zero(&mut problems, "learning_rate", self.learning_rate);
        self.rule.check(&mut problems);
        match self.rule {
            UpdateRule::Adam(_) => {
                problems.require(self.weight_decay == 0.0, "weight_decay", self.weight_decay, NO_DECAY);
            }
            _ => not_negative(&mut problems, "weight_decay", self.weight_decay),
        }
        not_negative(&mut problems, "clip_norm", self.clip_norm);
        let decay = self.layer_decay;
        problems.require(decay > 0.0 && decay <= 1.0, "layer_decay", decay, "above 0 and at most 1");
        for (index, group) in self.groups.iter().enumerate() {
            group.check(index, self.kind(), &mut problems);
        }
        problems.into_result()
    }

    /// Checks that the parameters that the groups name are there.
    ///
    /// # Errors
    /// Returns one error that lists all patterns that fit no parameter, with the paths that there are.
    pub fn validate_for<M: Module>(&self, model: &M) -> Result<(), SettingsError> {
        let mut problems = Problems::of("optimizer");
        Parameters::of(model).check(self, &mut problems);
        problems.into_result()
    }
}

impl Share {
    /// The rule with these settings, for the parameters that have this in common.
    fn rule<C>(self, config: C) -> Hosted<Decayed<C>> {
        let Self { weight_decay, rate_factor, .. } = self;
        Hosted { rule: Decayed { config, weight_decay }, rate_factor }
    }
}

impl UpdateRule {
    fn check(&self, problems: &mut Problems) {
        match self {
            Self::AdamW(config) | Self::Adam(config) => config.check(problems),
            Self::Lion(config) => config.check(problems),
            Self::Adafactor(config) => config.check(problems),
            Self::Muon(config) => config.check(problems),
        }
    }
}

fn above_zero(problems: &mut Problems, key: &str, value: f64) {
    problems.require(value > 0.0 && value.is_finite(), key, value, "above 0 and finite");
}

fn not_negative(problems: &mut Problems, key: &str, value: f64) {
    problems.require(value >= 0.0 && value.is_finite(), key, value, "at least 0 and finite");
}

fn below_one(problems: &mut Problems, key: &str, value: f64) {
    problems.require((0.0..1.0).contains(&value), key, value, "in [0, 1)");
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::module::Param;
    use burn::nn::{Linear, LinearConfig};
    use burn::optim::GradientsParams;
    use burn::tensor::{Device, Tensor};
    use firelight_kernels::Difference;

    /// A weight and a bias of 2 with gradients of 0.5.
    fn model() -> (Linear, GradientsParams) {
        let device = Device::default().autodiff();
        let mut model = LinearConfig::new(1, 1).init(&device);
        model.weight = Param::from_tensor(Tensor::<2>::from_floats([[2.0]], &device));
        model.bias = Some(Param::from_tensor(Tensor::<1>::from_floats([2.0], &device)));
        let mut gradients = GradientsParams::new();
        let inner = device.inner();
        gradients.register(model.weight.id, Tensor::<2>::from_floats([[0.5]], &inner));
        gradients.register(model.bias.as_ref().unwrap().id, Tensor::<1>::from_floats([0.5], &inner));
        (model, gradients)
    }

    /// Weight and bias after one step at a rate of 0.1.
    fn stepped(config: &OptimizerConfig) -> [f64; 2] {
        let (model, gradients) = model();
        let model = config.init(&model).step(0.1, model, gradients);
        [model.weight.val().into_scalar(), model.bias.unwrap().val().into_scalar()]
    }

    #[track_caller]
    fn close(found: [f64; 2], expected: [f64; 2]) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}, not {expected:?}");
    }

    #[test]
    fn decay_shrinks_matrices_and_spares_vectors() {
        // The first step of Adam moves by the learning rate against the sign: 2 - 0.1, and the matrix shrinks first by
        // the factor 1 - 0.1 * 0.5.
        close(stepped(&OptimizerConfig { weight_decay: 0.5, ..OptimizerConfig::default() }), [1.8, 1.9]);
        let lion = UpdateRule::Lion(LionConfig::default());
        close(stepped(&OptimizerConfig { weight_decay: 0.5, ..lion.into() }), [1.8, 1.9]);
        // Adafactor's relative step is the rate times the parameter's size of 2.
        let adafactor = UpdateRule::Adafactor(AdafactorConfig::default());
        close(stepped(&OptimizerConfig { weight_decay: 0.5, ..adafactor.into() }), [1.7, 1.8]);
    }

    #[test]
    fn groups_have_their_own_rate_and_decay() {
        let bias = ParameterGroup {
            parameters: "bias".into(),
            learning_rate_factor: Some(0.5),
            weight_decay: Some(1.0),
            ..ParameterGroup::default()
        };
        // The bias: a rate of 0.05, so 2 (1 - 0.05) - 0.05.
        close(
            stepped(&OptimizerConfig { weight_decay: 0.0, groups: vec![bias], ..OptimizerConfig::default() }),
            [1.9, 1.85],
        );
    }

    #[test]
    fn muon_and_the_adamw_beside_it_have_rates_of_their_own() {
        // Five iterations take 1 to a singular value of s; the vector's rate is 0.1 times a tenth.
        let at = |x: f64| 3.4445 * x - 4.7750 * x.powi(3) + 2.0315 * x.powi(5);
        let s = (0..5).fold(1.0, |x, _| at(x));
        let weight = ParameterGroup { parameters: "weight".into(), muon: Some(true), ..ParameterGroup::default() };
        let muon = UpdateRule::Muon(MuonConfig { adamw_learning_rate: 0.002, ..MuonConfig::default() });
        let config = OptimizerConfig { weight_decay: 0.0, groups: vec![weight], ..muon.into() };
        close(stepped(&config), [2.0 - 0.1 * s, 2.0 - 0.01]);
    }

    #[test]
    fn a_frozen_parameter_stays_as_it_is() {
        let (model, _) = model();
        let model = Linear { weight: model.weight.no_grad(), ..model };
        let device = Device::default().autodiff();
        let loss = model.forward(Tensor::<2>::ones([1, 1], &device)).sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let model = OptimizerConfig::default().init(&model).step(0.1, model, gradients);
        close([model.weight.val().into_scalar(), model.bias.unwrap().val().into_scalar()], [2.0, 1.9]);
    }

    /// Each rule, Muon for the weight of a linear map.
    fn every_kind() -> [OptimizerConfig; 5] {
        let weight = ParameterGroup { parameters: "weight".into(), muon: Some(true), ..ParameterGroup::default() };
        let absolute = AdafactorConfig { step_size: StepSize::Absolute, ..AdafactorConfig::default() };
        let muon = UpdateRule::Muon(MuonConfig { adamw_learning_rate: 0.02, ..MuonConfig::default() });
        let muon = OptimizerConfig { groups: vec![weight], ..muon.into() };
        let [adamw, adam] = [UpdateRule::AdamW(AdamConfig::adamw()), UpdateRule::Adam(AdamConfig::vaswani())];
        let rules = [adamw, adam, UpdateRule::Lion(LionConfig::default()), UpdateRule::Adafactor(absolute)];
        let [adamw, adam, lion, adafactor] = rules.map(OptimizerConfig::from);
        [adamw, adam, lion, adafactor, muon].map(|config| OptimizerConfig { weight_decay: 0.0, ..config })
    }

    /// Weights between -1 and 1, the same every time: Burn's own would be drawn anew.
    fn layer(device: &Device) -> Linear {
        let values: Vec<f32> = (0..15).map(|i| (1.7 * i as f32).sin()).collect();
        let mut layer = LinearConfig::new(3, 5).init(device);
        layer.weight = Param::from_data(burn::tensor::TensorData::new(values, [3, 5]), device);
        layer.bias = Some(Param::from_data([0.3, -0.2, 0.1, 0.4, -0.5], device));
        layer
    }

    /// One step down a bowl whose bottom is at 1 for the weights and at -1 for the biases.
    fn roll(optimizer: &mut ModuleOptimizer, rate: f64, model: Linear) -> Linear {
        let (weight, bias) = (model.weight.val(), model.bias.as_ref().unwrap().val());
        let loss = (weight - 1.0).square().sum() + (bias + 1.0).square().sum();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        optimizer.step(rate, model, gradients)
    }

    /// How far the layer is from the bottom of the bowl, at its farthest number.
    fn farthest(model: &Linear) -> f64 {
        let bias = model.bias.as_ref().map(|bias| bias.val().into_data());
        let sides =
            [Difference::between(&model.weight.val().into_data(), &[1.0; 15]), Difference::between(&bias, &[-1.0; 5])];
        if sides[0].absolute > sides[1].absolute { sides[0].absolute } else { sides[1].absolute }
    }

    #[test]
    fn every_kind_finds_the_bottom_of_a_bowl() {
        let device = Device::default().autodiff();
        for config in every_kind() {
            let mut model = layer(&device);
            let mut optimizer = config.init(&model);
            let rate = config.learning_rate.max(0.02);
            for step in 0..400 {
                model = roll(&mut optimizer, rate * (1.0 - f64::from(step) / 400.0), model);
            }
            // Muon moves by whole singular directions until its rate has fallen.
            assert!(farthest(&model) < 0.2, "{}: {}", config.kind().name(), farthest(&model));
        }
    }

    #[test]
    fn every_kind_continues_to_the_bit_from_its_file() {
        let device = Device::default().autodiff();
        for config in every_kind() {
            let mut model = layer(&device);
            let mut optimizer = config.init(&model);
            for _ in 0..3 {
                model = roll(&mut optimizer, 0.1, model);
            }
            let mut restored = config.init(&model).from_bytes(optimizer.into_bytes().unwrap()).unwrap();
            let [whole, parts] = [&mut optimizer, &mut restored].map(|optimizer| {
                let model = (0..3).fold(model.clone(), |model, _| roll(optimizer, 0.1, model));
                [model.weight.val().into_data(), model.bias.unwrap().val().unsqueeze::<2>().into_data()]
            });
            assert_eq!(whole, parts, "{}", config.kind().name());
        }
    }

    #[test]
    #[should_panic(
        expected = "optimizer.groups[0].parameters = \"gain\" must be the pattern of a parameter; there are"
    )]
    fn a_group_of_nothing_panics() {
        let groups = vec![ParameterGroup { parameters: "gain".into(), ..ParameterGroup::default() }];
        OptimizerConfig { groups, ..OptimizerConfig::default() }.init(&model().0);
    }

    #[test]
    fn every_bad_field_is_listed() {
        let rule = UpdateRule::AdamW(AdamConfig { beta_2: 1.5, ..AdamConfig::adamw() });
        let config = OptimizerConfig { rule, learning_rate: 0.0, clip_norm: f64::NAN, ..OptimizerConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "optimizer.learning_rate = 0 must be above 0 and finite; optimizer.beta_2 = 1.5 must be in [0, 1); \
             optimizer.clip_norm = NaN must be at least 0 and finite"
        );
        let muon =
            MuonConfig { momentum: 1.0, newton_schulz_steps: 0, adamw_learning_rate: -1.0, ..MuonConfig::default() };
        let config = OptimizerConfig { layer_decay: 1.5, ..UpdateRule::Muon(muon).into() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "optimizer.momentum = 1 must be in [0, 1); optimizer.newton_schulz_steps = 0 must be from 1 to 99; \
             optimizer.adamw_learning_rate = -1 must be above 0 and finite; \
             optimizer.layer_decay = 1.5 must be above 0 and at most 1"
        );
        let adam = UpdateRule::Adam(AdamConfig::vaswani());
        let config = OptimizerConfig { weight_decay: 0.1, ..adam.into() };
        assert!(
            config.validate().unwrap_err().to_string().starts_with("optimizer.weight_decay = 0.1 must be 0 with kind")
        );
        OptimizerConfig::default().validate().unwrap();
    }
}
