//! What every task of a text encoder says alike of its parameters.

use firelight_storage::listed;

/// The heads of all tasks on a text encoder: in a run that begins from one of another task its own head begins anew.
pub(crate) const HEADS: &[&str] = &["head", "next_sentence", "generator"];

/// Why a head of some classes is not one of others.
pub(crate) fn other_classes(found: &[String], own: &[String]) -> Option<String> {
    let words = |classes: &[String]| format!("{} classes ({})", classes.len(), listed(classes));
    (found != own).then(|| format!("is for {}, but the data has {}", words(found), words(own)))
}

/// The parts of a [`Task`](firelight_training::Task) whose structure has an encoder, as its field `encoder`.
macro_rules! on_encoder {
    () => {
        const HEAD: &'static [&'static str] = $crate::on_encoder::HEADS;

        fn problems(config: &Self::Config) -> Vec<String> {
            firelight_core::ConfigError::list(config.validate())
        }

        fn inspect(config: &Self::Config, _device: &burn::tensor::Device) -> Vec<firelight_training::Problem> {
            let encoder =
                |params: &firelight_core::ParamBuilder| config.encoder.init_with(&params.scope($crate::model::ENCODER));
            let found = firelight_core::check_adapters(config.encoder.adapters.as_ref(), encoder);
            firelight_training::Problem::list("model", firelight_core::ConfigError::list(found))
        }

        fn has_adapters(config: &Self::Config) -> bool {
            config.encoder.adapters.is_some()
        }

        fn merged(config: &Self::Config, model: Self::Net) -> (Self::Config, Self::Net) {
            let (mut bare, merged) = (config.clone(), config.encoder.merge(model));
            bare.encoder.adapters = None;
            (bare, merged)
        }
    };
}
pub(crate) use on_encoder;
