//! How numbers become blocks.

use super::BlockFormat;
use super::chunk::{CHUNK, GROUP, widen_half};
use super::search::{Codes, Map, fit_range, fit_scale, largest, range, round};
use burn::tensor::f16;

/// Numbers of a block, and how much the error of each counts: between 0 and 1, and not 0 for all.
#[derive(Clone, Copy)]
struct Numbers<'a> {
    x: &'a [f32],
    w: &'a [f32],
}

/// Fills one block. Without an importance the errors of all numbers count alike.
pub(super) fn encode(format: BlockFormat, x: &[f32], importance: Option<&[f32]>, block: &mut [u8]) {
    let mut weights = [1.0; CHUNK];
    let weights = &mut weights[..x.len()];
    importance.into_iter().for_each(|importance| weigh(importance, weights));
    let numbers = Numbers { x, w: weights };
    match format {
        BlockFormat::Q8_0 => encode_q8_0(numbers, importance.is_some(), block),
        BlockFormat::Q4_0 => encode_q4_0(numbers, importance.is_some(), block),
        BlockFormat::Q4K => RangeBlock::found(numbers, importance.is_some()).write(block),
        BlockFormat::Q6K => ScaleBlock::found(numbers, importance.is_some()).write(block),
    }
}

/// Weights with a maximum of 1, so that their sums neither vanish nor overflow. Where none counts, all do.
fn weigh(importance: &[f32], weights: &mut [f32]) {
    let most = importance.iter().copied().fold(0.0, f32::max);
    if most >= f32::MIN_POSITIVE {
        weights.iter_mut().zip(importance).for_each(|(weight, importance)| *weight = importance / most);
    }
}

/// A block that was tried, with its weighted squared error.
type Tried<B> = (f64, B);

fn best<B>([plain, fitted]: [Tried<B>; 2]) -> B {
    if fitted.0 < plain.0 { fitted.1 } else { plain.1 }
}

/// The bits of the nearest `f16`, and the number that they are.
fn half(number: f32) -> (u16, f32) {
    let bits = f16::from_f32(number).to_bits();
    (bits, widen_half(bits))
}

/// Numbers `[T; 32]` of a block with one scale.
type Small = (u16, [i8; GROUP]);

/// The codes of a fitted scale, unless the plain ones lose less.
fn fitted_small(numbers: Numbers<'_>, plain: Small, codes: &Codes) -> Small {
    let Numbers { x, w } = numbers;
    let scale = widen_half(plain.0);
    let errors = x.iter().zip(w).zip(&plain.1).map(|((&x, &w), &code)| {
        let difference = scale * f32::from(code) - x;
        f64::from(w) * f64::from(difference).powi(2)
    });
    let error = errors.sum();
    let (bits, scale) = half(fit_scale(x, w, codes));
    let mut out = [0; GROUP];
    let fitted = round(x, w, Map { scale, min: 0.0 }, codes, &mut out);
    best([(error, plain), (fitted, (bits, out))])
}

/// The largest magnitude is code 127, and numbers are rounded half away from zero.
///
/// Source: `Q8_0.quantize_blocks` of the Python package `gguf`, bit by bit.
fn encode_q8_0(numbers: Numbers<'_>, is_weighted: bool, block: &mut [u8]) {
    let scale = largest(numbers.x).abs() / 127.0;
    let inverse = finite_inverse(scale);
    let mut small = (half(scale).0, [0; GROUP]);
    small.1.iter_mut().zip(numbers.x).for_each(|(code, x)| *code = (x * inverse).round() as i8);
    if is_weighted {
        small = fitted_small(numbers, small, &(-127..=127));
    }
    block[..2].copy_from_slice(&small.0.to_le_bytes());
    block[2..].iter_mut().zip(small.1).for_each(|(byte, code)| *byte = code as u8);
}

/// The number of largest magnitude is code -8, whatever its sign.
///
/// Source: `Q4_0.quantize_blocks` of the same package.
fn encode_q4_0(numbers: Numbers<'_>, is_weighted: bool, block: &mut [u8]) {
    let scale = largest(numbers.x) / -8.0;
    let inverse = finite_inverse(scale);
    let mut small = (half(scale).0, [0; GROUP]);
    // Truncated after a shift to positive numbers.
    let code = |x: f32| (x * inverse + 8.5).min(15.0) as i8 - 8;
    small.1.iter_mut().zip(numbers.x).for_each(|(out, &x)| *out = code(x));
    if is_weighted {
        small = fitted_small(numbers, small, &(-8..=7));
    }
    block[..2].copy_from_slice(&small.0.to_le_bytes());
    let (lower, upper) = small.1.split_at(GROUP / 2);
    let halves = lower.iter().zip(upper).map(|(lower, upper)| (lower + 8) as u8 | ((upper + 8) as u8) << 4);
    block[2..].iter_mut().zip(halves).for_each(|(byte, halves)| *byte = halves);
}

