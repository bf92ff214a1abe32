//! What a structure with low-rank adapters tells of a task.

/// The parts of a [`Task`](firelight_training::Task) that follow from its structure: what is wrong with it, its model, its low-rank
/// adapters, and the blocks of few bits that the weights beside them may lie in. The structure has `validate` and `init_with`; named are its
/// field of the adapters, and how the parts of the model are built that may have some.
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
            let floats = $crate::firelight_core::dequantize(model);
            (bare, config.$($adapters).+.iter().fold(floats, $crate::firelight_core::merge_adapters))
        }

        fn base_in_blocks(
            model: &Self::Net,
            format: $crate::firelight_core::BlockFormat,
            is_base: &dyn Fn(&str) -> bool,
        ) -> ::std::collections::BTreeMap<String, $crate::firelight_core::BlockFormat> {
            $crate::base_in_blocks(model, format, is_base)
        }

        fn quantized(
            model: Self::Net,
            formats: &::std::collections::BTreeMap<String, $crate::firelight_core::BlockFormat>,
        ) -> Self::Net {
            $crate::firelight_core::quantize(model, |weight| formats.get(&weight.path).copied())
        }

        fn model_in_blocks(
            config: &Self::Config,
            seed: u64,
            device: &$crate::burn::tensor::Device,
            names: &::std::collections::BTreeMap<String, String>,
        ) -> Result<Self::Net, String> {
            let build = |device: &$crate::burn::tensor::Device| Self::model(config, seed, device);
            $crate::firelight_core::build_in_blocks(names, device, build).map_err(|error| error.to_string())
        }

        fn onto_device(model: Self::Net, device: &$crate::burn::tensor::Device) -> Self::Net {
            $crate::firelight_core::onto_device(model, device)
        }
    };
}
