//! The numbers of the flex kernels, `f32` and `f64`, with exponential functions that a compiler can vectorise.
//!
//! Everything here is free of branches and calls: loops over it become vector instructions of whatever width
//! [`vectorised`](super::vectorised) finds, and every width gives the same bits. Only [`mul_add`](Real::mul_add) is a call at
//! the scalar level, see [`has_fma`](super::simd::has_fma).

use super::Number;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub};

/// A floating point number that the fast paths compute with.
pub(crate) trait Real:
    Number<Sum = Self>
    + Debug
    + Default
    + PartialOrd
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + MulAssign
{
    const ZERO: Self;
    const ONE: Self;
    const NEG_INFINITY: Self;
    const INFINITY: Self;

    /// The nearest number to a constant.
    fn of(value: f64) -> Self;
    /// `2^n` and `e^r - 1`, where `x = n ln 2 + r`; saturates where `e^x` leaves the range of numbers.
    fn exp_parts(self) -> (Self, Self);
    /// The point below which [`exp`](Self::exp) is 0.
    const UNDERFLOW: Self;
    /// The point above which it is infinite.
    const OVERFLOW: Self;
    /// `P(t)` of [`erfc`](Self::erfc).
    fn erfc_series(t: Self) -> Self;
    fn sqrt(self) -> Self;
    fn ln(self) -> Self;
    fn abs(self) -> Self;
    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;

    /// `e^x`; 0 below the normal numbers, infinity above all numbers, NaN for NaN.
    #[inline(always)]
    fn exp(self) -> Self {
        let (scale, rest) = self.exp_parts();
        let scale = if self < Self::UNDERFLOW { Self::ZERO } else { scale };
        let power = scale * rest + scale;
        if self > Self::OVERFLOW { Self::INFINITY } else { power }
    }

    /// `e^x - 1` without cancellation near 0.
    #[inline(always)]
    fn exp_m1(self) -> Self {
        let (scale, rest) = self.exp_parts();
        scale * rest + (scale - Self::ONE)
    }

    /// `1 / (1 + e^-x)`.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }

    /// `(e^2x - 1) / (e^2x + 1)`, from the side on which the power stays small.
    #[inline(always)]
    fn tanh(self) -> Self {
        let power = (-(self.abs() + self.abs())).exp_m1();
        let size = -power / (power + Self::of(2.0));
        let sign = if self < Self::ZERO { -Self::ONE } else { Self::ONE };
        sign * size
    }

    /// `1 - erf(x)`: for `x >= 0` it is `t exp(P(t) - x²)` with `t = 2 / (2 + x)`, as exact as the type in every tail.
    ///
    /// Source: Press et al. 2007, Numerical Recipes, §6.2.2, eq. 6.2.10.
    #[inline(always)]
    fn erfc(self) -> Self {
        let x = self.abs();
        let t = Self::of(2.0) / (Self::of(2.0) + x);
        let tail = t * (Self::erfc_series(t) - x * x).exp();
        let (start, sign) = if self < Self::ZERO { (Self::of(2.0), -Self::ONE) } else { (Self::ZERO, Self::ONE) };
        start + sign * tail
    }
}

/// The polynomial of routine `erfcc` in the second edition of the same book, §6.2, with a relative error of 1.2e-7.
#[inline(always)]
#[allow(clippy::excessive_precision)] // As printed.
fn erfc_series_f32(t: f32) -> f32 {
    let high = 0.278_868_07 + t * (-1.135_203_98 + t * (1.488_515_87 + t * (-0.822_152_23 + t * 0.170_872_77)));
    -1.265_512_23 + t * (1.000_023_68 + t * (0.374_091_96 + t * (0.096_784_18 + t * (-0.186_288_06 + t * high))))
}

/// The Chebyshev series of routine `erfccheb`, summed by Clenshaw's recurrence; the factor `t` stays outside.
#[inline(always)]
fn erfc_series_f64(t: f64) -> f64 {
    let y = 4.0 * t - 2.0;
    let (mut sum, mut last) = (0.0, 0.0);
    for &coefficient in ERFC[1..].iter().rev() {
        (sum, last) = (y * sum - last + coefficient, sum);
    }
    0.5 * (ERFC[0] + y * sum) - last
}

#[allow(clippy::excessive_precision)] // As printed.
const ERFC: [f64; 28] = [
    -1.302_653_719_781_709_4,
    6.419_697_923_564_902_6e-1,
    1.947_647_320_418_583_6e-2,
    -9.561_514_786_808_631e-3,
    -9.465_953_444_820_36e-4,
    3.668_394_978_527_61e-4,
    4.252_332_480_690_7e-5,
    -2.027_857_811_253_4e-5,
    -1.624_290_004_647e-6,
    1.303_655_835_580e-6,
    1.562_644_172_2e-8,
    -8.523_809_591_5e-8,
    6.529_054_439e-9,
    5.059_343_495e-9,
    -9.913_641_56e-10,
    -2.273_651_22e-10,
    9.646_791_1e-11,
    2.394_038e-12,
    -6.886_027e-12,
    8.944_87e-13,
    3.130_92e-13,
    -1.127_08e-13,
    3.81e-16,
    7.106e-15,
    -1.523e-15,
    -9.4e-17,
    1.21e-16,
    -2.8e-17,
];

/// `r/1 (1 + r/2 (1 + r/3 (...)))`, the series of `e^r - 1`. Written out, because a loop inside a loop is not vectorised.
macro_rules! taylor {
    ($r:ident, $real:ty; $factor:literal) => { $r * (1.0 / $factor as $real) };
    ($r:ident, $real:ty; $factor:literal $($rest:literal)+) => {
        $r * (1.0 / $factor as $real) * (1.0 + taylor!($r, $real; $($rest)+))
    };
}

