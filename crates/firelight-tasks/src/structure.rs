//! What a structure with low-rank adapters tells of a task.

/// The parts of a [`Task`](firelight_training::Task) that follow from its structure: what is wrong with it, its model, and its low-rank
/// adapters. The structure has `validate` and `init_with`; named are its field of the adapters, and how the parts of the model are
/// built that may have some.
///
/// ```ignore
/// structure!(adapters, |config, params| config.transformer.init_with(&params.scope("transformer")));
/// ```
#[macro_export]
macro_rules! structure {
    ($($adapters:ident).+, $adapted:expr) => {
        fn problems(config: &Self::Config) -> Vec<String> {
            $crate::firelight_core::ConfigError::list(config.validate())
        }

        fn model(config: &Self::Config, seed: u64, device: &$crate::burn::tensor::Device) -> Self::Net {
            config.init_with(&$crate::firelight_core::ParamBuilder::new(device, seed))
        }

        fn inspect(
            config: &Self::Config,
            _device: &$crate::burn::tensor::Device,
        ) -> Vec<$crate::firelight_training::Problem> {
            let adapted: fn(&Self::Config, &$crate::firelight_core::ParamBuilder) -> _ = $adapted;
            let adapters = config.$($adapters).+.as_ref();
            let found = $crate::firelight_core::check_adapters(adapters, |params| adapted(config, params));
            $crate::problems([("model", found)])
        }

        fn has_adapters(config: &Self::Config) -> bool {
            config.$($adapters).+.is_some()
        }

        fn merged(config: &Self::Config, model: Self::Net) -> (Self::Config, Self::Net) {
            let mut bare = config.clone();
            bare.$($adapters).+ = None;
            (bare, config.$($adapters).+.iter().fold(model, $crate::firelight_core::merge_adapters))
        }
    };
}
