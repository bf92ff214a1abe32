//! The table of tensors of a GGUF file: where each lies, in what type, of what shape.

use std::collections::BTreeSet;
use std::ops::Range;

use firelight_kernels::BlockFormat;
use firelight_storage::{InputError, listed, shortened};
use safetensors::Dtype;

use super::reader::Reader;

/// Bytes of an entry at least: the length of its name, the number of its axes, one axis, its type, its place.
pub(super) const LEAST: usize = 8 + 4 + 8 + 4 + 8;

/// No tensor has more axes.
const MOST_AXES: u32 = 4;

/// The types by their numbers in the file; those that are left out are no types any more.
const TYPES: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (6, "Q5_0"),
    (7, "Q5_1"),
    (8, "Q8_0"),
    (9, "Q8_1"),
    (10, "Q2_K"),
    (11, "Q3_K"),
    (12, "Q4_K"),
    (13, "Q5_K"),
    (14, "Q6_K"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (30, "BF16"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (39, "MXFP4"),
];

/// How the numbers of a tensor lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    Blocks(BlockFormat),
}

impl Format {
    /// Those that are read and written.
    pub(crate) fn all() -> Vec<Self> {
        [Self::F32, Self::F16, Self::Bf16].into_iter().chain(BlockFormat::ALL.map(Self::Blocks)).collect()
    }

    /// Its name in lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Blocks(format) => format.name(),
        }
    }

    /// Its number in the file.
    pub(super) fn code(self) -> u32 {
        let is_own = |(_, name): &&(u32, &str)| name.eq_ignore_ascii_case(self.name());
        TYPES.iter().find(is_own).map_or(0, |(code, _)| *code)
    }

    fn of(code: u32) -> Option<Self> {
        Self::all().into_iter().find(|format| format.code() == code)
    }

    /// Bytes of a row of so many numbers; none where no whole number of blocks holds it, or they are more than can be counted.
    pub(crate) fn row_bytes(self, width: usize) -> Option<usize> {
        match self {
            Self::F32 => width.checked_mul(4),
            Self::F16 | Self::Bf16 => width.checked_mul(2),
            Self::Blocks(format) => format.row_bytes(width),
        }
    }

    /// The type that its numbers are read as.
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::F16 => Dtype::F16,
            Self::Bf16 => Dtype::BF16,
            Self::F32 | Self::Blocks(_) => Dtype::F32,
        }
    }

    /// The format of its blocks.
    pub(crate) fn blocks(self) -> Option<BlockFormat> {
        match self {
            Self::Blocks(format) => Some(format),
            _ => None,
        }
    }
}

/// A tensor of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The outermost axis first; the file has them the other way round.
    pub(crate) shape: Vec<usize>,
    pub(crate) format: Format,
    /// Its bytes in the file.
    pub(crate) place: Range<usize>,
}

/// An entry as it stands in the table, which the format calls a tensor info.
struct TensorInfo {
    name: String,
    shape: Vec<usize>,
    code: u32,
    offset: u64,
}

/// Reads `count` entries; their bytes lie behind the table, at multiples of `alignment`.
pub(super) fn read(reader: &mut Reader<'_>, count: usize, alignment: usize) -> Result<Vec<Entry>, InputError> {
    let infos = (0..count).map(|_| tensor_info(reader)).collect::<Result<Vec<_>, InputError>>()?;
    check_names(reader, &infos)?;
    check_types(reader, &infos)?;
    let begin = reader.place().checked_next_multiple_of(alignment).unwrap_or(usize::MAX);
    let entries = infos.into_iter().map(|info| placed(reader, info, begin, alignment));
    let entries = entries.collect::<Result<Vec<_>, InputError>>()?;
    check_overlaps(reader, &entries)?;
    Ok(entries)
}

fn tensor_info(reader: &mut Reader<'_>) -> Result<TensorInfo, InputError> {
    let name = reader.text("the name of a tensor")?.to_string();
    let what = format!("the entry of the tensor `{}`", shortened(&name));
    let axes = reader.u32(&what)?;
    if !(1..=MOST_AXES).contains(&axes) {
        let problem = format!("has the tensor `{}` of {axes} axes: expected 1 to {MOST_AXES}", shortened(&name));
        return Err(reader.damaged(&problem));
    }
    let mut shape = Vec::new();
    for _ in 0..axes {
        let len = reader.u64(&what)?;
        match usize::try_from(len) {
            Ok(len) if len > 0 => shape.insert(0, len),
            _ => return Err(reader.damaged(&format!("has an axis of length {len} in {what}: expected 1 or more"))),
        }
    }
    Ok(TensorInfo { name, shape, code: reader.u32(&what)?, offset: reader.u64(&what)? })
}

