//! Matrices as tiles: 16 rows or columns of 32 terms each, as a tile register takes them.

use super::super::Matrix;
use super::Units;
use super::parts::fill_parts;
use burn::tensor::bf16;
use rayon::prelude::*;

/// Rows of the left matrix, or columns of the right one, that are multiplied at once: two tiles.
pub(super) const PANEL: usize = 2 * SIDE;

/// Rows of a tile, and its columns of pairs.
pub(super) const SIDE: usize = 16;

/// Terms of a sum that a tile holds.
pub(super) const TERMS: usize = 2 * SIDE;

/// Terms that stand side by side.
pub(super) type Pair = [bf16; 2];

/// A tile of the left matrix holds pairs of terms by row, one of the right by pair of terms: the one is the other transposed.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Tile(pub(super) [[Pair; SIDE]; SIDE]);

impl Tile {
    pub(super) const ZERO: Self = Self([[[bf16::ZERO; 2]; SIDE]; SIDE]);
}

/// A packed matrix. Beyond its edges there are zeros.
pub(super) struct Panels {
    tiles: Vec<Tile>,
    /// Pairs of tiles of a panel. Where numbers are in parts, those of high parts and of low ones take turns.
    steps: usize,
}

impl Panels {
    /// The rows of a matrix, in panels.
    pub(super) fn of_left(matrix: Matrix<'_, bf16>, units: Units) -> Self {
        Self::pack(matrix, units, false)
    }

    /// Its columns.
    pub(super) fn of_right(matrix: Matrix<'_, bf16>, units: Units) -> Self {
        Self::pack(matrix.transposed(), units, true)
    }

    /// The rows of a matrix of `f32` in parts, in panels.
    pub(super) fn of_left_in_parts(matrix: Matrix<'_, f32>, units: Units) -> Self {
        Self::pack_parts(matrix, units, false)
    }

    /// Its columns.
    pub(super) fn of_right_in_parts(matrix: Matrix<'_, f32>, units: Units) -> Self {
        Self::pack_parts(matrix.transposed(), units, true)
    }

    /// The two tiles of every 32 terms of a panel, one pair behind the other.
    pub(super) fn panel(&self, index: usize) -> &[[Tile; 2]] {
        self.tiles[2 * self.steps * index..2 * self.steps * (index + 1)].as_chunks().0
    }

    /// The lines of a matrix, with the terms of each behind one another.
    fn pack(lines: Matrix<'_, bf16>, units: Units, by_term: bool) -> Self {
        let [count, terms] = lines.shape();
        let steps = terms.div_ceil(TERMS);
        let mut tiles = unwritten(2 * count.div_ceil(PANEL) * steps);
        tiles.par_chunks_mut(2 * steps.max(1)).enumerate().for_each(|(panel, tiles)| {
            for (i, tile) in tiles.iter_mut().enumerate() {
                fill(tile, lines, [panel * PANEL + i % 2 * SIDE, i / 2 * TERMS], units, by_term);
            }
        });
        Self { tiles, steps }
    }

    /// The same of numbers in parts.
    fn pack_parts(lines: Matrix<'_, f32>, units: Units, by_term: bool) -> Self {
        let [count, terms] = lines.shape();
        let steps = 2 * terms.div_ceil(TERMS);
        let mut tiles = unwritten(2 * count.div_ceil(PANEL) * steps);
        tiles.par_chunks_mut(2 * steps.max(1)).enumerate().for_each(|(panel, tiles)| {
            for (i, [upper, lower, upper_low, lower_low]) in tiles.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                fill_parts([upper, upper_low], lines, [panel * PANEL, i * TERMS], units, by_term);
                fill_parts([lower, lower_low], lines, [panel * PANEL + SIDE, i * TERMS], units, by_term);
            }
        });
        Self { tiles, steps }
    }
}

/// Tiles that are written before anybody reads them.
#[allow(clippy::uninit_vec)]
fn unwritten(count: usize) -> Vec<Tile> {
    let mut tiles = Vec::with_capacity(count);
    // SAFETY: the capacity is `count`, any bits are a tile, and `fill` writes all of each.
    unsafe { tiles.set_len(count) };
    tiles
}

/// Fills a tile with the lines and terms from a place on, and with zeros beyond the edges.
pub(super) fn fill(tile: &mut Tile, lines: Matrix<'_, bf16>, [line, term]: [usize; 2], units: Units, by_term: bool) {
    let [count, terms] = lines.shape();
    if line + SIDE > count || term + TERMS > terms {
        *tile = Tile::ZERO;
    }
    if line >= count {
        return;
    }
    let part = lines.part(line..count.min(line + SIDE), term..terms.min(term + TERMS));
    let is_by_term = if part.has_whole_rows() {
        copy_lines(tile, part);
        false
    } else if part.transposed().has_whole_rows() {
        interleave_terms(tile, part.transposed());
        true
    } else {
        copy_numbers(tile, part);
        false
    };
    if is_by_term != by_term {
        units.transpose(tile);
    }
}

fn copy_lines(tile: &mut Tile, lines: Matrix<'_, bf16>) {
    for (row, out) in tile.0.iter_mut().enumerate().take(lines.shape()[0]) {
        let (pairs, rest) = lines.row(row).as_chunks::<2>();
        out[..pairs.len()].copy_from_slice(pairs);
        if let [last] = rest {
            out[pairs.len()][0] = *last;
        }
    }
}

/// `terms` holds one term of all lines in a row.
fn interleave_terms(tile: &mut Tile, terms: Matrix<'_, bf16>) {
    let count = terms.shape()[0];
    for (pair, out) in tile.0.iter_mut().enumerate().take(count.div_ceil(2)) {
        let first = terms.row(2 * pair);
        match 2 * pair + 1 < count {
            true => interleave(out, first, terms.row(2 * pair + 1)),
            false => out.iter_mut().zip(first).for_each(|(out, &first)| out[0] = first),
        }
    }
}

fn interleave(out: &mut [Pair; SIDE], first: &[bf16], second: &[bf16]) {
    if let (Some(first), Some(second)) = (first.first_chunk::<SIDE>(), second.first_chunk::<SIDE>()) {
        for i in 0..SIDE {
            out[i] = [first[i], second[i]]; // Of a known length, so that it is one instruction or two.
        }
    } else {
        out.iter_mut().zip(first).zip(second).for_each(|((out, &first), &second)| *out = [first, second]);
    }
}

fn copy_numbers(tile: &mut Tile, lines: Matrix<'_, bf16>) {
    let [count, terms] = lines.shape();
    for row in 0..count {
        for term in 0..terms {
            tile.0[row][term / 2][term % 2] = lines.at(row, term);
        }
    }
}
