//! The `[optimizer]` section as a file has it: one flat list of keys, of which every kind of optimizer reads its own. A key
//! that the kind does not read is refused, and a key that is left out has the kind's default.

use serde::{Deserialize, Serialize};

use super::adafactor::{AdafactorConfig, StepSize};
use super::adam::AdamConfig;
use super::groups::ParameterGroup;
use super::lion::LionConfig;
use super::muon::{MuonConfig, UpdateScale};
use super::{OptimizerConfig, OptimizerKind, UpdateRule};

use OptimizerKind::{Adafactor, Adam, AdamW, Lion, Muon};

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Section {
    kind: OptimizerKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    learning_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beta_1: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beta_2: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_decay: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clip_norm: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_size: Option<StepSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decay_exponent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epsilon_2: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_clip: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    momentum: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    newton_schulz_steps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    update_scale: Option<UpdateScale>,
    #[serde(skip_serializing_if = "Option::is_none")]
    adamw_learning_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layer_decay: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<ParameterGroup>,
}

impl TryFrom<Section> for OptimizerConfig {
    type Error = String;

    fn try_from(section: Section) -> Result<Self, String> {
        section.refuse_foreign_keys()?;
        let defaults = Self::from(section.rule());
        Ok(Self {
            learning_rate: section.learning_rate.unwrap_or(defaults.learning_rate),
            weight_decay: section.weight_decay.unwrap_or(defaults.weight_decay),
            clip_norm: section.clip_norm.unwrap_or(defaults.clip_norm),
            layer_decay: section.layer_decay.unwrap_or(defaults.layer_decay),
            groups: section.groups,
            rule: defaults.rule,
        })
    }
}

impl From<OptimizerConfig> for Section {
    fn from(config: OptimizerConfig) -> Self {
        Self {
            kind: config.kind(),
            learning_rate: Some(config.learning_rate),
            weight_decay: Some(config.weight_decay),
            clip_norm: Some(config.clip_norm),
            layer_decay: Some(config.layer_decay),
            groups: config.groups,
            ..Self::of(config.rule)
        }
    }
}

impl Section {
    /// The keys of a rule.
    fn of(rule: UpdateRule) -> Self {
        match rule {
            UpdateRule::AdamW(config) | UpdateRule::Adam(config) => Self::of_adam(config),
            UpdateRule::Lion(LionConfig { beta_1, beta_2 }) => {
                Self { beta_1: Some(beta_1), beta_2: Some(beta_2), ..Self::default() }
            }
            UpdateRule::Adafactor(config) => Self {
                step_size: Some(config.step_size),
                decay_exponent: Some(config.decay_exponent),
                epsilon: Some(config.epsilon),
                epsilon_2: Some(config.epsilon_2),
                update_clip: Some(config.update_clip),
                ..Self::default()
            },
            UpdateRule::Muon(config) => Self {
                momentum: Some(config.momentum),
                newton_schulz_steps: Some(config.newton_schulz_steps),
                update_scale: Some(config.update_scale),
                adamw_learning_rate: Some(config.adamw_learning_rate),
                ..Self::of_adam(config.adamw)
            },
        }
    }

    fn of_adam(AdamConfig { beta_1, beta_2, epsilon }: AdamConfig) -> Self {
        Self { beta_1: Some(beta_1), beta_2: Some(beta_2), epsilon: Some(epsilon), ..Self::default() }
    }

    fn rule(&self) -> UpdateRule {
        match self.kind {
            AdamW => UpdateRule::AdamW(self.adam(AdamConfig::adamw())),
            Adam => UpdateRule::Adam(self.adam(AdamConfig::vaswani())),
            Lion => UpdateRule::Lion(self.lion(LionConfig::default())),
            Adafactor => UpdateRule::Adafactor(self.adafactor(AdafactorConfig::default())),
            Muon => UpdateRule::Muon(self.muon(MuonConfig::default())),
        }
    }

    fn adam(&self, defaults: AdamConfig) -> AdamConfig {
        AdamConfig {
            beta_1: self.beta_1.unwrap_or(defaults.beta_1),
            beta_2: self.beta_2.unwrap_or(defaults.beta_2),
            epsilon: self.epsilon.unwrap_or(defaults.epsilon),
        }
    }

    fn lion(&self, defaults: LionConfig) -> LionConfig {
        LionConfig { beta_1: self.beta_1.unwrap_or(defaults.beta_1), beta_2: self.beta_2.unwrap_or(defaults.beta_2) }
    }

    fn adafactor(&self, defaults: AdafactorConfig) -> AdafactorConfig {
        AdafactorConfig {
            step_size: self.step_size.unwrap_or(defaults.step_size),
            decay_exponent: self.decay_exponent.unwrap_or(defaults.decay_exponent),
            epsilon: self.epsilon.unwrap_or(defaults.epsilon),
            epsilon_2: self.epsilon_2.unwrap_or(defaults.epsilon_2),
            update_clip: self.update_clip.unwrap_or(defaults.update_clip),
        }
    }

