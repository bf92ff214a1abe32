//! The weights of a module become blocks, by their paths.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use firelight_kernels::BlockFormat;

use super::importance::Importance;
use super::module::format_in;
use super::{Blocks, WeightLayout};
use crate::error::{Checks, ConfigError};

// Burn's visitors and mappers see parameters, not the weights that hold them, and a mapper gives a float parameter for a float parameter.
// What a weight and the two of this file have to tell each other about the parameter at hand goes through these cells.
thread_local! {
    /// Rows of blocks and their width, of the weight that is visited, and what a row is.
    pub(super) static SHAPE: Cell<Option<([usize; 2], WeightLayout)>> = const { Cell::new(None) };
    /// What the weight whose floats were mapped is to become.
    pub(super) static ORDER: Cell<Option<Order>> = const { Cell::new(None) };
    /// Whether the weight whose blocks were mapped is to become floats.
    pub(super) static TO_FLOATS: Cell<bool> = const { Cell::new(false) };
}

/// A matrix of a module that is held in blocks, or could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightEntry {
    /// Its path, as in the weight file: `blocks.0.attention.output.weight`.
    pub path: String,
    /// How many rows of blocks it has: outputs of a linear layer, or tokens of an embedding.
    pub rows: usize,
    /// Numbers of a row.
    pub width: usize,
    /// Whether it is a linear map, whose parameter is `[width, rows]`, or a table, `[rows, width]`.
    pub layout: WeightLayout,
    /// What its blocks hold; none of floats.
    pub format: Option<BlockFormat>,
}

impl WeightEntry {
    /// Whether rows of its width consist of whole blocks.
    pub fn fits(&self, format: BlockFormat) -> bool {
        format.row_bytes(self.width).is_some()
    }

    /// The blocks that it goes into where layers go into `layers`, and embeddings and the head into `ends`; of a matrix in blocks, those that it
    /// has.
    ///
    /// # Errors
    /// Why it stays floats, as a clause: routers of experts do, and rows that are not of whole blocks.
    pub fn mixed(&self, layers: BlockFormat, ends: BlockFormat) -> Result<BlockFormat, String> {
        if let Some(found) = self.format {
            return Ok(found);
        }
        let is_end = self.layout == WeightLayout::Rows || self.path.starts_with("head.");
        let format = if is_end { ends } else { layers };
        if self.path.ends_with(".router.weight") {
            return Err("small differences of a router choose other experts".into());
        }
        let (width, name, numbers) = (self.width, format.name(), format.numbers());
        let unfit = || format!("its rows of {width} numbers are not of whole blocks of {name}, which hold {numbers}");
        if self.fits(format) { Ok(format) } else { Err(unfit()) }
    }

    /// Bytes of its numbers; floats are in single precision.
    pub fn bytes(&self) -> usize {
        let row = self.format.and_then(|format| format.row_bytes(self.width));
        self.rows * row.unwrap_or(self.width * crate::state::FLOAT)
    }
}

/// The matrices of a module that are held in blocks or could be, in the order of the module: those of linear layers, embeddings and heads.
/// None is drawn for it.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{TransformerConfig, weights_of};
///
/// let stack = TransformerConfig::new(64, 4, 2).init(&Device::flex());
/// let first = weights_of(&stack).swap_remove(0);
/// assert_eq!((first.rows, first.width, first.format), (64, 64, None));
/// ```
pub fn weights_of<M: Module>(module: &M) -> Vec<WeightEntry> {
    weights_with_ids(module).into_iter().map(|(entry, _)| entry).collect()
}

/// The same, with the identities of their parameters.
pub(super) fn weights_with_ids<M: Module>(module: &M) -> Vec<(WeightEntry, ParamId)> {
    SHAPE.set(None); // A visitor that panicked may have left one.
    let mut list = List::default();
    module.visit(&mut list);
    list.entries
}

/// Turns floats into blocks: the weights that `choose` names a format for. A weight whose rows are not of whole blocks stays as it is
/// ([`WeightEntry::fits`]), and so does one that is in blocks already. Takes the numbers to the host, one weight after the other.
///
/// Adapters beside the weights stay. A weight in blocks is not trained any more.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{TransformerConfig, quantize, weights_of};
/// use firelight_kernels::BlockFormat;
///
/// let stack = TransformerConfig::new(64, 4, 2).init(&Device::flex());
/// let half = |path: &str| path.starts_with("blocks.0.");
/// let stack = quantize(stack, |weight| half(&weight.path).then_some(BlockFormat::Q4_0));
/// assert!(weights_of(&stack).iter().all(|weight| weight.format.is_some() == half(&weight.path)));
/// ```
pub fn quantize<M: Module>(module: M, choose: impl Fn(&WeightEntry) -> Option<BlockFormat>) -> M {
    quantize_by(module, &Importance::new(), choose)
}

