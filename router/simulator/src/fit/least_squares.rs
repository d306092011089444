//! Coefficients that are not negative and leave the smallest squares.

/// Terms of a step's cost.
pub(super) const TERMS: usize = 5;

/// Keeps the solution defined where two terms never differ.
const RIDGE: f64 = 1e-9;

type Matrix = [[f64; TERMS]; TERMS];

/// The coefficients with which the terms of every row sum up to 1, as nearly as can be. A coefficient that comes out
/// negative is set to 0, and the rest is fitted again.
pub(super) fn solve(rows: impl Iterator<Item = [f64; TERMS]>) -> [f64; TERMS] {
    let (mut products, mut sums) = ([[0.0; TERMS]; TERMS], [0.0; TERMS]);
    for row in rows {
        for i in 0..TERMS {
            (0..TERMS).for_each(|j| products[i][j] += row[i] * row[j]);
            sums[i] += row[i];
        }
    }
    // Terms differ by factors of a million; in units of their own size they do not.
    let sizes: [f64; TERMS] = std::array::from_fn(|i| products[i][i].sqrt());
    let mut used = sizes.map(|size| size > 0.0);
    let scaled: Matrix = std::array::from_fn(|i| std::array::from_fn(|j| products[i][j] / (sizes[i] * sizes[j])));
    loop {
        let solution = eliminate(&scaled, &std::array::from_fn(|i| sums[i] / sizes[i]), used);
        let worst = (0..TERMS).filter(|&i| solution[i] < 0.0).min_by(|&a, &b| solution[a].total_cmp(&solution[b]));
        match worst {
            Some(worst) => used[worst] = false,
            None => return std::array::from_fn(|i| if used[i] { solution[i] / sizes[i] } else { 0.0 }),
        }
    }
}

/// Gaussian elimination with pivots. Terms not used come out as 0.
fn eliminate(products: &Matrix, sums: &[f64; TERMS], used: [bool; TERMS]) -> [f64; TERMS] {
    let mut rows: [[f64; TERMS + 1]; TERMS] = std::array::from_fn(|i| {
        std::array::from_fn(|j| match j {
            TERMS if used[i] => sums[i],
            j if j < TERMS && used[i] && used[j] => products[i][j] + if i == j { RIDGE } else { 0.0 },
            j => f64::from(u8::from(i == j)),
        })
    });
    for column in 0..TERMS {
        let pivot = (column..TERMS).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
        rows.swap(column, pivot.unwrap_or(column));
        let pivot = rows[column];
        for row in rows.iter_mut().skip(column + 1) {
            let factor = row[column] / pivot[column];
            (column..=TERMS).for_each(|j| row[j] -= factor * pivot[j]);
        }
    }
    let mut solution = [0.0; TERMS];
    for i in (0..TERMS).rev() {
        let known: f64 = (i + 1..TERMS).map(|j| rows[i][j] * solution[j]).sum();
        solution[i] = (rows[i][TERMS] - known) / rows[i][i];
    }
    solution
}
