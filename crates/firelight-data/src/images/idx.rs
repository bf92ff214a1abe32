//! IDX, the format of MNIST: a number of any rank with its sizes in front. Gzipped files are unpacked, by their first bytes.
//!
//! Source: LeCun, Cortes and Burges, The MNIST database of handwritten digits, "File formats": two bytes of 0, one for the
//! type (`08` for bytes), one for the rank, the sizes as big-endian 32-bit numbers, then the values, the last index the
//! fastest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use firelight_storage::StorageError;
use flate2::read::MultiGzDecoder;

use super::ImageError;

/// The code of unsigned bytes.
const BYTES: u8 = 0x08;
/// What a gzipped file begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes with their sizes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    pub(super) sizes: Vec<usize>,
    pub(super) values: Vec<u8>,
}

/// Reads a file, unpacked if it is gzipped.
pub(super) fn read(path: &Path) -> Result<Idx, ImageError> {
    let packed = std::fs::read(path).map_err(StorageError::io("read", path))?;
    let not_idx = |reason: String| ImageError::Idx { path: path.into(), reason };
    let mut bytes = if packed.starts_with(&GZIP) {
        let mut unpacked = Vec::new();
        let read = MultiGzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked);
        read.map_err(|error| not_idx(format!("its gzip cannot be unpacked: {error}")))?;
        unpacked
    } else {
        packed
    };
    let (sizes, header) = sizes(&bytes).map_err(not_idx)?;
    bytes.drain(..header);
    Ok(Idx { sizes, values: bytes })
}

/// The sizes that a file names, and the length of its header; the values behind it are as many as these say.
pub(super) fn sizes(bytes: &[u8]) -> Result<(Vec<usize>, usize), String> {
    let Some(&[0, 0, kind, rank]) = bytes.first_chunk::<4>() else {
        return Err("it does not begin with the two zeros of IDX".into());
    };
    if kind != BYTES {
        return Err(format!("its values are of the type {kind:#04x}, expected {BYTES:#04x} for bytes"));
    }
    let header = 4 + 4 * usize::from(rank);
    let Some(sizes) = bytes.get(4..header) else { return Err("its header is cut short".into()) };
    let size =
        |size: &[u8]| usize::try_from(u32::from_be_bytes([size[0], size[1], size[2], size[3]])).unwrap_or(usize::MAX);
    let sizes: Vec<usize> = sizes.chunks_exact(4).map(size).collect();
    let expected = sizes.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
    let found = bytes.len() - header;
    match expected == Some(found) {
        true => Ok((sizes, header)),
        false => Err(format!("its sizes are {sizes:?}, but {found} bytes follow them")),
    }
}

/// Writes the header of values that follow.
pub(super) fn write_header(writer: &mut dyn Write, sizes: &[usize]) -> io::Result<()> {
    let too_large = |_| io::Error::new(io::ErrorKind::InvalidInput, "IDX has sizes of 32 bits");
    writer.write_all(&[0, 0, BYTES, u8::try_from(sizes.len()).map_err(too_large)?])?;
    sizes.iter().try_for_each(|size| writer.write_all(&u32::try_from(*size).map_err(too_large)?.to_be_bytes()))
}

/// A file that lies in memory as the system sees fit.
pub(super) fn map(path: &Path) -> Result<memmap2::Mmap, ImageError> {
    let file = File::open(path).map_err(StorageError::io("read", path))?;
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
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(&file()).unwrap();
        let packed = packer.finish().unwrap();
        assert_eq!(read_bytes(&packed).unwrap(), expected);
        let error = read_bytes(&packed[..packed.len() - 9]).unwrap_err();
        assert!(error.to_string().contains("its gzip cannot be unpacked"), "{error}");
    }

    #[test]
    fn the_header_is_written_as_it_is_read() {
        let mut bytes = Vec::new();
        write_header(&mut bytes, &[2, 2, 3]).unwrap();
        assert_eq!(bytes, file()[..16]);
        assert!(write_header(&mut bytes, &[1 << 33]).is_err());
    }

    #[test]
    fn what_is_no_whole_file_is_told() {
        let refuse = |bytes: &[u8]| read_bytes(bytes).unwrap_err().to_string();
        assert!(refuse(b"PNG").contains("two zeros"));
        assert!(refuse(&[0, 0, 0x0d, 1, 0, 0, 0, 0]).contains("type 0x0d"));
        assert!(refuse(&file()[..9]).contains("header is cut short"));
        assert!(refuse(&file()[..20]).contains("its sizes are [2, 2, 3], but 4 bytes follow"));
        assert!(refuse(&[&file()[..], &[0]].concat()).contains("13 bytes follow"));
    }
}
