//! Damages valid inputs: bytes, numbers, lines, quotes and brackets, one to six times a case.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What readers stumble over: brackets, quotes, separators, numbers out of range, other encodings.
const TOKENS: [&[u8]; 40] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b",",
    b":",
    b"=",
    b"\t",
    b"\n",
    b"\r\n",
    b"\0",
    b"\\",
    b"\\u0000",
    b"#",
    b"/",
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"inf",
    b"-inf",
    b"18446744073709551616",
    b"9223372036854775807",
    b"1000000000",
    b"0.5",
    b"true",
    b"null",
    b"[]",
    b"{}",
    b"\"\"",
    b"\xff",
    b"\xc3",
    b"\xef\xbb\xbf",
    "\u{0301}".as_bytes(),
    "\u{10ffff}".as_bytes(),
    b"[false]",
    b"[[[[[[[[[[[[[[[[",
    b"\x1f\x8b\x08",
];

/// The most bytes of a case: files grow by copies of their parts.
const LARGEST: usize = 1 << 16;

/// The case of this number: one of the valid inputs, damaged. A number is one case for ever.
///
/// # Panics
/// Panics if there is no valid input.
pub fn mutated(valid: &[Vec<u8>], number: u64) -> Vec<u8> {
    let mut chance = Chance(ChaCha8Rng::seed_from_u64(number));
    let mut bytes = valid[chance.below(valid.len())].clone();
    for _ in 0..=chance.below(6) {
        let other = &valid[chance.below(valid.len())];
        chance.damage(&mut bytes, other);
        bytes.truncate(LARGEST);
    }
    bytes
}

/// Seeded choices.
struct Chance(ChaCha8Rng);

impl Chance {
    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    /// A stretch of up to 64 bytes, or of any length once in four times.
    fn stretch(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let rest = bytes.len() - start;
        let most = if self.below(4) == 0 { rest } else { rest.min(64) };
        start..start + self.below(most + 1)
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let place = self.below(bytes.len() + 1);
        match self.below(11) {
            0 if place < bytes.len() => bytes[place] ^= 1 << self.below(8),
            1 if place < bytes.len() => bytes[place] = self.below(256) as u8,
            2 => drop(bytes.drain(self.stretch(bytes))),
            3 => bytes.truncate(place),
            4 => {
                let token = TOKENS[self.below(TOKENS.len())];
                self.replace(bytes, token);
            }
            5 => drop(bytes.splice(place..place, TOKENS[self.below(TOKENS.len())].iter().copied())),
            6 => self.copy_within(bytes),
            7 => {
                let part = self.stretch(other);
                self.replace(bytes, &other[part]);
            }
            8 => self.change_number(bytes),
            9 => self.exchange_lines(bytes),
            _ => self.repeat(bytes, place),
        }
    }

    fn replace(&mut self, bytes: &mut Vec<u8>, by: &[u8]) {
        bytes.splice(self.stretch(bytes), by.iter().copied());
    }

    fn copy_within(&mut self, bytes: &mut Vec<u8>) {
        let (part, place) = (bytes[self.stretch(bytes)].to_vec(), self.below(bytes.len() + 1));
        bytes.splice(place..place, part);
    }

    /// Replaces a run of digits.
    fn change_number(&mut self, bytes: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..bytes.len())
            .filter(|&at| bytes[at].is_ascii_digit() && (at == 0 || !bytes[at - 1].is_ascii_digit()))
            .collect();
        let Some(&start) = starts.get(self.below(starts.len())) else { return };
        let digits = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let numbers = ["0", "-1", "1", "7", "255", "65536", "1000000", "4294967296", "1e30", "1e-400", "0.1", "nan"];
        bytes.splice(start..start + digits, numbers[self.below(numbers.len())].bytes());
    }

    fn exchange_lines(&mut self, bytes: &mut Vec<u8>) {
        let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        let (one, two) = (self.below(lines.len()), self.below(lines.len()));
        lines.swap(one, two);
        *bytes = lines.join(&b'\n');
    }

    /// A part many times over: depth and length without sense.
    fn repeat(&mut self, bytes: &mut Vec<u8>, place: usize) {
        let part = bytes[self.stretch(bytes)].to_vec();
        let times = [2, 10, 1000][self.below(3)];
        bytes.splice(place..place, part.repeat(times.min(LARGEST / part.len().max(1))));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_is_one_case() {
        let valid = vec![b"{\"one\": 1, \"two\": [2, 22]}\n".to_vec(), b"another\tline\n".to_vec()];
        let cases: BTreeSet<Vec<u8>> = (0..500).map(|number| mutated(&valid, number)).collect();
        assert!(cases.len() > 450, "{} different cases of 500", cases.len());
        assert_eq!(mutated(&valid, 7), mutated(&valid, 7));
        assert!(cases.iter().all(|case| case.len() <= LARGEST));
    }

    #[test]
    fn an_empty_input_is_damaged_too() {
        assert!((0..50).any(|number| !mutated(&[Vec::new()], number).is_empty()));
    }
}