    fn muon(&self, defaults: MuonConfig) -> MuonConfig {
        MuonConfig {
            momentum: self.momentum.unwrap_or(defaults.momentum),
            newton_schulz_steps: self.newton_schulz_steps.unwrap_or(defaults.newton_schulz_steps),
            update_scale: self.update_scale.unwrap_or(defaults.update_scale),
            adamw_learning_rate: self.adamw_learning_rate.unwrap_or(defaults.adamw_learning_rate),
            adamw: self.adam(defaults.adamw),
        }
    }

    fn refuse_foreign_keys(&self) -> Result<(), String> {
        let keys: [(&str, bool, &[OptimizerKind]); 11] = [
            ("beta_1", self.beta_1.is_some(), &[AdamW, Adam, Lion, Muon]),
            ("beta_2", self.beta_2.is_some(), &[AdamW, Adam, Lion, Muon]),
            ("epsilon", self.epsilon.is_some(), &[AdamW, Adam, Adafactor, Muon]),
            ("step_size", self.step_size.is_some(), &[Adafactor]),
            ("decay_exponent", self.decay_exponent.is_some(), &[Adafactor]),
            ("epsilon_2", self.epsilon_2.is_some(), &[Adafactor]),
            ("update_clip", self.update_clip.is_some(), &[Adafactor]),
            ("momentum", self.momentum.is_some(), &[Muon]),
            ("newton_schulz_steps", self.newton_schulz_steps.is_some(), &[Muon]),
            ("update_scale", self.update_scale.is_some(), &[Muon]),
            ("adamw_learning_rate", self.adamw_learning_rate.is_some(), &[Muon]),
        ];
        let foreign = keys.into_iter().find(|(_, given, kinds)| *given && !kinds.contains(&self.kind));
        foreign.map_or(Ok(()), |(key, _, kinds)| {
            let owners: Vec<String> = kinds.iter().map(|kind| format!("\"{}\"", kind.name())).collect();
            let (kind, owners) = (self.kind.name(), owners.join(" or "));
            Err(format!("kind = \"{kind}\" does not read the key `{key}`, which belongs to kind = {owners}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<OptimizerConfig, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_string())
    }

    #[test]
    fn every_kind_has_its_own_defaults_and_comes_back_from_its_own_text() {
        for (kind, rule, learning_rate, weight_decay) in [
            (AdamW, UpdateRule::AdamW(AdamConfig { beta_1: 0.9, beta_2: 0.99, epsilon: 1e-8 }), 1e-3, 0.1),
            (Adam, UpdateRule::Adam(AdamConfig { beta_1: 0.9, beta_2: 0.98, epsilon: 1e-9 }), 1e-3, 0.0),
            (Lion, UpdateRule::Lion(LionConfig { beta_1: 0.9, beta_2: 0.99 }), 1e-4, 1.0),
            (Adafactor, UpdateRule::Adafactor(AdafactorConfig::default()), 1e-2, 0.0),
            (Muon, UpdateRule::Muon(MuonConfig::default()), 0.02, 0.1),
        ] {
            let config = parse(&format!("kind = \"{}\"", kind.name())).unwrap();
            let clip_norm = 1.0;
            let expected =
                OptimizerConfig { rule, learning_rate, weight_decay, clip_norm, layer_decay: 1.0, groups: vec![] };
            assert_eq!(config, expected);
            config.validate().unwrap();
            assert_eq!(parse(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
        assert_eq!(parse("").unwrap(), OptimizerConfig::default());
    }

    #[test]
    fn settings_and_groups_are_read() {
        let text = "kind = \"muon\"\nbeta_2 = 0.95\nupdate_scale = \"adamw_rms\"\nlayer_decay = 0.9\n\n\
                    [[groups]]\nparameters = \"embedding.*\"\nlearning_rate_factor = 0.1\nmuon = false\n";
        let config = parse(text).unwrap();
        let adamw = AdamConfig { beta_2: 0.95, ..AdamConfig::adamw() };
        let muon = MuonConfig { update_scale: UpdateScale::AdamwRms, adamw, ..MuonConfig::default() };
        assert_eq!((config.rule, config.learning_rate), (UpdateRule::Muon(muon), 1e-3));
        assert_eq!((config.layer_decay, config.groups[0].learning_rate_factor), (0.9, Some(0.1)));
        assert_eq!(parse(&toml::to_string(&config).unwrap()).unwrap(), config);
    }

    #[test]
    fn a_key_of_another_kind_is_refused() {
        assert_eq!(
            parse("kind = \"lion\"\nepsilon = 1e-8").unwrap_err(),
            "kind = \"lion\" does not read the key `epsilon`, which belongs to kind = \"adamw\" or \"adam\" or \
             \"adafactor\" or \"muon\""
        );
        assert!(parse("momentum = 0.9").unwrap_err().contains("belongs to kind = \"muon\""));
        assert!(parse("moment = 0.9").unwrap_err().contains("unknown field `moment`"));
    }
}
