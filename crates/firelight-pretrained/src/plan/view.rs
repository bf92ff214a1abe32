//! Which numbers of one tensor make another, and in which order. Transposing, splitting, permuting and skipping are all of this kind, so
//! that one function reads them and one writes them back.

use rayon::prelude::*;

/// Numbers that are worth a thread of their own.
const GRAIN: usize = 1 << 16;

/// Rows and columns of a tile that stays in the first cache while it is transposed.
const TILE: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    len: usize,
    stride: usize,
}

/// A tensor that lies within another one, which is contiguous: its axes, each with a stride in numbers, or made of several that have one.
///
/// ```
/// use firelight_pretrained::View;
///
/// // The second half of the rows of a matrix, transposed.
/// let view = View::whole(&[4, 3]).narrow(0, 2, 2).transposed();
/// assert_eq!(view.shape(), [3, 2]);
/// let mut found = vec![0; 6];
/// view.read(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], &mut found, |number| number);
/// assert_eq!(found, [6, 9, 7, 10, 8, 11]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    axes: Vec<Vec<Axis>>,
    offset: usize,
}

impl View {
    /// All of a tensor of this shape.
    pub fn whole(shape: &[usize]) -> Self {
        Self { axes: contiguous(shape).into_iter().map(|axis| vec![axis]).collect(), offset: 0 }
    }

