//! What all rows together are expected to hold later, and how far off that may be.

use crate::survival::{Outlook, SURE};
use crate::units::{Blocks, Tokens};

/// Moments that are looked at, in steps from now. Closer ones matter more: nobody has to enter until later ones come.
const AHEAD: [u32; 23] = [
    8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
    32768,
];

/// A row grows by a token a step until it ends, and gives up its blocks then. When that will be is known in shares only,
/// so what all rows will hold together has a mean and a spread: who says when the pool is full needs both.
#[derive(Clone, Debug)]
pub(crate) struct Forecast {
    block_size: Tokens,
    moments: [Moment; AHEAD.len()],
    /// Blocks that rows hold now, and nobody else does.
    pub held: Blocks,
}

/// What rows are expected to hold at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Moment {
    /// Tokens, if nobody ends before.
    most: u64,
    /// Tokens × `SURE`.
    mean: u64,
    /// Tokens squared × `SURE`.
    variance: u128,
}

impl Forecast {
    pub fn new(block_size: Tokens) -> Self {
        Self { block_size, moments: Default::default(), held: Blocks::ZERO }
    }

    /// One more row, with the blocks it holds and will take for its prompt.
    pub fn add(&mut self, blocks: Blocks, outlook: Outlook<'_>) {
        let now = u64::from(blocks.0) * u64::from(self.block_size.0);
        for (place, moment) in self.moments.iter_mut().enumerate() {
            let Some(then) = holds(now, place, outlook) else { break };
            *moment = moment.with(then);
        }
    }

    /// Whether a newcomer fits with all others at any time, when `spread` thousandths of a standard deviation are left
    /// free.
    pub fn fits(&self, blocks: Blocks, outlook: Outlook<'_>, capacity: Blocks, spread: u32) -> bool {
        let now = u64::from(blocks.0) * u64::from(self.block_size.0);
        let capacity = u64::from(capacity.0) * u64::from(self.block_size.0);
        let mut moments = self.moments.iter().enumerate().map_while(|(place, moment)| {
            let then = holds(now, place, outlook)?;
            Some(moment.with(then))
        });
        // Of few rows a spread may ask for more than they can ever hold.
        moments.clone().all(|moment| moment.most <= capacity)
            || moments.all(|moment| moment.is_within(capacity, spread))
    }
}

/// How likely it is that a row runs at a moment, and the tokens it has room for then; `None`: it certainly ended before.
fn holds(now: u64, place: usize, outlook: Outlook<'_>) -> Option<(u64, u64)> {
    let before = place.checked_sub(1).map_or(0, |before| AHEAD[before]);
    if before >= outlook.left.0 {
        return None;
    }
    // Who reaches its limit between two moments is as large as it will be just before.
    let grown = AHEAD[place].min(outlook.left.0);
    let likely = outlook.runs(Tokens(grown - 1));
    Some((likely, now + u64::from(grown)))
}

impl Moment {
    fn with(self, (likely, tokens): (u64, u64)) -> Self {
        let square = u128::from(tokens) * u128::from(tokens);
        let doubt = u128::from((likely * (SURE - likely)) / SURE);
        Self { most: self.most + tokens, mean: self.mean + likely * tokens, variance: self.variance + doubt * square }
    }

    fn is_within(self, capacity: u64, spread: u32) -> bool {
        let Some(room) = (capacity * SURE).checked_sub(self.mean) else { return false };
        // Squares instead of a root: room² ≥ spread² × variance, each in its own fixed point.
        let (room, spread) = (u128::from(room), u128::from(spread));
        let wanted = (spread * spread).saturating_mul(self.variance).saturating_mul(u128::from(SURE));
        (room * room).saturating_mul(1_000_000) >= wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survival::Histogram;

    fn certain(left: u32) -> Outlook<'static> {
        Outlook::certain(Tokens(left))
    }

    /// The fewest blocks with which the newcomer fits.
    fn needs(forecast: &Forecast, blocks: u32, outlook: Outlook<'_>, spread: u32) -> u32 {
        (0..10_000).find(|&capacity| forecast.fits(Blocks(blocks), outlook, Blocks(capacity), spread)).expect("some do")
    }

    fn of(rows: &[(u32, u32)]) -> Forecast {
        let mut forecast = Forecast::new(Tokens(16));
        rows.iter().for_each(|&(left, blocks)| forecast.add(Blocks(blocks), certain(left)));
        forecast
    }

    #[test]
    fn certain_ends_peak_just_before_somebody_leaves() {
        let forecast = of(&[(160, 2), (16, 50)]);
        // After 16 steps: 2 + 50 + 1 held, and each of three grew by a block. Later only the first and the newcomer.
        assert_eq!(needs(&forecast, 1, certain(64), 2000), 53 + 3);
        // A newcomer that stays as long as the first: both grow by ten blocks.
        assert_eq!(needs(&forecast, 60, certain(160), 2000), 112 + 3);
        assert_eq!(needs(&of(&[]), 60, certain(160), 2000), 70);
    }

    #[test]
    fn a_limit_between_two_moments_is_reached_before_the_row_leaves() {
        assert_eq!(needs(&of(&[(700, 1)]), 1, certain(700), 0), (2 * (16 + 700_u32)).div_ceil(16));
    }

    #[test]
    fn who_has_left_is_not_counted_any_more() {
        assert_eq!(needs(&of(&[(8, 100)]), 1, certain(800), 0), 102);
    }

    /// Half of the answers end soon, the others at their limit.
    fn half_of_them(max_new: u32) -> Histogram {
        let mut histogram = Histogram::default();
        let (soon, late) = (crate::survival::bucket_of(Tokens(1), Tokens(max_new)), 80);
        for _ in 0..100 {
            histogram.end(soon);
            histogram.pass(0..late);
        }
        histogram
    }

    #[test]
    fn rows_that_may_end_count_for_their_share_and_more_spread_leaves_more_free() {
        let mut histogram = half_of_them(512);
        let mut forecast = Forecast::new(Tokens(16));
        let outlook = histogram.outlook(Tokens(512), Tokens(0));
        (0..16).for_each(|_| forecast.add(Blocks(8), outlook));
        let [mean, one, two] = [0, 1000, 2000].map(|spread| needs(&forecast, 8, outlook, spread));
        // 17 rows of 8 + 32 blocks: half of them are left at the end, √17 ÷ 2 is the deviation.
        assert!(
            mean.abs_diff(340) <= 2 && one.abs_diff(340 + 82) <= 2 && two.abs_diff(340 + 165) <= 2,
            "{mean} {one} {two}"
        );
    }

    #[test]
    fn no_spread_asks_for_more_than_everybody_can_hold() {
        let mut histogram = half_of_them(512);
        let outlook = histogram.outlook(Tokens(512), Tokens(0));
        let mut forecast = Forecast::new(Tokens(16));
        forecast.add(Blocks(8), outlook);
        assert_eq!(needs(&forecast, 8, outlook, 1_000_000), 2 * (8 + 32));
    }
}
