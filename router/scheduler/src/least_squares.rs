//! Coefficients that are not negative and leave the smallest squares. `+ − × ÷` of f64 only: the same bits everywhere.

/// Terms of a step's cost.
pub const TERMS: usize = 5;

/// Solves the normal equations `products · x = sums`, with a share `ridge` added to the diagonal, which keeps the
/// solution defined where two terms never differ. A coefficient that comes out negative is left out (0), and the rest is
/// solved again; so is one whose row of `products` is 0 throughout.
///
/// Terms should be of like size: the caller scales them.
pub fn solve_non_negative(products: &[[f64; TERMS]; TERMS], sums: &[f64; TERMS], ridge: f64) -> [f64; TERMS] {
    let mut used: [bool; TERMS] = std::array::from_fn(|i| products[i][i] > 0.0);
    loop {
        let solution = eliminate(products, sums, ridge, used);
        let worst = (0..TERMS).filter(|&i| solution[i] < 0.0).min_by(|&a, &b| solution[a].total_cmp(&solution[b]));
        match worst {
            Some(worst) => used[worst] = false,
            None => return solution,
        }
    }
}

/// Gaussian elimination with pivots. Terms not used come out as 0.
fn eliminate(products: &[[f64; TERMS]; TERMS], sums: &[f64; TERMS], ridge: f64, used: [bool; TERMS]) -> [f64; TERMS] {
    let mut rows: [[f64; TERMS + 1]; TERMS] = std::array::from_fn(|i| {
        std::array::from_fn(|j| match j {
            TERMS if used[i] => sums[i],
            j if j < TERMS && used[i] && used[j] => products[i][j] * if i == j { 1.0 + ridge } else { 1.0 },
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
        let known = (i + 1..TERMS).fold(0.0, |sum, j| sum + rows[i][j] * solution[j]);
        solution[i] = (rows[i][TERMS] - known) / rows[i][i];
    }
    solution
}
