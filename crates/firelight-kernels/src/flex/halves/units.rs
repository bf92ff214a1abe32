//! What computes a block of sums.

use super::Sums;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use super::amx;
use super::panels::{PANEL, Pair, SIDE, Tile};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::flex::simd;
use crate::flex::{Number, vectorised};

/// What computes a block of sums. Both give the same bits, but AMX flushes subnormal numbers of `f32` to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Units {
    /// Tile registers.
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Amx,
    /// Loops in the order of the tile registers: what these are tested against.
    #[cfg_attr(not(test), allow(dead_code))]
    Plain,
}

impl Units {
    /// Those that make products of `bf16` faster than those of `f32`, if this processor has them and the system permits their use.
    pub(crate) fn chosen() -> Option<Self> {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        return (simd::has_tiles() && amx::is_permitted()).then_some(Self::Amx);
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        None
    }

    /// Those of this processor, the plain ones first.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        std::iter::once(Self::Plain).chain(Self::chosen()).collect()
    }

    /// Runs work of this thread that multiplies blocks.
    pub(super) fn within(self, work: impl FnOnce()) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Amx => amx::with_tiles(work),
            Self::Plain => work(),
        }
    }

    /// The sums of a block, from the panels of its rows and of its columns.
    ///
    /// # Safety
    /// Only [`within`](Self::within).
    pub(super) unsafe fn multiply(self, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            // SAFETY: the caller vouches for it.
            Self::Amx => unsafe { amx::multiply(sums, left, right) },
            Self::Plain => multiply(sums, left, right),
        }
    }

    /// The same of panels in parts: high parts with high ones, high with low and low with high, in this order for every pair of tiles.
    ///
    /// # Safety
    /// Only [`within`](Self::within).
    pub(super) unsafe fn multiply_parts(self, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            // SAFETY: the caller vouches for it.
            Self::Amx => unsafe { amx::multiply_parts(sums, left, right) },
            Self::Plain => multiply_parts(sums, left, right),
        }
    }

    /// The same of a left panel in parts and a right one of `bf16`: high parts, then low ones, for every pair of tiles.
    ///
    /// # Safety
    /// Only [`within`](Self::within).
    pub(super) unsafe fn multiply_left_parts(self, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            // SAFETY: the caller vouches for it.
            Self::Amx => unsafe { amx::multiply_left_parts(sums, left, right) },
            Self::Plain => multiply_left_parts(sums, left, right),
        }
    }

    /// Exchanges rows and columns of pairs.
    pub(super) fn transpose(self, tile: &mut Tile) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Amx => amx::transpose(tile),
            Self::Plain => transpose(tile),
        }
    }
}

fn multiply(sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
    vectorised(
        #[inline(always)]
        || {
            for (i, sums) in sums.0.iter_mut().enumerate() {
                sums.fill(0.0);
                for (left, right) in left.iter().zip(right) {
                    add_products(sums, &left[i / SIDE].0[i % SIDE], right);
                }
            }
        },
    );
}

fn multiply_parts(sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
    let (left, right) = (left.as_chunks::<2>().0, right.as_chunks::<2>().0);
    vectorised(
        #[inline(always)]
        || {
            for (i, sums) in sums.0.iter_mut().enumerate() {
                sums.fill(0.0);
                for ([high, low], [right_high, right_low]) in left.iter().zip(right) {
                    let [high, low] = [&high[i / SIDE].0[i % SIDE], &low[i / SIDE].0[i % SIDE]];
                    add_products(sums, high, right_high);
                    add_products(sums, high, right_low);
                    add_products(sums, low, right_high);
                }
            }
        },
    );
}

fn multiply_left_parts(sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
    assert!(left.len() == 2 * right.len(), "panels of one length, the left one with both parts");
    let left = left.as_chunks::<2>().0;
    vectorised(
        #[inline(always)]
        || {
            for (i, sums) in sums.0.iter_mut().enumerate() {
                sums.fill(0.0);
                for ([high, low], right) in left.iter().zip(right) {
                    add_products(sums, &high[i / SIDE].0[i % SIDE], right);
                    add_products(sums, &low[i / SIDE].0[i % SIDE], right);
                }
            }
        },
    );
}

/// Products of `bf16` are exact in `f32`. Those of the first number of every pair are summed by themselves within a tile, those of
/// the second likewise; then both sums together are added to that of the tiles before.
///
/// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, `TDPBF16PS`.
#[inline(always)]
fn add_products(sums: &mut [f32; PANEL], pairs: &[Pair; SIDE], right: &[Tile; 2]) {
    for (half, sums) in sums.as_chunks_mut::<SIDE>().0.iter_mut().enumerate() {
        let (mut first, mut second) = ([0.0; SIDE], [0.0; SIDE]);
        for (pair, columns) in pairs.iter().zip(&right[half].0) {
            let [a, b] = pair.map(Number::widen);
            for j in 0..SIDE {
                first[j] += a * columns[j][0].widen();
                second[j] += b * columns[j][1].widen();
            }
        }
        for j in 0..SIDE {
            sums[j] += first[j] + second[j];
        }
    }
}

fn transpose(tile: &mut Tile) {
    for i in 0..SIDE {
        for j in 0..i {
            (tile.0[i][j], tile.0[j][i]) = (tile.0[j][i], tile.0[i][j]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::bf16;

    #[test]
    fn every_unit_transposes_alike() {
        for units in Units::all() {
            let mut tile = Tile::ZERO;
            let number = |i: usize, j: usize| [bf16::from_bits((16 * i + j) as u16), bf16::from_bits((i * j) as u16)];
            (0..SIDE).for_each(|i| (0..SIDE).for_each(|j| tile.0[i][j] = number(i, j)));
            units.transpose(&mut tile);
            assert!((0..SIDE).all(|i| (0..SIDE).all(|j| tile.0[i][j] == number(j, i))), "{units:?}");
        }
    }
}