/// `1 / scale`, or 0 where there is none.
fn finite_inverse(scale: f32) -> f32 {
    Some(1.0 / scale).filter(|inverse| inverse.is_finite()).unwrap_or(0.0)
}

/// Passes over scales and codes in turn; a further one gains next to nothing.
const PASSES: usize = 3;

/// A large block, whose scales are searched for.
trait Search: Copy {
    /// With each scale rounded to the nearest.
    fn plain(numbers: Numbers<'_>) -> Tried<Self>;

    /// With the scales of least error of each group, and those near them.
    fn begun(numbers: Numbers<'_>) -> Tried<Self>;

    /// With the scale of the scales, and that of the minima, of least error for the codes, then codes and all anew.
    fn refitted(self, numbers: Numbers<'_>) -> Tried<Self>;

    /// The weighted squared error.
    fn error(&self, numbers: Numbers<'_>) -> f64;

    /// The best of some passes.
    fn fitted(numbers: Numbers<'_>) -> Tried<Self> {
        let mut tried = Self::begun(numbers);
        for _ in 1..PASSES {
            let again = tried.1.refitted(numbers);
            if again.0 >= tried.0 {
                break;
            }
            tried = again;
        }
        tried
    }

    /// The block of least error. With weights the one that is best without them is tried as well: a search finds no minimum for certain, and
    /// weights must not make it worse.
    fn found(numbers: Numbers<'_>, is_weighted: bool) -> Self {
        let found = best([Self::plain(numbers), Self::fitted(numbers)]);
        if !is_weighted {
            return found;
        }
        let alike = Self::found(Numbers { w: &[1.0; CHUNK], ..numbers }, false);
        best([(alike.error(numbers), alike), (found.error(numbers), found)])
    }
}

/// A large block with a scale and a minimum for every 32 numbers: Q4_K.
#[derive(Clone, Copy)]
struct RangeBlock {
    scale: u16,
    min: u16,
    scales: [u8; 8],
    mins: [u8; 8],
    codes: [i8; CHUNK],
}

impl RangeBlock {
    const CODES: Codes = 0..=15;
    const ZERO: Self = Self { scale: 0, min: 0, scales: [0; 8], mins: [0; 8], codes: [0; CHUNK] };

    /// With scales and minima near those of the groups, searched for or simply rounded.
    fn of(numbers: Numbers<'_>, maps: [Map; 8], is_searched: bool) -> Tried<Self> {
        let most = |of: fn(&Map) -> f32| maps.iter().map(of).fold(0.0, f32::max) / 63.0;
        let (scale, min) = (half(most(|map| map.scale)), half(most(|map| map.min)));
        let mut block = Self { scale: scale.0, min: min.0, ..Self::ZERO };
        let error = block.fill(numbers, maps, is_searched);
        (error, block)
    }

    /// Chooses the scales, minima and codes of all groups. Returns the error.
    fn fill(&mut self, numbers: Numbers<'_>, maps: [Map; 8], is_searched: bool) -> f64 {
        let (scale, min) = (widen_half(self.scale), widen_half(self.min));
        let mut error = 0.0;
        for (i, (group, map)) in groups::<8>(numbers).into_iter().zip(maps).enumerate() {
            let (near, near_min) = (multiple(map.scale, scale), multiple(map.min, min));
            let around = |near: u8| if is_searched { near.saturating_sub(1)..=(near + 1).min(63) } else { near..=near };
            let mut least = f64::INFINITY;
            for (factor, min_factor) in around(near).flat_map(|a| around(near_min).map(move |b| (a, b))) {
                let map = Map { scale: scale * f32::from(factor), min: min * f32::from(min_factor) };
                let mut codes = [0; GROUP];
                let found = round(group.x, group.w, map, &Self::CODES, &mut codes);
                if found < least {
                    (least, self.scales[i], self.mins[i]) = (found, factor, min_factor);
                    self.codes[i * GROUP..][..GROUP].copy_from_slice(&codes);
                }
            }
            error += least;
        }
        error
    }

    fn maps(&self) -> [Map; 8] {
        let (scale, min) = (widen_half(self.scale), widen_half(self.min));
        let map = |i: usize| Map { scale: scale * f32::from(self.scales[i]), min: min * f32::from(self.mins[i]) };
        std::array::from_fn(map)
    }

    /// See [`Chunk::unpack`](super::chunk::Chunk::unpack) for the layout.
    fn write(&self, block: &mut [u8]) {
        block[..2].copy_from_slice(&self.scale.to_le_bytes());
        block[2..4].copy_from_slice(&self.min.to_le_bytes());
        for i in 0..4 {
            block[4 + i] = self.scales[i] | self.scales[4 + i] >> 4 << 6;
            block[8 + i] = self.mins[i] | self.mins[4 + i] >> 4 << 6;
            block[12 + i] = self.scales[4 + i] & 15 | self.mins[4 + i] << 4;
        }
        let pairs = self.codes.as_chunks::<{ 2 * GROUP }>().0.iter();
        for (codes, bytes) in pairs.zip(block[16..].as_chunks_mut::<GROUP>().0) {
            for i in 0..GROUP {
                bytes[i] = codes[i] as u8 | (codes[GROUP + i] as u8) << 4;
            }
        }
    }
}

impl Search for RangeBlock {
    /// From the ranges of the numbers.
    fn plain(numbers: Numbers<'_>) -> Tried<Self> {
        Self::of(numbers, groups(numbers).map(|group| range(group.x, &Self::CODES)), false)
    }

    fn begun(numbers: Numbers<'_>) -> Tried<Self> {
        Self::of(numbers, groups(numbers).map(|group| fit_range(group.x, group.w, &Self::CODES)), true)
    }

    /// The same scales and minima times the factors of least error.
    fn refitted(mut self, numbers: Numbers<'_>) -> Tried<Self> {
        let maps = self.maps();
        // x ≈ d a - e b with a = scale * code and b the minimum: two unknowns.
        let [mut aa, mut ab, mut bb, mut xa, mut xb] = [0.0f64; 5];
        for (i, ((&x, &w), &code)) in numbers.x.iter().zip(numbers.w).zip(&self.codes).enumerate() {
            let [a, b] = [f32::from(code) * f32::from(self.scales[i / GROUP]), f32::from(self.mins[i / GROUP])];
            let [x, w, a, b] = [x, w, a, b].map(f64::from);
            (aa, ab, bb, xa, xb) = (aa + w * a * a, ab + w * a * b, bb + w * b * b, xa + w * x * a, xb + w * x * b);
        }
        let determinant = aa * bb - ab * ab;
        let (scale, min) = match determinant > 1e-9 * aa * bb {
            true => ((xa * bb - xb * ab) / determinant, (xa * ab - xb * aa) / determinant),
            false => (if aa > 0.0 { xa / aa } else { 0.0 }, 0.0),
        };
        let is_usable = scale > 0.0 && min >= 0.0 && scale.max(min) < f64::from(f16::MAX);
        if is_usable {
            (self.scale, self.min) = (half(scale as f32).0, half(min as f32).0);
        }
        let error = self.fill(numbers, maps, true);
        (error, self)
    }

    fn error(&self, numbers: Numbers<'_>) -> f64 {
        error(numbers, &self.codes, &self.maps())
    }
}

/// The nearest multiple of a unit, in 6 bits.
fn multiple(number: f32, unit: f32) -> u8 {
    (number * finite_inverse(unit)).round().clamp(0.0, 63.0) as u8
}

/// Parts of a large block.
fn groups<const N: usize>(numbers: Numbers<'_>) -> [Numbers<'_>; N] {
    let length = CHUNK / N;
    let part = |i: usize| i * length..(i + 1) * length;
    std::array::from_fn(|i| Numbers { x: &numbers.x[part(i)], w: &numbers.w[part(i)] })
}

/// The weighted squared error of codes, each with the scale and the minimum of its group.
fn error<const N: usize>(numbers: Numbers<'_>, codes: &[i8; CHUNK], maps: &[Map; N]) -> f64 {
    let terms = numbers.x.iter().zip(numbers.w).zip(codes).enumerate().map(|(i, ((&x, &w), &code))| {
        let map = maps[i / (CHUNK / N)];
        let difference = map.scale * f32::from(code) - map.min - x;
        f64::from(w) * f64::from(difference).powi(2)
    });
    terms.sum()
}

/// A large block with a scale for every 16 numbers: Q6_K.
#[derive(Clone, Copy)]
struct ScaleBlock {
    scale: u16,
    scales: [i8; 16],
    codes: [i8; CHUNK],
}

impl ScaleBlock {
    const CODES: Codes = -32..=31;

    fn of(numbers: Numbers<'_>, scales: [f32; 16], is_searched: bool) -> Tried<Self> {
        let mut block = Self { scale: half(largest(&scales) / -128.0).0, scales: [0; 16], codes: [0; CHUNK] };
        let error = block.fill(numbers, scales, is_searched);
        (error, block)
    }

    /// As [`RangeBlock::fill`].
    fn fill(&mut self, numbers: Numbers<'_>, scales: [f32; 16], is_searched: bool) -> f64 {
        let unit = widen_half(self.scale);
        let (inverse, mut error) = (finite_inverse(unit), 0.0);
        for (i, (group, scale)) in groups::<16>(numbers).into_iter().zip(scales).enumerate() {
            let near = (scale * inverse).round().clamp(-128.0, 127.0) as i8;
            let around = match is_searched {
                true => near.saturating_sub(1)..=near.saturating_add(1),
                false => near..=near,
            };
            let mut least = f64::INFINITY;
            for factor in around {
                let mut codes = [0; CHUNK / 16];
                let map = Map { scale: unit * f32::from(factor), min: 0.0 };
                let found = round(group.x, group.w, map, &Self::CODES, &mut codes);
                if found < least {
                    (least, self.scales[i]) = (found, factor);
                    self.codes[i * codes.len()..][..codes.len()].copy_from_slice(&codes);
                }
            }
            error += least;
        }
        error
    }

    fn maps(&self) -> [Map; 16] {
        let unit = widen_half(self.scale);
        self.scales.map(|scale| Map { scale: unit * f32::from(scale), min: 0.0 })
    }

    fn write(&self, block: &mut [u8]) {
        let (lower, rest) = block.split_at_mut(128);
        let (upper, rest) = rest.split_at_mut(64);
        let parts = lower.as_chunks_mut::<64>().0.iter_mut().zip(upper.as_chunks_mut::<32>().0);
        for ((lower, upper), codes) in parts.zip(self.codes.as_chunks::<128>().0) {
            let code = |i: usize| (codes[i] + 32) as u8;
            for (i, byte) in lower.iter_mut().enumerate() {
                *byte = code(i) & 15 | (code(64 + i) & 15) << 4;
            }
            for (i, byte) in upper.iter_mut().enumerate() {
                let [a, b, c, d] = [0, 32, 64, 96].map(|first| code(first + i) >> 4);
                *byte = a | b << 2 | c << 4 | d << 6;
            }
        }
        rest[..16].iter_mut().zip(self.scales).for_each(|(byte, scale)| *byte = scale as u8);
        rest[16..].copy_from_slice(&self.scale.to_le_bytes());
    }
}

impl Search for ScaleBlock {
    /// The number of largest magnitude of every group is code -32, and the largest scale is -128.
    fn plain(numbers: Numbers<'_>) -> Tried<Self> {
        Self::of(numbers, groups(numbers).map(|group| largest(group.x) / -32.0), false)
    }

    fn begun(numbers: Numbers<'_>) -> Tried<Self> {
        Self::of(numbers, groups(numbers).map(|group| fit_scale(group.x, group.w, &Self::CODES)), true)
    }

    fn refitted(mut self, numbers: Numbers<'_>) -> Tried<Self> {
        let scales = self.maps().map(|map| map.scale);
        let [mut aa, mut xa] = [0.0f64; 2];
        for (i, ((&x, &w), &code)) in numbers.x.iter().zip(numbers.w).zip(&self.codes).enumerate() {
            let [x, w, a] = [x, w, f32::from(code) * f32::from(self.scales[i / 16])].map(f64::from);
            (aa, xa) = (aa + w * a * a, xa + w * x * a);
        }
        if aa > 0.0 && (xa / aa).abs() < f64::from(f16::MAX) {
            self.scale = half((xa / aa) as f32).0;
        }
        let error = self.fill(numbers, scales, true);
        (error, self)
    }

    fn error(&self, numbers: Numbers<'_>) -> f64 {
        error(numbers, &self.codes, &self.maps())
    }
}
