//! IDX, the format of MNIST: an array of bytes with its sizes in front. Gzipped files are unpacked, by their first bytes,
//! as far as their sizes say and no further.
//!
//! Source: LeCun, Cortes and Burges, The MNIST database of handwritten digits, "File formats": two bytes of 0, one for the
//! type (`08` for bytes), one for the rank, the sizes as big-endian 32-bit numbers, then the values, the last index the
//! fastest.

use std::io::{self, Read, Write};
use std::path::Path;

use firelight_storage::{InputError, StorageError, open_file, read_file};
use flate2::read::MultiGzDecoder;

use super::ImageError;

/// The code of unsigned bytes.
const BYTES: u8 = 0x08;
/// What a gzipped file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// No file is larger, packed or not, in bytes: EMNIST, the largest of the field, has 640 MB.
const LIMIT: u64 = 4 << 30;

/// Bytes of the longest header.
const HEADER: u64 = 4 + 4 * 4;

/// Bytes with their sizes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    pub(super) sizes: Vec<usize>,
    pub(super) values: Vec<u8>,
}

/// Reads a file, unpacked if it is gzipped.
pub(super) fn read(path: &Path) -> Result<Idx, ImageError> {
    let packed = read_file(path, LIMIT)?;
    let bytes = if packed.starts_with(&GZIP) { unpack(&packed) } else { Ok(packed) };
    let mut bytes = bytes.map_err(|reason| not_idx(path, &reason))?;
    let (sizes, header) = sizes(&bytes).map_err(|reason| not_idx(path, &reason))?;
    bytes.drain(..header);
    Ok(Idx { sizes, values: bytes })
}

/// A file that is no IDX file of bytes, or not the one that was expected.
pub(super) fn not_idx(path: &Path, reason: &str) -> InputError {
    let problem = format!("is no whole IDX file of images or labels: {reason}");
    InputError::in_file(path, problem).advise("fetch it anew")
}

/// Unpacks the header, and then a byte more than it promises at most: the byte gives away what is too long.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("its gzip cannot be unpacked: {error}");
    let mut reader = MultiGzDecoder::new(packed);
    let mut bytes = Vec::new();
    reader.by_ref().take(HEADER).read_to_end(&mut bytes).map_err(failed)?;
    let (sizes, header) = header(&bytes)?;
    let whole = volume(&sizes).and_then(|volume| volume.checked_add(header)).filter(|whole| *whole as u64 <= LIMIT);
    let Some(whole) = whole else {
        return Err(format!("its sizes are {sizes:?}, more than the {LIMIT} bytes that are unpacked"));
    };
    reader.take((whole as u64 + 1).saturating_sub(bytes.len() as u64)).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// The sizes that a file names, and the length of its header; the values behind it are as many as these say.
pub(super) fn sizes(bytes: &[u8]) -> Result<(Vec<usize>, usize), String> {
    let (sizes, header) = header(bytes)?;
    let found = bytes.len() - header;
    match volume(&sizes) {
        Some(expected) if expected == found => Ok((sizes, header)),
        Some(expected) if expected < found => Err(format!("its sizes are {sizes:?}, but more bytes follow them")),
        _ => Err(format!("its sizes are {sizes:?}, but {found} bytes follow them")),
    }
}

/// The sizes that a file names, and the length of its header.
fn header(bytes: &[u8]) -> Result<(Vec<usize>, usize), String> {
    let Some(&[0, 0, kind, rank]) = bytes.first_chunk::<4>() else {
        return Err("it does not begin with the two zeros of IDX".into());
    };
    if kind != BYTES {
        return Err(format!("its values are of the type {kind:#04x}, expected {BYTES:#04x} for bytes"));
    }
    if !(1..=4).contains(&rank) {
        return Err(format!("it has {rank} sizes, expected 1 to 4"));
    }
    let header = 4 + 4 * usize::from(rank);
    let Some(sizes) = bytes.get(4..header) else { return Err("its header is cut short".into()) };
    let size =
        |size: &[u8]| usize::try_from(u32::from_be_bytes([size[0], size[1], size[2], size[3]])).unwrap_or(usize::MAX);
    Ok((sizes.chunks_exact(4).map(size).collect(), header))
}