fn check_names(reader: &Reader<'_>, infos: &[TensorInfo]) -> Result<(), InputError> {
    let mut seen = BTreeSet::new();
    match infos.iter().find(|tensor| !seen.insert(tensor.name.as_str())) {
        Some(twice) => Err(reader.damaged(&format!("has the tensor `{}` twice", shortened(&twice.name)))),
        None => Ok(()),
    }
}

/// Tells all tensors at once that are of a type that is not read.
fn check_types(reader: &Reader<'_>, infos: &[TensorInfo]) -> Result<(), InputError> {
    let type_name = |code: u32| TYPES.iter().find(|(known, _)| *known == code).map(|(_, name)| (*name).to_string());
    let unread = infos.iter().filter(|tensor| Format::of(tensor.code).is_none());
    let unread = unread.map(|tensor| {
        let kind = type_name(tensor.code).unwrap_or_else(|| format!("the unknown type {}", tensor.code));
        format!("{} ({kind})", tensor.name)
    });
    let unread: Vec<String> = unread.collect();
    if unread.is_empty() {
        return Ok(());
    }
    let known: Vec<String> = Format::all().into_iter().map(|format| format.name().to_uppercase()).collect();
    let problem = format!("has {} tensors of types that are not read: {}", unread.len(), listed(&unread));
    let advice = format!("take a file of the types {}", known.join(", "));
    Err(InputError::in_file(reader.file(), problem).advise(advice))
}

/// Where a tensor lies.
fn placed(reader: &Reader<'_>, info: TensorInfo, begin: usize, alignment: usize) -> Result<Entry, InputError> {
    let TensorInfo { name, shape, code, offset } = info;
    let shown = shortened(&name);
    let format = Format::of(code).unwrap_or(Format::F32);
    let width = shape.last().copied().unwrap_or(1);
    let whole = format.blocks().map_or(1, BlockFormat::numbers);
    if !width.is_multiple_of(whole) {
        let kind = format.name().to_uppercase();
        return Err(reader.damaged(&format!(
            "has the tensor `{shown}` with rows of {width} numbers: expected a multiple of {whole}, as it is {kind}"
        )));
    }
    let rows = shape[..shape.len() - 1].iter().try_fold(1_usize, |rows, len| rows.checked_mul(*len));
    let size = rows.zip(format.row_bytes(width)).and_then(|(rows, row)| rows.checked_mul(row));
    // What Rust holds in one piece is half of what can be addressed; as 32-bit floats it may be eight times as large as in the file.
    let size = size.filter(|size| *size <= isize::MAX as usize / 16);
    let size = size.ok_or_else(|| {
        reader.damaged(&format!("has the tensor `{shown}` of the shape {shape:?}, which no file can hold"))
    })?;
    if !offset.is_multiple_of(alignment as u64) {
        let problem =
            format!("has the tensor `{shown}` at {offset}: expected a multiple of {alignment}, its alignment");
        return Err(reader.damaged(&problem));
    }
    let start = usize::try_from(offset).ok().and_then(|offset| begin.checked_add(offset));
    let place =
        start.and_then(|start| Some(start..start.checked_add(size)?)).filter(|place| place.end <= reader.size());
    let place = place.ok_or_else(|| {
        let bytes = reader.size();
        reader.damaged(&format!(
            "has the tensor `{shown}` of {size} bytes at {offset} behind byte {begin}, but only {bytes} bytes: it was cut short, or its \
             table is wrong"
        ))
    })?;
    Ok(Entry { name, shape, format, place })
}

fn check_overlaps(reader: &Reader<'_>, entries: &[Entry]) -> Result<(), InputError> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| entry.place.start);
    match sorted.windows(2).find(|pair| pair[1].place.start < pair[0].place.end) {
        Some(pair) => {
            let [first, second] = [0, 1].map(|index: usize| shortened(&pair[index].name));
            Err(reader.damaged(&format!("has the tensors `{first}` and `{second}` in the same bytes")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The width is a multiple of 32 that 64 bits hold; its bytes, 34 for every 32 numbers, are more than they hold.
    #[test]
    fn a_row_of_more_bytes_than_can_be_counted_is_refused() {
        let width = (u64::MAX / 34 + 1) * 32;
        let mut table = 1_u64.to_le_bytes().to_vec();
        table.push(b'w');
        table.extend(1_u32.to_le_bytes());
        table.extend(width.to_le_bytes());
        table.extend(8_u32.to_le_bytes());
        table.extend(0_u64.to_le_bytes());
        let error = read(&mut Reader::new(Path::new("a.gguf"), &table), 1, 32).map(drop).unwrap_err().to_string();
        assert!(error.contains("has the tensor `w` of the shape [17361641481138401536], which no file"), "{error}");
        assert_eq!(Format::Blocks(BlockFormat::Q8_0).row_bytes(width as usize), None);
    }
}