    /// Its shape.
    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|axis| axis.iter().map(|part| part.len).product()).collect()
    }

    fn count(&self) -> usize {
        self.shape().iter().product()
    }

    /// A matrix with rows and columns exchanged; a vector stays as it is.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        if let [.., row, column] = &mut self.axes[..] {
            std::mem::swap(row, column);
        }
        self
    }

    /// Whether rows and columns are exchanged, whatever else is done to them: the numbers of a column are nearer to one another in the
    /// tensor than those of a row.
    pub(crate) fn is_transposed(&self) -> bool {
        let nearest = |axis: &[Axis]| axis.iter().filter(|part| part.len > 1).map(|part| part.stride).min();
        let [.., row, column] = &self.axes[..] else { return false };
        nearest(row).zip(nearest(column)).is_some_and(|(row, column)| row < column)
    }

    /// The one stride of an axis.
    fn simple(&mut self, axis: usize) -> &mut Axis {
        match &mut self.axes[axis][..] {
            [simple] => simple,
            _ => panic!("axis {axis} is made of several"),
        }
    }

    /// `len` places of an axis, from `start` on.
    ///
    /// # Panics
    /// If there are not so many, or the axis is made of several.
    #[must_use]
    pub fn narrow(mut self, axis: usize, start: usize, len: usize) -> Self {
        let found = self.simple(axis);
        assert!(start + len <= found.len, "{start} + {len} places of {}", found.len);
        let stride = found.stride;
        found.len = len;
        self.offset += start * stride;
        self
    }

    /// Every `step`th place of an axis, from `start` on.
    ///
    /// # Panics
    /// If the axis is made of several.
    #[must_use]
    pub fn every(mut self, axis: usize, start: usize, step: usize) -> Self {
        let found = self.simple(axis);
        let stride = found.stride;
        *found = Axis { len: found.len.saturating_sub(start).div_ceil(step), stride: stride * step };
        self.offset += start * stride;
        self
    }

    /// One place of an axis, which is gone then.
    ///
    /// # Panics
    /// If there is no such place, or the axis is made of several.
    #[must_use]
    pub fn item(mut self, axis: usize, index: usize) -> Self {
        self = self.narrow(axis, index, 1);
        self.axes.remove(axis);
        self
    }

    /// The same with so many axes of length 1 before all others.
    #[must_use]
    pub fn in_front(mut self, axes: usize) -> Self {
        self.axes.splice(0..0, vec![vec![Axis { len: 1, stride: 0 }]; axes]);
        self
    }

    /// An axis as if it were several, the outermost first, and these in another order: heads of rows that belong to queries, keys and
    /// values in turn become all queries, all keys, all values.
    ///
    /// # Panics
    /// If `lens` do not multiply to its length, `order` does not name each once, or the axis is made of several already.
    #[must_use]
    pub fn regrouped(mut self, axis: usize, lens: &[usize], order: &[usize]) -> Self {
        let whole = *self.simple(axis);
        assert_eq!(lens.iter().product::<usize>(), whole.len, "{lens:?} of {}", whole.len);
        assert_eq!(lens.len(), order.len());
        let parts: Vec<Axis> =
            contiguous(lens).into_iter().map(|part| Axis { stride: part.stride * whole.stride, ..part }).collect();
        self.axes[axis] = order.iter().map(|&index| parts[index]).collect();
        self
    }

    /// The axes from `first` on as one.
    #[must_use]
    pub fn merged(mut self, first: usize) -> Self {
        let last = self.axes.split_off(first.min(self.axes.len())).concat();
        self.axes.push(last);
        self
    }

    /// The axes in another order.
    ///
    /// # Panics
    /// If `order` does not name each once.
    #[must_use]
    pub fn permuted(mut self, order: &[usize]) -> Self {
        assert_eq!(order.len(), self.axes.len());
        self.axes = order.iter().map(|&axis| self.axes[axis].clone()).collect();
        self
    }

    /// The axes by which the numbers are reached; neighbours that are one stretch of memory are one.
    fn strides(&self) -> Vec<Axis> {
        joined(self.axes.iter().flatten())
    }

    /// The numbers in order, as bytes; each has `N`.
    pub(crate) fn reordered<const N: usize>(&self, bytes: &[u8]) -> Vec<u8> {
        let mut found = vec![[0; N]; self.count()];
        self.read(bytes.as_chunks().0, &mut found, |number: [u8; N]| number);
        found.into_flattened()
    }

    /// The same order of rows of `size` bytes each, where rows of `width` numbers are kept whole.
    pub(crate) fn rows(&self, width: usize, size: usize) -> Option<Self> {
        let [rows, columns] = &self.axes[..] else { return None };
        let width = width.max(1);
        let is_whole = |axis: &Axis| axis.len == 1 || axis.stride.is_multiple_of(width);
        let is_kept = joined(columns) == [Axis { len: width, stride: 1 }] && rows.iter().all(is_whole);
        let resized = |axis: &Axis| Axis { len: axis.len, stride: axis.stride / width * size };
        let rows = rows.iter().map(resized).collect();
        (is_kept && self.offset.is_multiple_of(width))
            .then(|| Self { axes: vec![rows, vec![Axis { len: size, stride: 1 }]], offset: self.offset / width * size })
    }

    /// This view of what `inner` shows, as a view of the tensor that `inner` lies in; none where an axis leads through those of `inner` by
    /// uneven steps.
    pub(crate) fn within(&self, inner: &Self) -> Option<Self> {
        let parts: Vec<Axis> = inner.axes.iter().flatten().copied().filter(|axis| axis.len != 1).collect();
        let places = contiguous(&parts.iter().map(|part| part.len).collect::<Vec<_>>());
        if self.count() == 0 || inner.count() == 0 {
            return None;
        }
        let first: Vec<usize> = places.iter().map(|place| self.offset / place.stride % place.len).collect();
        let mut last = first.clone();
        let mut axes = Vec::new();
        for axis in &self.axes {
            let mut found = Vec::new();
            for (index, Axis { len, stride }) in split(axis, &places)? {
                last[index] += (len - 1) * stride;
                found.push(Axis { len, stride: stride * parts[index].stride });
            }
            axes.push(found);
        }
        // Without a carry from one axis of `inner` to the next, each moves by its own stride alone.
        let has_carry = last.iter().zip(&places).any(|(last, place)| *last >= place.len);
        let offset = first.iter().zip(&parts).map(|(place, part)| place * part.stride).sum::<usize>() + inner.offset;
        (!has_carry).then_some(Self { axes, offset })
    }

    /// Reads the numbers in order, each through `map`.
    ///
    /// # Panics
    /// If `to` has not so many.
    pub fn read<S: Copy + Sync, T: Send>(&self, from: &[S], to: &mut [T], map: impl Fn(S) -> T + Sync) {
        assert_eq!(to.len(), self.count());
        if !to.is_empty() {
            gather(&self.strides(), &from[self.offset..], to, &map);
        }
    }

    /// Writes numbers to where they would be read from.
    ///
    /// # Panics
    /// If `from` has not so many.
    pub fn write<S: Copy, T>(&self, from: &[S], to: &mut [T], map: impl Fn(S) -> T) {
        assert_eq!(from.len(), self.count());
        let mut rest = from.iter();
        scatter(&self.strides(), self.offset, &mut |place| {
            if let Some(&number) = rest.next() {
                to[place] = map(number);
            }
        });
    }
}

fn contiguous(shape: &[usize]) -> Vec<Axis> {
    let strides = (0..shape.len()).map(|axis| shape[axis + 1..].iter().product());
    shape.iter().zip(strides).map(|(&len, stride)| Axis { len, stride }).collect()
}

