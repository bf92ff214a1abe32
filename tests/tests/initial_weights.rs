//! The widths of the initial weights in whole stacks, GPT-2's way.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use firelight::nn::{ParamBuilder, TransformerConfig, WeightInit};

use crate::support::{ParameterPath, device};

/// Collects the standard deviation of every matrix.
#[derive(Default)]
struct Deviations {
    path: ParameterPath,
    found: Vec<(String, f64)>,
}

impl ModuleVisitor for Deviations {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if D == 2 {
            let values: Vec<f64> = param.val().into_data().iter::<f64>().collect();
            let variance = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            self.found.push((self.path.key(), variance.sqrt()));
        }
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}

#[test]
fn what_writes_into_the_residual_stream_is_narrowed_by_its_branches() {
    // Two branches per layer, three with cross-attention; 4 + 2 or 4 + 4 + 2 matrices, and the table of positions.
    let gpt = TransformerConfig::new(64, 4, 3);
    let decoder = TransformerConfig::decoder(64, 4, 3);
    for (config, branches, matrices) in [(gpt, 2 * 3, 3 * 6 + 1), (decoder, 3 * 3, 3 * 10 + 1)] {
        let model =
            config.with_max_seq_len(64).with_init(WeightInit::gpt2()).init_with(&ParamBuilder::new(&device(), 0));
        let mut deviations = Deviations::default();
        model.visit(&mut deviations);
        assert_eq!(deviations.found.len(), matrices);
        for (path, found) in deviations.found {
            let writes = path.ends_with("output.weight") || path.ends_with("down.weight");
            let expected = if writes { 0.02 / f64::from(branches).sqrt() } else { 0.02 };
            assert!((found / expected - 1.0).abs() < 0.05, "{path}: {found} for {expected}");
        }
    }
}