/// How many values these sizes promise.
fn volume(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1, |product: usize, size| product.checked_mul(*size))
}

/// Writes the header of values that follow.
pub(super) fn write_header(writer: &mut dyn Write, sizes: &[usize]) -> io::Result<()> {
    let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "IDX has sizes of 32 bits");
    writer.write_all(&[0, 0, BYTES, u8::try_from(sizes.len()).map_err(too_large)?])?;
    sizes.iter().try_for_each(|size| writer.write_all(&u32::try_from(*size).map_err(too_large)?.to_be_bytes()))
}

/// A file that lies in memory as the system sees fit.
pub(super) fn map(path: &Path) -> Result<memmap2::Mmap, ImageError> {
    let file = open_file(path)?;
    // SAFETY: the map is only read. Another program that cuts the file short meanwhile could end this one; the documentation of
    // `ImageSet::open` asks callers not to, and `save` never changes a file in place.
    let map = unsafe { memmap2::Mmap::map(&file) };
    Ok(map.map_err(StorageError::io("read", path))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;

    /// Two images of 2 x 3 pixels, as the source describes it.
    fn file() -> Vec<u8> {
        let header = [0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3];
        header.into_iter().chain(1..=12).collect()
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    fn read_bytes(bytes: &[u8]) -> Result<Idx, ImageError> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("images-idx3-ubyte");
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    }

    #[test]
    fn sizes_and_values_are_read_packed_or_not() {
        let expected = Idx { sizes: vec![2, 2, 3], values: (1..=12).collect() };
        assert_eq!(read_bytes(&file()).unwrap(), expected);
        let packed = packed(&file());
        assert_eq!(read_bytes(&packed).unwrap(), expected);
        let error = read_bytes(&packed[..packed.len() - 9]).unwrap_err();
        assert!(error.to_string().contains("its gzip cannot be unpacked"), "{error}");
    }

    #[test]
    fn a_packed_file_is_unpacked_as_far_as_its_sizes_say() {
        // 64 MB of zeros behind 12 values, in 64 KB or so.
        let bomb = packed(&[file(), vec![0; 64 << 20]].concat());
        let unpacked = unpack(&bomb).unwrap();
        assert_eq!(unpacked.len(), file().len() + 1);
        let error = read_bytes(&bomb).unwrap_err().to_string();
        assert!(error.contains("its sizes are [2, 2, 3], but more bytes follow them"), "{error}");

        let mut promising = file();
        promising[4..16].fill(0xff);
        let error = read_bytes(&packed(&promising)).unwrap_err().to_string();
        assert!(error.contains("[4294967295, 4294967295, 4294967295], more than the 4294967296 bytes"), "{error}");
        promising[4..16].copy_from_slice(&[0, 4, 0, 0, 0, 0, 0, 100, 0, 0, 1, 0]);
        let error = read_bytes(&packed(&promising)).unwrap_err().to_string();
        assert!(error.contains("more than the 4294967296 bytes"), "{error}");
    }

    #[test]
    fn the_header_is_written_as_it_is_read() {
        let mut bytes = Vec::new();
        write_header(&mut bytes, &[2, 2, 3]).unwrap();
        assert_eq!(bytes, file()[..16]);
        assert!(write_header(&mut bytes, &[1 << 33]).is_err());
    }

    #[test]
    fn what_is_no_whole_file_is_reported() {
        let refuse = |bytes: &[u8]| read_bytes(bytes).unwrap_err().to_string();
        assert!(refuse(b"PNG").contains("two zeros"));
        assert!(refuse(&[0, 0, 0x0d, 1, 0, 0, 0, 0]).contains("type 0x0d"));
        assert!(refuse(&file()[..9]).contains("header is cut short"));
        assert!(refuse(&file()[..20]).contains("its sizes are [2, 2, 3], but 4 bytes follow"));
        assert!(refuse(&[&file()[..], &[0]].concat()).contains("its sizes are [2, 2, 3], but more bytes follow"));
        assert!(refuse(&[0, 0, 8, 0, 1]).contains("it has 0 sizes, expected 1 to 4"));
        assert!(refuse(&[0, 0, 8, 5, 1]).contains("it has 5 sizes, expected 1 to 4"));
    }
}