/// Axes without those of one place; neighbours that are one stretch of memory are one.
fn joined<'a>(axes: impl IntoIterator<Item = &'a Axis>) -> Vec<Axis> {
    let mut found: Vec<Axis> = Vec::new();
    for axis in axes.into_iter().filter(|axis| axis.len != 1) {
        match found.last_mut().filter(|outer| outer.stride == axis.len * axis.stride) {
            Some(outer) => *outer = Axis { len: outer.len * axis.len, stride: axis.stride },
            None => found.push(*axis),
        }
    }
    found
}

/// The parts of an axis, each within one of `places`: the number of that one, and the steps there.
fn split(axis: &[Axis], places: &[Axis]) -> Option<Vec<(usize, Axis)>> {
    let mut found = Vec::new();
    for part in axis.iter().rev() {
        let mut rest = *part;
        while rest.len > 1 {
            let is_reached = |place: &Axis| place.stride <= rest.stride && rest.stride.is_multiple_of(place.stride);
            let index = places.iter().position(is_reached)?;
            let (len, stride) = (places[index].len, rest.stride / places[index].stride);
            if (rest.len - 1) * stride < len {
                found.push((index, Axis { len: rest.len, stride }));
                break;
            }
            let steps = len / stride;
            if stride >= len || !len.is_multiple_of(stride) || !rest.len.is_multiple_of(steps) {
                return None;
            }
            found.push((index, Axis { len: steps, stride }));
            rest = Axis { len: rest.len / steps, stride: len * places[index].stride };
        }
    }
    found.reverse();
    Some(found)
}

fn gather<S: Copy + Sync, T: Send>(axes: &[Axis], from: &[S], to: &mut [T], map: &(impl Fn(S) -> T + Sync)) {
    match *axes {
        [] => to[0] = map(from[0]),
        [Axis { stride: 1, len }] => to.iter_mut().zip(&from[..len]).for_each(|(to, &from)| *to = map(from)),
        [Axis { stride, .. }] => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, &from)| *to = map(from)),
        [outer, inner] if inner.stride > 1 => {
            // Tiles of rows: the columns of the source are read once for all of a tile.
            each(to, TILE * inner.len, |tile, to| tiles(tile * TILE * outer.stride, [outer, inner], from, to, map));
        }
        [outer, ref inner @ ..] => {
            let size = inner.iter().map(|axis| axis.len).product();
            each(to, size, |index, to| gather(inner, &from[index * outer.stride..], to, map));
        }
    }
}

/// Runs `work` on each piece of `size` numbers, by several threads where it is worth while.
fn each<T: Send>(to: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let pieces = GRAIN.div_ceil(size).max(1);
    to.par_chunks_mut(size).with_min_len(pieces).enumerate().for_each(|(index, piece)| work(index, piece));
}

fn tiles<S: Copy, T>(start: usize, [outer, inner]: [Axis; 2], from: &[S], to: &mut [T], map: &impl Fn(S) -> T) {
    let rows = to.len() / inner.len;
    for first in (0..inner.len).step_by(TILE) {
        for row in 0..rows {
            let begin = start + row * outer.stride;
            for column in first..(first + TILE).min(inner.len) {
                to[row * inner.len + column] = map(from[begin + column * inner.stride]);
            }
        }
    }
}

