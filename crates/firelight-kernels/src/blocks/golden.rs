//! Comparison with the Python package `gguf`: `tests/fixtures/block_formats.py` wrote the file.

use super::BlockFormat;
use safetensors::SafeTensors;
use std::path::Path;

fn with_file(check: impl FnOnce(&SafeTensors<'_>)) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/block_formats.safetensors");
    let bytes = std::fs::read(path).expect("the fixture");
    check(&SafeTensors::deserialize(&bytes).expect("a safetensors file"));
}

fn bytes(file: &SafeTensors<'_>, name: &str) -> Vec<u8> {
    file.tensor(name).expect("a tensor of the fixture").data().to_vec()
}

fn numbers(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    bytes(file, name).as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn blocks_are_read_to_the_bit() {
    with_file(|file| {
        for format in BlockFormat::ALL {
            let blocks = bytes(file, &format!("{format}.blocks"));
            let expected = numbers(file, &format!("{format}.numbers"));
            let mut found = vec![f32::NAN; expected.len()];
            format.dequantize(&blocks, &mut found);
            assert!(!found.is_empty());
            assert_eq!(bits(&found), bits(&expected), "{format}");
        }
    });
}

#[test]
fn blocks_are_written_to_the_bit() {
    with_file(|file| {
        let numbers = numbers(file, "numbers");
        for format in [BlockFormat::Q8_0, BlockFormat::Q4_0] {
            let expected = bytes(file, &format!("{format}.written"));
            let mut found = vec![0; expected.len()];
            format.quantize(&numbers, None, &mut found);
            assert!(!found.is_empty());
            assert_eq!(found, expected, "{format}");
        }
    });
}
