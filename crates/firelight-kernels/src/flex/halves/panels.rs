//! Matrices as tiles: 16 rows or columns of 32 terms each, as a tile register takes them.

use super::super::{Matrix, Number, fetch};
use super::{Sums, Units};
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
pub(crate) struct Tile(pub(super) [[Pair; SIDE]; SIDE]);

impl Tile {
    pub(super) const ZERO: Self = Self([[[bf16::ZERO; 2]; SIDE]; SIDE]);
}

/// Numbers whose products tile registers form.
pub(crate) trait Factor: Number<Sum = f32> {
    /// Tiles of a panel for every 32 terms: two, or two for each part of a number.
    const TILES: usize;

    /// Fills as many with the lines and terms from a place on, and with zeros beyond the edges.
    fn fill(tiles: &mut [Tile], lines: Matrix<'_, Self>, place: [usize; 2], units: Units, by_term: bool);

    /// The sums of a block, from the panels of its rows and of its columns.
    ///
    /// # Safety
    /// Only within [`Units::within`].
    unsafe fn multiply(units: Units, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]);

    /// The same with columns of `bf16`.
    ///
    /// # Safety
    /// Only within [`Units::within`].
    unsafe fn multiply_halves(units: Units, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]);
}

impl Factor for bf16 {
    const TILES: usize = 2;

    fn fill(tiles: &mut [Tile], lines: Matrix<'_, Self>, [line, term]: [usize; 2], units: Units, by_term: bool) {
        for (half, tile) in tiles.iter_mut().enumerate() {
            fill(tile, lines, [line + half * SIDE, term], units, by_term);
        }
    }

    unsafe fn multiply(units: Units, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        // SAFETY: the caller vouches for it.
        unsafe { units.multiply(sums, left, right) };
    }

    unsafe fn multiply_halves(units: Units, sums: &mut Sums, left: &[[Tile; 2]], right: &[[Tile; 2]]) {
        // SAFETY: the caller vouches for it.
        unsafe { units.multiply(sums, left, right) };
    }
}

/// A packed matrix. Beyond its edges there are zeros.
#[derive(Default)]
pub(super) struct Panels {
    tiles: Vec<Tile>,
    /// Tiles of a panel.
    length: usize,
}

impl Panels {
    /// The rows of a matrix, in panels, packed by all threads.
    pub(super) fn of_rows<T: Factor>(rows: Matrix<'_, T>, units: Units) -> Self {
        Self::by_all(rows, units, false)
    }

    /// The columns of a matrix, in panels, packed by all threads.
    pub(super) fn of_columns<T: Factor>(columns: Matrix<'_, T>, units: Units) -> Self {
        Self::by_all(columns.transposed(), units, true)
    }

    /// The columns of a matrix, in panels, packed by this thread.
    pub(super) fn of_some_columns<T: Factor>(columns: Matrix<'_, T>, units: Units) -> Self {
        let mut packed = Self::default();
        packed.fill(columns.transposed(), units, true);
        packed
    }

    /// Holds these lines instead, in the same memory, packed by this thread: columns `by_term`, rows not.
    pub(super) fn fill<T: Factor>(&mut self, lines: Matrix<'_, T>, units: Units, by_term: bool) {
        let [count, terms] = lines.shape();
        self.make_unwritten::<T>(count.div_ceil(PANEL), terms);
        pack(&mut self.tiles, lines, units, by_term);
    }

    fn by_all<T: Factor>(lines: Matrix<'_, T>, units: Units, by_term: bool) -> Self {
        let [count, terms] = lines.shape();
        let panels = count.div_ceil(PANEL);
        let group = panels.div_ceil(4 * rayon::current_num_threads());
        let mut packed = Self::default();
        packed.make_unwritten::<T>(panels, terms);
        packed.tiles.par_chunks_mut(group * packed.length).enumerate().for_each(|(i, tiles)| {
            let first = i * group * PANEL;
            pack(tiles, lines.part(first..count.min(first + group * PANEL), 0..terms), units, by_term);
        });
        packed
    }

    /// The two tiles of every 32 terms of a panel, one pair behind the other. Where numbers are in parts, those of high parts and of low
    /// ones take turns.
    pub(super) fn panel(&self, index: usize) -> &[[Tile; 2]] {
        self.tiles[self.length * index..self.length * (index + 1)].as_chunks().0
    }

    /// As many tiles as these panels have, which are written before anybody reads them.
    #[allow(clippy::uninit_vec)]
    fn make_unwritten<T: Factor>(&mut self, panels: usize, terms: usize) {
        self.length = T::TILES * terms.div_ceil(TERMS);
        let tiles = panels * self.length;
        self.tiles.clear();
        self.tiles.reserve(tiles);
        // SAFETY: the capacity is as large, any bits are a tile, and `pack` writes all of each.
        unsafe { self.tiles.set_len(tiles) };
    }
}

/// Packs lines in the order in which they lie in memory: whole lines one panel after the other, whole terms 32 at a time for all panels.
fn pack<T: Factor>(tiles: &mut [Tile], lines: Matrix<'_, T>, units: Units, by_term: bool) {
    let [count, terms] = lines.shape();
    let (panels, steps) = (count.div_ceil(PANEL), terms.div_ceil(TERMS));
    let mut fill = |panel: usize, step: usize| {
        let first = T::TILES * (panel * steps + step);
        T::fill(&mut tiles[first..first + T::TILES], lines, [panel * PANEL, step * TERMS], units, by_term);
    };
    match lines.has_whole_rows() {
        true => (0..panels).for_each(|panel| (0..steps).for_each(|step| fill(panel, step))),
        false => (0..steps).for_each(|step| {
            (0..panels).for_each(|panel| {
                fetch_terms(lines.transposed(), [(step + 1) * TERMS, panel * PANEL]);
                fill(panel, step);
            });
        }),
    }
}

/// Asks for what the next step packs of a panel: pieces of rows that lie far apart, which no processor follows by itself.
fn fetch_terms<T: Factor>(terms: Matrix<'_, T>, [term, line]: [usize; 2]) {
    let [count, lines] = terms.shape();
    if !terms.has_whole_rows() {
        return;
    }
    for row in term..count.min(term + TERMS) {
        let piece = &terms.row(row)[line..lines.min(line + PANEL)];
        piece.iter().step_by(64 / size_of::<T>()).for_each(|number| fetch(number));
    }
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
