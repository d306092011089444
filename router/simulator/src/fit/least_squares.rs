//! Coefficients with which recorded steps come out as nearly as can be, in shares of their times.

use headrace_scheduler::solve_non_negative;

pub(super) use headrace_scheduler::TERMS;

/// Small: a recorded run has many steps, and what it says is to be kept.
const RIDGE: f64 = 1e-9;

/// The coefficients, none negative, with which the terms of every row sum up to 1, as nearly as can be.
pub(super) fn solve(rows: impl Iterator<Item = [f64; TERMS]>) -> [f64; TERMS] {
    let (mut products, mut sums) = ([[0.0; TERMS]; TERMS], [0.0; TERMS]);
    for row in rows {
        for i in 0..TERMS {
            (0..TERMS).for_each(|j| products[i][j] += row[i] * row[j]);
            sums[i] += row[i];
        }
    }
    // Terms differ by factors of a million; in units of their own size they do not. One that never occurs has none.
    let sizes: [f64; TERMS] = std::array::from_fn(|i| if products[i][i] > 0.0 { products[i][i].sqrt() } else { 1.0 });
    let scaled = std::array::from_fn(|i| std::array::from_fn(|j| products[i][j] / (sizes[i] * sizes[j])));
    let solution = solve_non_negative(&scaled, &std::array::from_fn(|i| sums[i] / sizes[i]), RIDGE);
    std::array::from_fn(|i| solution[i] / sizes[i])
}