/// As [`quantize`], where the error of each number counts as much as `importance` says for its column: what is multiplied by large numbers is
/// rounded with more care. See [`importance_of`](super::importance_of), which measures it. A weight that it does not name goes into blocks as by
/// [`quantize`].
///
/// # Panics
/// If an importance is not as long as the rows of its weight, negative or not finite.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use firelight_core::{Linear, LinearConfig, WeightEntry, importance_of, quantize, quantize_by};
/// use firelight_kernels::{BlockFormat, Difference};
///
/// let layer = LinearConfig::new(32, 8).init(&Device::flex());
/// let mut outlier = vec![0.1; 32];
/// outlier[5] = 50.0;
/// let x = Tensor::<1>::from_floats(outlier.as_slice(), &Device::flex()).unsqueeze::<2>();
/// let ((), importance) = importance_of(&layer, || drop(layer.forward(x.clone())))?;
///
/// let choose = |_: &WeightEntry| Some(BlockFormat::Q4_0);
/// let exact = layer.forward(x.clone()).into_data();
/// let error = |small: Linear| {
///     let y = x.clone().matmul(small.weight.val()).into_data();
///     Difference::between(&y, &exact).absolute
/// };
/// let (plain, calibrated) = (error(quantize(layer.clone(), choose)), error(quantize_by(layer.clone(), &importance, choose)));
/// assert!(calibrated < plain, "{calibrated} {plain}");
/// # Ok::<(), firelight_core::ConfigError>(())
/// ```
pub fn quantize_by<M: Module>(
    module: M,
    importance: &Importance,
    choose: impl Fn(&WeightEntry) -> Option<BlockFormat>,
) -> M {
    let order = |entry: WeightEntry| {
        let is_possible = |format: &BlockFormat| entry.format.is_none() && entry.fits(*format);
        let format = choose(&entry).filter(is_possible)?;
        let fill = Fill::Numbers { importance: importance.get(&entry.path).cloned() };
        Some((entry.path, Order { format, fill }))
    };
    let orders = weights_of(&module).into_iter().filter_map(order).collect();
    module.map(&mut Convert { path: Vec::new(), orders })
}

/// A module that is to be loaded from a file of blocks: the weights at these paths become blocks of zeros, which no memory is taken for
/// before they are read.
///
/// # Errors
/// Lists the paths at which there is no weight of floats, or one whose rows are not of whole blocks.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use burn::tensor::Device;
/// use firelight_core::{LinearConfig, with_blocks};
/// use firelight_kernels::BlockFormat;
///
/// let layer = LinearConfig::new(64, 3).init(&Device::flex());
/// let layer = with_blocks(layer, &BTreeMap::from([("weight".to_string(), BlockFormat::Q8_0)]))?;
/// assert_eq!(layer.weight.format(), Some(BlockFormat::Q8_0));
/// # Ok::<(), firelight_core::ConfigError>(())
/// ```
pub fn with_blocks<M: Module>(module: M, formats: &BTreeMap<String, BlockFormat>) -> Result<M, ConfigError> {
    let entries = weights_of(&module);
    let problems = formats.iter().filter_map(|(path, format)| problem(&entries, path, *format));
    problems.fold(Checks::default(), |checks, problem| checks.require(false, || problem)).finish()?;
    let orders = formats.iter().map(|(path, format)| (path.clone(), Order { format: *format, fill: Fill::Zeros }));
    Ok(module.map(&mut Convert { path: Vec::new(), orders: orders.collect() }))
}

/// Turns blocks into floats, in single precision: where blocks cannot be multiplied as they lie, this is faster, and takes their memory.
///
/// ```
/// use burn::tensor::Device;
/// use firelight_core::{LinearConfig, dequantize, quantize};
/// use firelight_kernels::BlockFormat;
///
/// let layer = quantize(LinearConfig::new(64, 3).init(&Device::flex()), |_| Some(BlockFormat::Q8_0));
/// assert_eq!(dequantize(layer).weight.format(), None);
/// ```
pub fn dequantize<M: Module>(module: M) -> M {
    let module = module.map(&mut ToFloats);
    TO_FLOATS.set(false); // Integers of other modules may have asked last.
    module
}

struct ToFloats;

impl ModuleMapper for ToFloats {
    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        TO_FLOATS.set(true);
        param
    }
}

