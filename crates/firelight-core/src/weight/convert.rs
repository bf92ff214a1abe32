//! The weights of a module become blocks, by their paths.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use firelight_kernels::BlockFormat;

use super::module::format_in;
use super::{Blocks, Layout};
use crate::error::{Checks, ConfigError};

// Burn's visitors and mappers see parameters, not the weights that hold them, and a mapper gives a float parameter for a float parameter.
// What a weight and the two of this file have to tell each other about the parameter at hand goes through these cells.
thread_local! {
    /// Rows of blocks and their width, of the weight that is visited, and what a row is.
    pub(super) static SHAPE: Cell<Option<([usize; 2], Layout)>> = const { Cell::new(None) };
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
    /// Whether it is a table, whose rows are those of the parameter, `[rows, width]`; else it is a linear map, `[width, rows]`.
    pub is_table: bool,
    /// What its blocks hold; none of floats.
    pub format: Option<BlockFormat>,
}

impl WeightEntry {
    /// Whether rows of its width consist of whole blocks.
    pub fn fits(&self, format: BlockFormat) -> bool {
        format.row_bytes(self.width).is_some()
    }

    /// Bytes of its numbers; floats are in single precision.
    pub fn bytes(&self) -> usize {
        let row = self.format.and_then(|format| format.row_bytes(self.width));
        self.rows * row.unwrap_or(self.width * crate::cost::FLOAT)
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
    let order = |entry: WeightEntry| {
        let is_possible = |format: &BlockFormat| entry.format.is_none() && entry.fits(*format);
        let format = choose(&entry).filter(is_possible)?;
        Some((entry.path, Order { format, fill: Fill::Numbers }))
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
    entries: Vec<WeightEntry>,
}

impl List {
    fn note(&mut self) {
        if let Some(([rows, width], layout)) = SHAPE.take() {
            let (path, is_table) = (self.path.join("."), layout == Layout::Rows);
            self.entries.push(WeightEntry { path, rows, width, is_table, format: self.format });
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

    fn visit_float<const D: usize>(&mut self, _param: &Param<Tensor<D>>) {
        self.note();
    }

    fn visit_int<const D: usize>(&mut self, _param: &Param<Tensor<D, Int>>) {
        self.note();
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
        ORDER.set(self.orders.get(&self.path.join(".")).copied());
        param
    }
}

/// The variants of an enum are no part of a path, as in the weight file.
fn is_variant(container: &str) -> bool {
    container.starts_with("Enum:")
}

/// The blocks that floats become.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    format: BlockFormat,
    fill: Fill,
}

/// What blocks begin with.
#[derive(Debug, Clone, Copy)]
enum Fill {
    Zeros,
    /// Those of the floats.
    Numbers,
}

impl Order {
    /// # Panics
    /// If rows of the matrix are not of whole blocks.
    pub(super) fn blocks(self, param: &Param<Tensor<2>>, layout: Layout) -> Blocks {
        let [rows, width] = layout.swap(param.lazy_shape().dims());
        let row_bytes = self
            .format
            .row_bytes(width)
            .unwrap_or_else(|| panic!("rows of {width} numbers are not of whole blocks of {}", self.format.name()));
        let bytes = match self.fill {
            Fill::Zeros => zeros(param, [rows, row_bytes]),
            Fill::Numbers => {
                let numbers = layout.transposed(param.val().without_autodiff()).try_into_vec_as::<f32>();
                let bytes = quantized(&numbers.expect("numbers of the device"), [rows, row_bytes], width, self.format);
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
fn quantized(numbers: &[f32], [rows, row_bytes]: [usize; 2], width: usize, format: BlockFormat) -> Vec<u8> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let part = rows.div_ceil(cores).max(1);
    let mut bytes = vec![0; rows * row_bytes];
    thread::scope(|scope| {
        for (numbers, bytes) in numbers.chunks(part * width).zip(bytes.chunks_mut(part * row_bytes)) {
            scope.spawn(move || format.quantize(numbers, None, bytes));
        }
    });
    bytes
}
