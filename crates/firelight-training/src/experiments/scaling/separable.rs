//! Least squares of `L = E + A x^-alpha + B y^-beta`, where nothing is below 0.
//!
//! For given exponents the law is linear in `E`, `A` and `B`, which have one best solution; so only the exponents are searched for
//! (variable projection, Golub and Pereyra 1973, <https://doi.org/10.1137/0710036>). There are no starts of all parameters to choose,
//! and the same numbers give the same law.

/// The most terms that fall with a size.
pub(super) const TERMS: usize = 2;

/// Columns of the linear problem: the constant and the terms.
const COLUMNS: usize = TERMS + 1;

/// The exponents that are searched, as logarithms.
const LEAST: f64 = -3.912_023_005_428_146; // ln 0.02
const GREATEST: f64 = 1.098_612_288_668_109_8; // ln 3

/// Points of the first grid on each axis.
const GRID: usize = 33;

/// The search ends at this step of the logarithms.
const FINEST: f64 = 1e-6;

/// No search takes more rounds.
const ROUNDS: usize = 1000;

/// What a law is fitted to: sizes, each divided by their geometric mean, and the loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observation {
    pub(super) sizes: [f64; TERMS],
    pub(super) loss: f64,
}

/// Exponents with the best coefficients: of the constant, then of the terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solution {
    pub(super) exponents: [f64; TERMS],
    pub(super) coefficients: [f64; COLUMNS],
    /// The sum of the squares of the relative errors.
    pub(super) error: f64,
}

impl Solution {
    /// The loss that the law says.
    pub(super) fn predict(&self, sizes: &[f64; TERMS]) -> f64 {
        let columns = columns(&self.exponents, sizes);
        self.coefficients.iter().zip(columns).map(|(coefficient, column)| coefficient * column).sum()
    }
}

/// The best law of so many terms, over all exponents from 0.02 to 3.
pub(super) fn fit(observations: &[Observation], terms: usize) -> Solution {
    let spacing = (GREATEST - LEAST) / (GRID - 1) as f64;
    let place = |index: usize| LEAST + spacing * index as f64;
    let rows = if terms == TERMS { GRID } else { 1 };
    let places = (0..GRID).flat_map(|one| (0..rows).map(move |other| [one, other]));
    let all = places.map(|indices| solve(observations, indices.map(place), terms));
    let best = all.reduce(better).unwrap_or_else(|| unreachable!("the grid has places"));
    refine(observations, terms, best, spacing / 2.0)
}

/// The best law around one that is good already.
pub(super) fn fit_from(observations: &[Observation], terms: usize, start: &Solution) -> Solution {
    let places = start.exponents.map(f64::ln);
    refine(observations, terms, solve(observations, places, terms), (GREATEST - LEAST) / (GRID - 1) as f64)
}

/// Goes to the best neighbour as long as one is better, and halves the step where none is.
fn refine(observations: &[Observation], terms: usize, start: Solution, step: f64) -> Solution {
    let (mut best, mut step) = (start, step);
    let others: &[f64] = if terms == TERMS { &[-1.0, 0.0, 1.0] } else { &[0.0] };
    for _ in 0..ROUNDS {
        if step < FINEST {
            break;
        }
        let [one, other] = best.exponents.map(f64::ln);
        let near = [-1.0, 0.0, 1.0].into_iter().flat_map(|up| others.iter().map(move |across| [up, *across]));
        let near = near.map(|[up, across]| [one + up * step, other + across * step]);
        let near = near.map(|places| solve(observations, places.map(|place| place.clamp(LEAST, GREATEST)), terms));
        match near.reduce(better) {
            Some(found) if found.error < best.error => best = found,
            _ => step /= 2.0,
        }
    }
    best
}

fn better(one: Solution, other: Solution) -> Solution {
    if other.error < one.error { other } else { one }
}

/// The best coefficients of at least 0 for exponents, which are given as logarithms. Of few columns every set is tried: the best one whose
/// own solution has nothing below 0 solves the problem.
fn solve(observations: &[Observation], places: [f64; TERMS], terms: usize) -> Solution {
    let exponents = places.map(f64::exp);
    let rows: Vec<[f64; COLUMNS]> = observations
        .iter()
        .map(|observation| columns(&exponents, &observation.sizes).map(|column| column / observation.loss))
        .collect();
    let mut best = Solution { exponents, coefficients: [0.0; COLUMNS], error: f64::INFINITY };
    for set in 1_usize..1 << (terms + 1) {
        let Some(coefficients) = least_squares(&rows, set) else { continue };
        if coefficients.iter().any(|coefficient| *coefficient < 0.0) {
            continue;
        }
        let relative = |row: &[f64; COLUMNS]| row.iter().zip(coefficients).map(|(x, c)| x * c).sum::<f64>() - 1.0;
        let error = rows.iter().map(|row| relative(row).powi(2)).sum();
        if error < best.error {
            best = Solution { exponents, coefficients, error };
        }
    }
    best
}

