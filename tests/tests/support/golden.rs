//! Golden tensors made by PyTorch: `fixtures/core/<name>.safetensors`, described in `fixtures/SOURCE.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, Device, Gradients, Int, Tensor, TensorData};
use firelight::kernels::Difference;
use firelight::nn::EncoderOutput;
use safetensors::{Dtype, SafeTensors};

use super::{ParameterPath, device, tolerance};

/// The gradient of a key's bias is zero in exact arithmetic (a softmax does not change when all its scores move together)
/// and holds the rounding noise of sums of about this size, on both sides.
const KEY_BIAS_SUMS: f64 = 1.0;

/// Below this the gradient of a key's bias is such noise. Rotations and norms of keys make it a gradient as any other.
const KEY_BIAS_NOISE: f64 = 1e-5;

/// What has a gradient and is no parameter.
const INPUTS: [&str; 3] = ["x", "memory", "images"];

/// The three that a fused projection holds in one matrix, in its order.
const PROJECTIONS: [&str; 3] = ["query", "key", "value"];

/// The tensors of one file, by name.
pub(crate) struct Golden {
    name: String,
    tensors: BTreeMap<String, TensorData>,
}

impl Golden {
    pub(crate) fn load(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/core/{name}.safetensors"));
        let bytes = std::fs::read(&path).expect("a fixture");
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let tensors = file.tensors().into_iter().map(|(key, view)| (key, data(&view))).collect();
        Self { name: name.into(), tensors }
    }

    /// The tensors whose name begins with `prefix`, without it.
    pub(crate) fn part(&self, prefix: &str) -> Self {
        let tensors =
            self.tensors.iter().filter_map(|(key, data)| Some((key.strip_prefix(prefix)?.into(), data.clone())));
        Self { name: format!("{}/{prefix}", self.name), tensors: tensors.collect() }
    }

    /// The cases `case0.`, `case1.`, ... of a file of several.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Self> {
        (0..).map(|i| self.part(&format!("case{i}."))).take_while(|case| !case.tensors.is_empty())
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.tensors.contains_key(key)
    }

    pub(crate) fn data(&self, key: &str) -> TensorData {
        self.tensors.get(key).unwrap_or_else(|| panic!("{} has no `{key}`", self.name)).clone()
    }

    pub(crate) fn floats<const D: usize>(&self, key: &str, device: &Device) -> Tensor<D> {
        Tensor::from_data(self.data(key), device)
    }

    /// A float tensor whose gradient will be asked for.
    pub(crate) fn input<const D: usize>(&self, key: &str, device: &Device) -> Tensor<D> {
        self.floats(key, &device.clone().autodiff()).require_grad()
    }

    pub(crate) fn ints<const D: usize>(&self, key: &str, device: &Device) -> Tensor<D, Int> {
        Tensor::from_data(self.data(key), device)
    }

    pub(crate) fn flags<const D: usize>(&self, key: &str, device: &Device) -> Tensor<D, Bool> {
        Tensor::<D, Int>::from_data(self.data(key), device).bool()
    }

    pub(crate) fn number(&self, key: &str) -> f64 {
        self.data(key).iter::<f64>().next().expect("a number")
    }

    /// Compares a tensor with the golden one: largest difference over largest magnitude.
    pub(crate) fn check<const D: usize>(&self, key: &str, found: Tensor<D>) {
        let expected = self.data(key);
        let shape = found.dims();
        assert_eq!(expected.shape().to_vec(), shape.to_vec(), "{}: shape of `{key}`", self.name);
        let difference = Difference::between(&found, &expected);
        let is_noise = key.ends_with("key.bias") && difference.largest < KEY_BIAS_NOISE;
        let relative = difference.relative(if is_noise { KEY_BIAS_SUMS } else { 0.0 });
        assert!(relative <= tolerance(), "{}: `{key}` differs by {relative:.2e} of its size", self.name);
    }

    /// `sum(output * cotangent)`, differentiated.
    pub(crate) fn backward<const D: usize>(&self, output: Tensor<D>) -> Gradients {
        let cotangent = self.floats("cotangent", &output.device());
        (output * cotangent).sum().backward()
    }

    /// Compares the gradient of an input with the golden `grad.<key>`. An expert that no token chose has none here and one of
    /// zeros there.
    pub(crate) fn check_gradient<const D: usize>(&self, key: &str, input: &Tensor<D>, gradients: &Gradients) {
        let key = format!("grad.{key}");
        match input.grad(gradients) {
            Some(found) => self.check(&key, found),
            None => assert!(self.data(&key).iter::<f64>().all(|x| x == 0.0), "{}: no gradient `{key}`", self.name),
        }
    }

    /// The same layer with one matrix for queries, keys and values: `qkv`, their columns side by side.
    pub(crate) fn fused(&self) -> Self {
        let mut tensors = self.tensors.clone();
        for prefix in ["", "grad."] {
            tensors.insert(format!("{prefix}qkv.weight"), self.side_by_side::<2>(prefix, "weight"));
            tensors.insert(format!("{prefix}qkv.bias"), self.side_by_side::<1>(prefix, "bias"));
        }
        tensors.retain(|key, _| !PROJECTIONS.iter().any(|name| key.contains(&format!("{name}."))));
        Self { name: format!("{} fused", self.name), tensors }
    }

    fn side_by_side<const D: usize>(&self, prefix: &str, kind: &str) -> TensorData {
        let part = |name| self.floats::<D>(&format!("{prefix}{name}.{kind}"), &device());
        Tensor::cat(PROJECTIONS.map(part).to_vec(), D - 1).into_data()
    }

    /// Gives every parameter of `module` its golden value; every golden parameter must be taken.
    pub(crate) fn fill<M: Module>(&self, module: M) -> M {
        let mut filler = Filler { golden: self, path: ParameterPath::default(), filled: BTreeSet::new() };
        let module = module.map(&mut filler);
        assert_eq!(filler.filled, self.parameters(), "{}: the parameters filled", self.name);
        module
    }

    /// Compares the output of `module`, and the gradients of its inputs and of all its parameters.
    pub(crate) fn agrees<M: Module, const D: usize, const X: usize, const N: usize>(
        &self,
        output: Tensor<D>,
        inputs: [(&str, &Tensor<X>); N],
        module: &M,
    ) {
        self.check("output", output.clone());
        let gradients = self.backward(output);
        for (name, input) in inputs {
            self.check_gradient(name, input, &gradients);
        }
        self.check_gradients(module, &gradients);
    }

    /// Compares the gradient of every parameter of `module`; every golden one must be among them.
    pub(crate) fn check_gradients<M: Module>(&self, module: &M, gradients: &Gradients) {
        let mut checker =
            Checker { golden: self, path: ParameterPath::default(), gradients, compared: BTreeSet::new() };
        module.visit(&mut checker);
        assert_eq!(checker.compared, self.parameters(), "{}: the gradients compared", self.name);
    }

    /// What has a gradient and is no input.
    fn parameters(&self) -> BTreeSet<String> {
        let with_gradient = self.tensors.keys().filter_map(|key| key.strip_prefix("grad."));
        with_gradient.filter(|key| !INPUTS.contains(key)).map(String::from).collect()
    }
}