/// Why there can be no such blocks.
fn problem(entries: &[WeightEntry], path: &str, format: BlockFormat) -> Option<String> {
    let Some(entry) = entries.iter().find(|entry| entry.path == path) else {
        return Some(format!("`{path}` is no matrix of a linear layer, an embedding or a head of the model"));
    };
    let (name, numbers) = (format.name(), format.numbers());
    if let Some(found) = entry.format {
        return Some(format!("`{path}` is in blocks already ({})", found.name()));
    }
    let text = || format!("`{path}` has rows of {} numbers: blocks of {name} hold {numbers}", entry.width);
    (!entry.fits(format)).then(text)
}

/// Lists weights by the shapes that they tell.
#[derive(Default)]
struct List {
    path: Vec<String>,
    format: Option<BlockFormat>,
    entries: Vec<(WeightEntry, ParamId)>,
}

impl List {
    fn note(&mut self, id: ParamId) {
        if let Some(([rows, width], layout)) = SHAPE.take() {
            let path = self.path.join(".");
            self.entries.push((WeightEntry { path, rows, width, layout, format: self.format }, id));
        }
    }
}

impl ModuleVisitor for List {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.format = format_in(name, container);
        if !is_variant(container) {
            self.path.push(name.into());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        if !is_variant(container) {
            self.path.pop();
        }
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.note(param.id);
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.note(param.id);
    }
}

/// Tells each weight what it is to become.
struct Convert {
    path: Vec<String>,
    orders: BTreeMap<String, Order>,
}

impl ModuleMapper for Convert {
    fn enter_module(&mut self, name: &str, container: &str) {
        if !is_variant(container) {
            self.path.push(name.into());
        }
    }

    fn exit_module(&mut self, _name: &str, container: &str) {
        if !is_variant(container) {
            self.path.pop();
        }
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        ORDER.set(self.orders.remove(&self.path.join(".")));
        param
    }
}

/// The variants of an enum are no part of a path, as in the weight file.
fn is_variant(container: &str) -> bool {
    container.starts_with("Enum:")
}

/// The blocks that floats become.
#[derive(Debug)]
pub(super) struct Order {
    format: BlockFormat,
    fill: Fill,
}

/// What blocks begin with.
#[derive(Debug)]
enum Fill {
    Zeros,
    /// Those of the floats; `importance` weighs the errors of each row.
    Numbers {
        importance: Option<Vec<f32>>,
    },
}

impl Order {
    /// # Panics
    /// If rows of the matrix are not of whole blocks.
    pub(super) fn blocks(self, param: &Param<Tensor<2>>, layout: WeightLayout) -> Blocks {
        let [rows, width] = layout.swap(param.lazy_shape().dims());
        let row_bytes = self
            .format
            .row_bytes(width)
            .unwrap_or_else(|| panic!("rows of {width} numbers are not of whole blocks of {}", self.format.name()));
        let bytes = match self.fill {
            Fill::Zeros => zeros(param, [rows, row_bytes]),
            Fill::Numbers { importance } => {
                let numbers = layout.transposed(param.val().without_autodiff()).try_into_vec_as::<f32>();
                let numbers = numbers.expect("numbers of the device");
                let bytes = quantized((&numbers, width), importance.as_deref(), [rows, row_bytes], self.format);
                let data = TensorData::new(bytes, [rows, row_bytes]);
                Param::initialized(param.id, Tensor::from_data(data, (&param.lazy_device(), DType::U8)))
            }
        };
        Blocks { bytes, format: self.format }
    }
}

/// Bytes that are made when they are first read, if nothing is loaded in their place.
fn zeros(param: &Param<Tensor<2>>, shape: [usize; 2]) -> Param<Tensor<2, Int>> {
    let make = move |device: &Device, _: bool| Tensor::<2, Int>::zeros(shape, (device, DType::U8));
    Param::uninitialized(param.id, make, param.lazy_device(), false, shape.into())
}

/// The bytes of all rows, made by all cores: to choose the scales of small blocks takes long.
fn quantized(
    (numbers, width): (&[f32], usize),
    importance: Option<&[f32]>,
    [rows, row_bytes]: [usize; 2],
    format: BlockFormat,
) -> Vec<u8> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let part = rows.div_ceil(cores).max(1);
    let mut bytes = vec![0; rows * row_bytes];
    thread::scope(|scope| {
        for (numbers, bytes) in numbers.chunks(part * width).zip(bytes.chunks_mut(part * row_bytes)) {
            let rows = numbers.chunks(width).zip(bytes.chunks_mut(row_bytes));
            scope.spawn(move || rows.for_each(|(numbers, bytes)| format.quantize(numbers, importance, bytes)));
        }
    });
    bytes
}