/// What the constant and the terms are multiplied with.
fn columns(exponents: &[f64; TERMS], sizes: &[f64; TERMS]) -> [f64; COLUMNS] {
    [1.0, sizes[0].powf(-exponents[0]), sizes[1].powf(-exponents[1])]
}

/// The coefficients with which the columns of a set come nearest to 1 in every row, by the normal equations; none if the columns do not
/// tell them apart.
fn least_squares(rows: &[[f64; COLUMNS]], set: usize) -> Option<[f64; COLUMNS]> {
    let chosen: Vec<usize> = (0..COLUMNS).filter(|column| (set >> column) & 1 == 1).collect();
    let product = |one: usize, other: usize| rows.iter().map(|row| row[one] * row[other]).sum::<f64>();
    let equation = |one: &usize| {
        let side = rows.iter().map(|row| row[*one]).sum::<f64>();
        chosen.iter().map(|other| product(*one, *other)).chain([side]).collect::<Vec<f64>>()
    };
    let solved = eliminate(chosen.iter().map(equation).collect())?;
    let mut coefficients = [0.0; COLUMNS];
    for (column, value) in chosen.iter().zip(solved) {
        coefficients[*column] = value;
    }
    Some(coefficients)
}

/// Solves equations, each with its right side behind it, by elimination with pivots.
fn eliminate(mut equations: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = equations.len();
    for column in 0..count {
        let pivot =
            (column..count).max_by(|a, b| equations[*a][column].abs().total_cmp(&equations[*b][column].abs()))?;
        equations.swap(column, pivot);
        let leading = equations[column].clone();
        if leading[column].abs() < 1e-12 {
            return None;
        }
        for (_, equation) in equations.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = equation[column] / leading[column];
            equation.iter_mut().zip(&leading).for_each(|(value, lead)| *value -= factor * lead);
        }
    }
    Some(equations.iter().enumerate().map(|(row, equation)| equation[count] / equation[row]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved_and_those_without_a_solution_are_not() {
        // 2 x + y = 5, x + 3 y = 10: x = 1, y = 3.
        let solved = eliminate(vec![vec![2.0, 1.0, 5.0], vec![1.0, 3.0, 10.0]]).unwrap();
        assert!((solved[0] - 1.0).abs() < 1e-12 && (solved[1] - 3.0).abs() < 1e-12, "{solved:?}");
        assert_eq!(eliminate(vec![vec![1.0, 2.0, 3.0], vec![2.0, 4.0, 6.0]]), None);
    }

    #[test]
    fn what_would_be_below_zero_is_left_out() {
        // A loss that grows with the size: no term that falls with it helps.
        let observations: Vec<Observation> =
            [0.25, 0.5, 1.0, 2.0, 4.0].map(|size| Observation { sizes: [size, 1.0], loss: 2.0 + 0.1 * size }).to_vec();
        let found = fit(&observations, 1);
        assert_eq!(found.coefficients[1], 0.0);
        assert!(found.coefficients[0] > 2.0 && found.coefficients[0] < 2.4, "{found:?}");
    }

    #[test]
    fn a_law_without_noise_is_found() {
        let sizes = [0.1, 0.3, 1.0, 3.0, 10.0];
        let law = |sizes: &[f64; TERMS]| 1.5 + 0.8 * sizes[0].powf(-0.4) + 0.3 * sizes[1].powf(-0.7);
        let all = sizes.iter().flat_map(|one| sizes.map(|other| [*one, other]));
        let observations: Vec<Observation> = all.map(|sizes| Observation { sizes, loss: law(&sizes) }).collect();
        let found = fit(&observations, 2);
        for (found, expected) in found.exponents.iter().chain(&found.coefficients).zip([0.4, 0.7, 1.5, 0.8, 0.3]) {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found} for {expected}");
        }
        assert!((found.predict(&[2.0, 0.5]) - law(&[2.0, 0.5])).abs() < 1e-4);
    }
}