/// `x`, the memory's vectors, and the memory with its padding.
pub(crate) fn with_memory(golden: &Golden) -> (Tensor<3>, Tensor<3>, EncoderOutput) {
    let (x, hidden) = (golden.input::<3>("x", &device()), golden.input::<3>("memory", &device()));
    let memory = EncoderOutput::new(hidden.clone()).with_padding(Some(golden.flags("memory_padding", &x.device())));
    (x, hidden, memory)
}

fn data(view: &safetensors::tensor::TensorView) -> TensorData {
    let (shape, bytes) = (view.shape().to_vec(), view.data());
    match view.dtype() {
        Dtype::F32 => TensorData::new(numbers(bytes, f32::from_le_bytes), shape),
        Dtype::I64 => TensorData::new(numbers(bytes, i64::from_le_bytes), shape),
        Dtype::U8 => TensorData::new(numbers(bytes, u8::from_le_bytes), shape),
        other => panic!("fixtures hold no {other:?}"),
    }
}

fn numbers<T, const N: usize>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|bytes| read(*bytes)).collect()
}

struct Filler<'a> {
    golden: &'a Golden,
    path: ParameterPath,
    filled: BTreeSet<String>,
}

impl ModuleMapper for Filler<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let key = self.path.key();
        let param = param.map(|old| {
            let new = self.golden.floats::<D>(&key, &old.device());
            assert_eq!(new.dims(), old.dims(), "{}: shape of `{key}`", self.golden.name);
            new.set_require_grad(old.is_require_grad())
        });
        self.filled.insert(key);
        param
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}

struct Checker<'a> {
    golden: &'a Golden,
    path: ParameterPath,
    gradients: &'a Gradients,
    compared: BTreeSet<String>,
}

impl ModuleVisitor for Checker<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let key = self.path.key();
        self.golden.check_gradient(&key, &param.val(), self.gradients);
        self.compared.insert(key);
    }

    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        self.path.exit(container);
    }
}
