//! What the tests of `fixtures/stacks` share: their files say how a module is built, and every gradient in them can be seen.

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;
use firelight::kernels::Difference;
use serde::de::DeserializeOwned;

use crate::support::ParameterPath;
use crate::support::golden::Golden;

/// The least share of the largest gradient that every parameter has: see `fixtures/SOURCE.md`.
const LEAST_SHARE: f64 = 0.001;

/// The configuration that a case was computed with.
pub(super) fn config<T: DeserializeOwned>(golden: &Golden, key: &str) -> T {
    let bytes: Vec<u8> = golden.data(key).iter::<u8>().collect();
    serde_json::from_slice(&bytes).expect("a configuration")
}

/// The paths of all parameters.
pub(super) fn paths(module: &impl Module) -> Vec<String> {
    let mut paths = Paths::default();
    module.visit(&mut paths);
    paths.found
}

/// The golden gradients of these parameters are so large that one of zero would be seen; those of a key's bias are
/// zero, and a correction of a choice has none.
pub(super) fn assert_felt(golden: &Golden, paths: &[String]) {
    let size = |path: &String| {
        let gradient = golden.data(&format!("grad.{path}"));
        Difference::between(&gradient, &gradient).largest
    };
    let with_gradient = paths.iter().filter(|path| !path.ends_with("key.bias") && !path.ends_with("correction"));
    let sizes: Vec<(&String, f64)> = with_gradient.map(|path| (path, size(path))).collect();
    let largest = sizes.iter().map(|(_, size)| *size).max_by(f64::total_cmp).expect("a parameter");
    for (path, size) in sizes {
        assert!(size >= LEAST_SHARE * largest, "{path} has gradients up to {size:.1e}, another {largest:.1e}");
    }
}

#[derive(Default)]
struct Paths {
    path: ParameterPath,
    found: Vec<String>,
}

impl ModuleVisitor for Paths {
    fn visit_float<const D: usize>(&mut self, _: &Param<Tensor<D>>) {
        self.found.push(self.path.key());
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}
