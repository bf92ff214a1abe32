//! The header of a GGUF file: the magic, the version, what the file says of the model, and the table of its tensors.

use std::path::Path;

use firelight_storage::InputError;

use super::metadata::Metadata;
use super::reader::Reader;
use super::tensors::{self, Entry};

pub(super) const MAGIC: [u8; 4] = *b"GGUF";

/// Where data begins, where a file does not say: at multiples of so many bytes.
pub(super) const ALIGNMENT: usize = 32;

/// The most that a file may say.
const LARGEST_ALIGNMENT: usize = 1 << 20;

/// Reads and checks it; `bytes` are the whole file.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<(Metadata, Vec<Entry>), InputError> {
    let mut reader = Reader::new(path, bytes);
    check_begin(&mut reader)?;
    let n_tensors = reader.count(tensors::LEAST, "tensors")?;
    let n_values = reader.count(8 + 4 + 1, "values of metadata")?;
    let metadata = Metadata::read(&mut reader, n_values)?;
    let alignment = metadata.number("general.alignment")?.unwrap_or(ALIGNMENT);
    if !alignment.is_power_of_two() || alignment > LARGEST_ALIGNMENT {
        return Err(metadata.unfit("general.alignment", &format!("a power of two up to {LARGEST_ALIGNMENT}")));
    }
    let tensors = tensors::read(&mut reader, n_tensors, alignment)?;
    Ok((metadata, tensors))
}