/// `round` is one and a half times two to the number of mantissa bits: added to a number it leaves the nearest integer
/// in the low bits. `high` and `low` are ln 2 in two parts, the first short enough that its multiples are exact.
macro_rules! real {
    ($real:ty, mantissa: $mantissa:literal, round: $round:literal, high: $high:expr, low: $low:literal,
     range: $least:literal, $most:literal, factors: $($factor:literal)*, erfc: $erfc:ident) => {
        impl Real for $real {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$real>::NEG_INFINITY;
            const INFINITY: Self = <$real>::INFINITY;
            const UNDERFLOW: Self = $least;
            const OVERFLOW: Self = $most;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $real
            }

            #[inline(always)]
            fn exp_parts(self) -> (Self, Self) {
                // Comparisons that NaN fails, so that it passes through.
                let x = if self < $least { $least } else { self };
                let x = if x > $most { $most } else { x };
                let shifted = x * std::f64::consts::LOG2_E as $real + $round;
                let n = shifted - $round;
                let r = (x - n * ($high)) - n * $low;
                let scale = <$real>::from_bits((shifted.to_bits() << $mantissa).wrapping_add((1.0 as $real).to_bits()));
                (scale, taylor!(r, $real; $($factor)*))
            }

            #[inline(always)]
            fn erfc_series(t: Self) -> Self {
                $erfc(t)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                <$real>::sqrt(self)
            }

            #[inline(always)]
            fn ln(self) -> Self {
                <$real>::ln(self)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                <$real>::abs(self)
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, term: Self) -> Self {
                <$real>::mul_add(self, factor, term)
            }
        }
    };
}

real!(f32, mantissa: 23, round: 12_582_912.0, high: 355.0 / 512.0, low: -2.121_944_4e-4, range: -87.0, 88.0,
    factors: 1 2 3 4 5 6 7, erfc: erfc_series_f32);
real!(f64, mantissa: 52, round: 6_755_399_441_055_744.0, high: 6.931_471_803_691_238e-1,
    low: 1.908_214_929_270_587_7e-10, range: -708.0, 709.0, factors: 1 2 3 4 5 6 7 8 9 10 11 12 13,
    erfc: erfc_series_f64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Difference;

    /// The largest error over `[-span, span]`, relative to the value or, below 1, absolute.
    fn error(span: f64, ours: impl Fn(f64) -> f64, theirs: impl Fn(f64) -> f64) -> f64 {
        let points = || (-20_000..=20_000).map(|i| span * f64::from(i) / 20_000.0);
        let unit = |x| theirs(x).abs().max(1.0);
        let found: Vec<f64> = points().map(|x| ours(x) / unit(x)).collect();
        let expected: Vec<f64> = points().map(|x| theirs(x) / unit(x)).collect();
        Difference::between(&found, &expected).absolute
    }

    fn in_single(f: impl Fn(f32) -> f32) -> impl Fn(f64) -> f64 {
        move |x| f64::from(f(x as f32))
    }

    #[test]
    fn functions_are_as_exact_as_their_type() {
        let points = |range: std::ops::RangeInclusive<i32>| range.map(|i| f64::from(i) / 10.0);
        let ratios = |ratios: Vec<f64>| Difference::between(&ratios, &vec![1.0; ratios.len()]).absolute;
        let single = |x: f64| Real::exp(x as f32) as f64 / (x as f32 as f64).exp();
        assert!(ratios(points(-860..=879).map(single).collect()) < 2e-7);
        assert!(ratios(points(-7000..=7000).map(|x| Real::exp(x) / x.exp()).collect()) < 1e-15);
        assert!(error(12.0, in_single(Real::tanh), |x| (x as f32 as f64).tanh()) < 2e-7);
        assert!(error(12.0, Real::tanh, f64::tanh) < 1e-15);
        assert!(error(80.0, in_single(Real::sigmoid), |x| 1.0 / (1.0 + (-(x as f32 as f64)).exp())) < 2e-7);
        assert!(error(1e-3, |x| Real::exp_m1(x) / x.max(1e-9), |x| x.exp_m1() / x.max(1e-9)) < 1e-13);
    }

    #[test]
    fn erfc_has_the_known_values() {
        // Abramowitz and Stegun 1964, table 7.1, and erfc(3) from its asymptotic series.
        for (x, value) in [(0.0, 1.0), (0.5, 0.479_500_122_186_953_5), (1.0, 0.157_299_207_050_285_13)] {
            assert!((Real::erfc(x) - value).abs() < 2e-15 && (Real::erfc(-x) - (2.0 - value)).abs() < 2e-15);
            assert!((Real::erfc(x as f32) as f64 - value).abs() < 2e-7);
        }
        let tail = 2.209_049_699_858_544e-5;
        assert!((Real::erfc(3.0) / tail - 1.0).abs() < 1e-13);
        assert!((Real::erfc(3.0f32) as f64 / tail - 1.0).abs() < 2e-6);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(Real::exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(Real::exp(-1e4f64), 0.0);
        assert_eq!(Real::exp(1e4f32), f32::INFINITY);
        assert!(Real::exp(f32::NAN).is_nan() && Real::tanh(f64::NAN).is_nan() && Real::erfc(f32::NAN).is_nan());
        assert_eq!([Real::tanh(1e4f32), Real::tanh(-1e4f32), Real::tanh(0.0f32)], [1.0, -1.0, 0.0]);
        assert_eq!([Real::erfc(1e4f32), Real::erfc(-1e4f32)], [0.0, 2.0]);
    }
}