fn scatter(axes: &[Axis], offset: usize, take: &mut impl FnMut(usize)) {
    match axes {
        [] => take(offset),
        [axis, inner @ ..] => (0..axis.len).for_each(|index| scatter(inner, offset + index * axis.stride, take)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(view: &View, from: &[usize]) -> Vec<usize> {
        let mut found = vec![0; view.count()];
        view.read(from, &mut found, |number| number);
        found
    }

    #[test]
    fn every_view_is_what_it_says() {
        let numbers: Vec<usize> = (0..24).collect();
        assert_eq!(read(&View::whole(&[2, 3]).transposed(), &numbers), [0, 3, 1, 4, 2, 5]);
        assert_eq!(read(&View::whole(&[4]).transposed(), &numbers), [0, 1, 2, 3]);
        assert_eq!(read(&View::whole(&[3, 2]).narrow(0, 1, 2), &numbers), [2, 3, 4, 5]);
        assert_eq!(read(&View::whole(&[2, 4]).every(1, 1, 2), &numbers), [1, 3, 5, 7]);
        assert_eq!(read(&View::whole(&[2, 2, 2]).item(0, 1), &numbers), [4, 5, 6, 7]);
        // Two heads of query, key and value, two rows each: all queries, all keys, all values.
        let heads = View::whole(&[12]).regrouped(0, &[2, 3, 2], &[1, 0, 2]);
        assert_eq!(heads.shape(), [12]);
        assert_eq!(read(&heads, &numbers), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let patches = View::whole(&[2, 2, 2]).merged(1).transposed();
        assert_eq!((patches.shape(), read(&patches, &numbers)), (vec![4, 2], vec![0, 4, 1, 5, 2, 6, 3, 7]));
        assert_eq!(read(&View::whole(&[]), &numbers), [0]);
        let row = View::whole(&[3]).in_front(2);
        assert_eq!((row.shape(), read(&row, &numbers)), (vec![1, 1, 3], vec![0, 1, 2]));
        assert_eq!(read(&View::whole(&[0, 3]), &numbers), [0; 0]);
        assert!(patches.is_transposed() && View::whole(&[4, 3]).narrow(0, 2, 2).transposed().is_transposed());
        let rows =
            [View::whole(&[2, 3]), View::whole(&[4, 1]).transposed(), View::whole(&[2, 2, 2]).item(0, 1), row, heads];
        assert!(rows.iter().all(|rows| !rows.is_transposed()));
    }

    #[test]
    fn a_view_of_a_view_is_one_of_the_tensor() {
        let numbers: Vec<usize> = (0..48).collect();
        let matrix = || View::whole(&[12, 4]);
        // Halves of heads that lie in turn; two heads of query, key and value; rows and columns exchanged; every second row.
        let halves = matrix().regrouped(0, &[2, 3, 2], &[0, 2, 1]);
        let threes = matrix().regrouped(0, &[3, 2, 2], &[1, 0, 2]);
        let transposed = matrix().transposed();
        let second = matrix().every(0, 1, 2);
        for inner in [matrix(), halves, threes, transposed, second] {
            let shown = read(&inner, &numbers);
            let [rows, columns] = inner.shape()[..] else { panic!("no matrix") };
            let whole = View::whole(&[rows, columns]);
            let mut outers = vec![whole.clone(), whole.clone().transposed(), whole.clone().narrow(0, 1, 2)];
            outers.push(whole.clone().regrouped(0, &[2, rows / 2], &[1, 0]).transposed());
            outers.push(whole.narrow(1, 2, 2).transposed());
            for outer in outers {
                let expected = read(&outer, &shown);
                // The halves of a part of the rows are no even steps.
                let Some(found) = outer.within(&inner) else { continue };
                assert_eq!(
                    (found.shape(), read(&found, &numbers)),
                    (outer.shape(), expected),
                    "{outer:?} of {inner:?}"
                );
            }
            assert!(View::whole(&[rows, columns]).within(&inner).is_some(), "{inner:?}");
        }
    }

    #[test]
    fn undone_rearrangements_leave_whole_rows() {
        // What GPT-NeoX's and GPT-2's files and tables do to rows; two bytes stand for a row of four numbers.
        let heads = View::whole(&[12, 4]).regrouped(0, &[3, 2, 2], &[1, 0, 2]);
        let table = View::whole(&[12, 4]).regrouped(0, &[2, 3, 2], &[1, 0, 2]);
        let bytes: Vec<usize> = (0..24).collect();
        assert_eq!(read(&table.within(&heads).unwrap().rows(4, 2).unwrap(), &bytes), bytes);
        let columns = View::whole(&[12, 4]).transposed();
        let third = View::whole(&[4, 12]).narrow(1, 4, 4).transposed();
        assert_eq!(read(&third.within(&columns).unwrap().rows(4, 2).unwrap(), &bytes), bytes[8..16]);
        assert_eq!(third.rows(4, 2), None, "columns are no rows");
        let within = View::whole(&[12, 4]).narrow(1, 1, 2);
        assert_eq!(within.rows(2, 1), None, "it begins within a row");
    }

    proptest! {
        /// Larger than a tile and a thread's share; what is written back is where it was.
        #[test]
        fn a_view_written_back_is_the_tensor(rows in 1usize..70, columns in 1usize..1200, depth in 1usize..3) {
            let numbers: Vec<u32> = (0..(depth * rows * columns) as u32).collect();
            let view = View::whole(&[depth, rows, columns]).permuted(&[2, 0, 1]);
            let mut turned = vec![0; numbers.len()];
            view.read(&numbers, &mut turned, |number| number);
            let expected = |column: usize, d: usize, row: usize| numbers[(d * rows + row) * columns + column];
            prop_assert_eq!(turned[turned.len() - 1], expected(columns - 1, depth - 1, rows - 1));
            prop_assert_eq!(turned[(columns / 2 * depth) * rows + rows / 2], expected(columns / 2, 0, rows / 2));
            let mut back = vec![0; numbers.len()];
            view.write(&turned, &mut back, |number| number);
            prop_assert_eq!(back, numbers);
        }
    }
}
