//! Scales that lose least: candidates near the range of the numbers, each refined by weighted least squares.
//!
//! With codes `q` given, the error `Σ w (x - s q)²` is least at `s = Σ w x q / Σ w q²`, where it is `Σ w x²` less the gain
//! `(Σ w x q)² / Σ w q²`; with a minimum beside the scale the normal equations have two unknowns.

/// A scale and a minimum: numbers are `scale * code - min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Map {
    pub(super) scale: f32,
    pub(super) min: f32,
}

/// The codes that a format has.
pub(super) type Codes = std::ops::RangeInclusive<i8>;

/// Lanes that sums are formed in.
const LANES: usize = 8;

/// Below this a range of numbers has no scale whose inverse is finite.
const LEAST_RANGE: f32 = 1e-30;

/// The number of largest magnitude, the first of several.
pub(super) fn largest(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |most: f32, &x| if x.abs() > most.abs() { x } else { most })
}

/// Adding it leaves no fraction, and the integer in the lowest bits: 1.5 * 2²³.
const ROUND: f32 = 12_582_912.0;

/// The code nearest to a scaled number.
#[inline(always)]
fn code(scaled: f32, codes: &Codes) -> f32 {
    shifted(scaled, codes) - ROUND
}

/// The code nearest to a scaled number, and [`ROUND`].
#[inline(always)]
fn shifted(scaled: f32, codes: &Codes) -> f32 {
    scaled.clamp(f32::from(*codes.start()), f32::from(*codes.end())) + ROUND
}

/// `1 / scale`, or 0 where that is infinite.
fn inverse(scale: f32) -> f32 {
    if scale.abs() < LEAST_RANGE { 0.0 } else { 1.0 / scale }
}

/// Writes the nearest codes of whole lanes. Returns the weighted squared error.
pub(super) fn round(x: &[f32], w: &[f32], map: Map, codes: &Codes, out: &mut [i8]) -> f64 {
    let inverse = inverse(map.scale);
    let mut errors = [0.0; LANES];
    let numbers = x.as_chunks::<LANES>().0.iter().zip(w.as_chunks::<LANES>().0);
    for ((x, w), out) in numbers.zip(out.as_chunks_mut::<LANES>().0) {
        for lane in 0..LANES {
            let shifted = shifted((x[lane] + map.min) * inverse, codes);
            let difference = map.scale * (shifted - ROUND) - map.min - x[lane];
            out[lane] = shifted.to_bits() as i8;
            errors[lane] += w[lane] * difference * difference;
        }
    }
    errors.map(f64::from).iter().sum()
}

/// The scale of numbers without a minimum. A candidate gives the number of largest magnitude the lowest code, or one near it.
pub(super) fn fit_scale(x: &[f32], w: &[f32], codes: &Codes) -> f32 {
    let most = largest(x);
    if most.abs() < LEAST_RANGE {
        return 0.0;
    }
    let lowest = f32::from(*codes.start());
    let (mut best, mut scale) = (0.0, most / lowest);
    for step in -9i8..=9 {
        let candidate = (lowest + f32::from(step) * 0.1) / most;
        for candidate in [candidate, -candidate] {
            let [xq, qq] = sums(x, w, |x, w| {
                let q = code(x * candidate, codes);
                [w * x * q, w * q * q]
            });
            if xq * xq > best * qq {
                (best, scale) = (xq * xq / qq, xq / qq);
            }
        }
    }
    scale
}

/// Scale and minimum as the range of the numbers, extended to 0, gives them.
pub(super) fn range(x: &[f32], codes: &Codes) -> Map {
    let least = x.iter().copied().fold(0.0, f32::min);
    let most = x.iter().copied().fold(0.0, f32::max);
    Map { scale: (most - least) / f32::from(*codes.end()), min: -least }
}

/// The scale and the minimum, neither negative, that lose least.
pub(super) fn fit_range(x: &[f32], w: &[f32], codes: &Codes) -> Map {
    let plain = range(x, codes);
    if plain.scale < LEAST_RANGE {
        return Map { scale: 0.0, ..plain };
    }
    let sums = Sums::of(x, w);
    let (mut best, mut map) = (sums.error(x, w, plain, codes), plain);
    for step in 0i8..=12 {
        // From ranges that clip the outer numbers to ranges whose highest code is hardly used.
        let scale = plain.scale * (0.6 + 0.04 * f32::from(step));
        let fitted = sums.fit(x, w, Map { scale, ..plain }, codes);
        // A second time from there, for the codes are others now.
        for candidate in [fitted, sums.fit(x, w, fitted, codes)] {
            let error = sums.error(x, w, candidate, codes);
            if error < best {
                (best, map) = (error, candidate);
            }
        }
    }
    map
}

/// Sums over numbers and their weights, whole lanes of them.
#[inline(always)]
fn sums<const N: usize>(x: &[f32], w: &[f32], terms: impl Fn(f32, f32) -> [f32; N]) -> [f32; N] {
    let mut lanes = [[0.0; LANES]; N];
    for (x, w) in x.as_chunks::<LANES>().0.iter().zip(w.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            let terms = terms(x[lane], w[lane]);
            for sum in 0..N {
                lanes[sum][lane] += terms[sum];
            }
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

/// What the normal equations need of the numbers alone.
struct Sums {
    w: f32,
    x: f32,
}

impl Sums {
    fn of(x: &[f32], w: &[f32]) -> Self {
        let [w, x] = sums(x, w, |x, w| [w, x * w]);
        Self { w, x }
    }

    /// The weighted squared error of a map with its nearest codes.
    fn error(&self, x: &[f32], w: &[f32], map: Map, codes: &Codes) -> f32 {
        let inverse = inverse(map.scale);
        let [error] = sums(x, w, |x, w| {
            let difference = map.scale * code((x + map.min) * inverse, codes) - map.min - x;
            [w * difference * difference]
        });
        error
    }

    /// The map of least error for the codes of another: `Σ w (s q - m - x)²` with `s, m >= 0`.
    fn fit(&self, x: &[f32], w: &[f32], map: Map, codes: &Codes) -> Map {
        let inverse = inverse(map.scale);
        let [q1, q2, xq] = sums(x, w, |x, w| {
            let q = code((x + map.min) * inverse, codes);
            [w * q, w * q * q, w * x * q]
        });
        let determinant = self.w * q2 - q1 * q1;
        let scale = (self.w * xq - self.x * q1) / determinant;
        let min = (q1 * xq - q2 * self.x) / determinant;
        match determinant > 0.0 && scale > 0.0 {
            true if min >= 0.0 => Map { scale, min },
            true if q2 > 0.0 && xq > 0.0 => Map { scale: xq / q2, min: 0.0 },
            _ => map,
        }
    }
}