/// The magic and the version.
fn check_begin(reader: &mut Reader<'_>) -> Result<(), InputError> {
    let magic: [u8; 4] = reader.array("the first word of a GGUF file")?;
    if magic != MAGIC {
        let found = magic.escape_ascii();
        return Err(reader.damaged(&format!("is no GGUF file: it begins with `{found}`, expected `GGUF`")));
    }
    let file = reader.file();
    let refused = |problem: String| {
        let advice = "convert the model again, with a converter that writes version 3 in little endian";
        InputError::in_file(file, problem).advise(advice)
    };
    match reader.array("the version").map(u32::from_le_bytes)? {
        2 | 3 => Ok(()),
        version if version.swap_bytes() <= 0xFFFF => {
            Err(refused("is a big-endian GGUF file: expected a little-endian one".into()))
        }
        version => Err(refused(format!("is a GGUF file of version {version}: expected 2 or 3"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of these parts: version, number of tensors, number of values, all of the values, the table, bytes of data.
    fn file(counts: [u64; 2], values: &[u8], table: &[u8], data: usize) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(3_u32.to_le_bytes());
        counts.iter().for_each(|count| bytes.extend(count.to_le_bytes()));
        bytes.extend(values);
        bytes.extend(table);
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT) + data, 0);
        bytes
    }

    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
    }

    /// A key, the number of its type, and what follows.
    fn value(key: &str, code: u32, rest: &[u8]) -> Vec<u8> {
        [text(key), code.to_le_bytes().to_vec(), rest.to_vec()].concat()
    }

    fn tensor(name: &str, dims: &[u64], code: u32, offset: u64) -> Vec<u8> {
        let dims_bytes = dims.iter().flat_map(|len| len.to_le_bytes()).collect();
        let count = (dims.len() as u32).to_le_bytes().to_vec();
        [text(name), count, dims_bytes, code.to_le_bytes().to_vec(), offset.to_le_bytes().to_vec()].concat()
    }

    fn found(bytes: &[u8]) -> Result<(Metadata, Vec<Entry>), InputError> {
        read(Path::new("a.gguf"), bytes)
    }

    /// The error begins with the name of the file, and says this.
    fn refuses(bytes: &[u8], expected: &str) {
        let error = found(bytes).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("`a.gguf` ") && error.contains(expected), "{error}\nexpected {expected}");
    }

    #[test]
    fn what_is_whole_is_read() {
        let list = [4_u32.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec(), vec![7, 0, 0, 0, 7, 0, 0, 0]].concat();
        let values = [
            value("a.list", 9, &list),
            value("a.text", 8, &text("b")),
            value("a.float", 6, &1e-6_f32.to_le_bytes()),
            value("a.flag", 7, &[1]),
        ];
        let table = [tensor("w", &[3, 2], 0, 0), tensor("v", &[2], 1, 32)].concat();
        let (metadata, tensors) = found(&file([2, 4], &values.concat(), &table, 64)).unwrap();
        assert_eq!(metadata.number("a.list"), Ok(Some(7)), "all layers have the same");
        assert_eq!((metadata.text("a.text"), metadata.float("a.float")), (Ok(Some("b")), Ok(Some(1e-6))));
        assert_eq!(metadata.flag("a.flag"), Ok(Some(true)));
        assert_eq!((&*tensors[0].shape, tensors[0].place.len()), (&[2, 3][..], 24), "the innermost axis comes last");
        assert_eq!((&*tensors[1].shape, tensors[1].place.len()), (&[2][..], 4));
        assert_eq!(tensors[1].place.start - tensors[0].place.start, 32);
    }

    #[test]
    fn files_of_another_kind_are_told() {
        refuses(b"", "is cut short: the first word of a GGUF file takes 4 bytes");
        refuses(b"PK\x03\x04more", "is no GGUF file: it begins with `PK\\x03\\x04`, expected `GGUF`");
        let version = |version: [u8; 4]| [&MAGIC[..], &version, &[0; 16]].concat();
        refuses(&version([1, 0, 0, 0]), "is a GGUF file of version 1: expected 2 or 3");
        refuses(&version([4, 0, 0, 0]), "is a GGUF file of version 4");
        refuses(&version([0, 0, 0, 3]), "is a big-endian GGUF file");
        assert!(found(&version([2, 0, 0, 0])).is_ok());
    }

    #[test]
    fn every_cut_of_a_header_is_an_error() {
        let values = [value("a.text", 8, &text("some text")), value("general.alignment", 4, &32_u32.to_le_bytes())];
        let whole = file([1, 2], &values.concat(), &tensor("w", &[8], 0, 0), 32);
        assert!(found(&whole).is_ok());
        for cut in 0..whole.len() {
            refuses(&whole[..cut], if cut < whole.len() - 32 { "" } else { "cut short" });
        }
    }

    #[test]
    fn no_number_that_a_file_tells_is_believed() {
        let huge = 1_u64 << 60;
        refuses(&file([huge, 0], &[], &[], 0), "tells of 1152921504606846976 tensors");
        refuses(&file([0, huge], &[], &[], 0), "tells of 1152921504606846976 values of metadata");
        refuses(&file([0, 1], &huge.to_le_bytes(), &[], 64), "a key of the metadata takes 1152921504606846976 bytes");
        let long = value("a", 8, &huge.to_le_bytes());
        refuses(&file([0, 1], &long, &[], 64), "the value of `a` takes 1152921504606846976 bytes");
        let list = |kind: u32| value("a", 9, &[&kind.to_le_bytes()[..], &huge.to_le_bytes()].concat());
        for kind in 0..13 {
            refuses(&file([0, 1], &list(kind), &[], 64), "tells of 1152921504606846976 entries of the value of `a`");
        }
        let nested = (0..6)
            .fold(Vec::new(), |inner: Vec<u8>, _| [&9_u32.to_le_bytes()[..], &1_u64.to_le_bytes(), &inner].concat());
        refuses(&file([0, 1], &value("a", 9, &nested), &[], 64), "lists in lists in lists");
    }

    #[test]
    fn values_that_are_none_are_told_with_their_keys() {
        refuses(&file([0, 1], &value("a", 13, &[0; 8]), &[], 64), "has the value of `a` of the unknown type 13");
        let twice = [value("a", 0, &[1]), value("a", 0, &[1])].concat();
        refuses(&file([0, 2], &twice, &[], 64), "has the key `a` twice");
        let broken = value("a", 8, &[&2_u64.to_le_bytes()[..], &[0xFF, 0xFE]].concat());
        refuses(&file([0, 1], &broken, &[], 64), "has the value of `a` that is no UTF-8");
        for (code, bytes) in
            [(4, 24_u32.to_le_bytes()), (4, [0; 4]), (4, u32::MAX.to_le_bytes()), (6, 32_f32.to_le_bytes())]
        {
            refuses(&file([0, 1], &value("general.alignment", code, &bytes), &[], 64), "has general.alignment = ");
        }
    }

    #[test]
    fn tensors_that_cannot_be_are_told_by_name() {
        let one = |table: &[u8]| file([1, 0], &[], table, 64);
        refuses(&one(&tensor("w", &[], 0, 0)), "has the tensor `w` of 0 axes: expected 1 to 4");
        refuses(&one(&tensor("w", &[1; 5], 0, 0)), "has the tensor `w` of 5 axes");
        refuses(&one(&tensor("w", &[4, 0], 0, 0)), "has an axis of length 0 in the entry of the tensor `w`");
        refuses(&one(&tensor("w", &[1 << 40, 1 << 40], 0, 0)), "which no file can hold");
        refuses(&one(&tensor("w", &[u64::MAX], 0, 0)), "has the tensor `w`");
        refuses(&one(&tensor("w", &[17], 0, 0)), "has the tensor `w` of 68 bytes at 0");
        refuses(&one(&tensor("w", &[1], 0, 1 << 60)), "has the tensor `w` of 4 bytes at 1152921504606846976");
        refuses(&one(&tensor("w", &[1], 0, u64::MAX - 31)), "has the tensor `w` of 4 bytes");
        refuses(&one(&tensor("w", &[1], 0, 4)), "has the tensor `w` at 4: expected a multiple of 32");
        refuses(&one(&tensor("w", &[33, 2], 8, 0)), "rows of 33 numbers: expected a multiple of 32, as it is Q8_0");
        let two = |second: &[u8]| file([2, 0], &[], &[&tensor("w", &[16], 0, 0), second].concat(), 64);
        assert!(found(&two(&tensor("v", &[1], 0, 64))).is_err(), "behind the end");
        refuses(&two(&tensor("v", &[1], 0, 32)), "has the tensors `w` and `v` in the same bytes");
        refuses(&two(&tensor("w", &[1], 0, 32)), "has the tensor `w` twice");
    }

    #[test]
    fn types_that_are_not_read_are_told_all_at_once() {
        let table =
            [tensor("a", &[256], 13, 0), tensor("b", &[256], 19, 0), tensor("c", &[1], 0, 0), tensor("d", &[1], 99, 0)];
        let expected = "has 3 tensors of types that are not read: a (Q5_K), b (IQ1_S), d (the unknown type 99)";
        refuses(&file([4, 0], &[], &table.concat(), 64), expected);
        refuses(&file([4, 0], &[], &table.concat(), 64), "F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K");
    }

    /// Every bit of a header in turn is flipped: an error, or a header, and no panic.
    #[test]
    fn a_flipped_bit_never_panics() {
        let list = [8_u32.to_le_bytes().to_vec(), 2_u64.to_le_bytes().to_vec(), text("x"), text("yz")].concat();
        let values = [value("a.list", 9, &list), value("general.alignment", 4, &32_u32.to_le_bytes())].concat();
        let table = [tensor("w", &[3, 2], 0, 0), tensor("v", &[32], 8, 32)].concat();
        let whole = file([2, 2], &values, &table, 96);
        assert!(found(&whole).is_ok());
        let mut refused = 0;
        for bit in 0..8 * (whole.len() - 96) {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            refused += usize::from(found(&damaged).is_err());
        }
        assert!(refused > 8 * (whole.len() - 96) / 2, "{refused} were refused");
    }
}
