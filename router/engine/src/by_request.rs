//! What is kept of each request, found by its number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use headrace_scheduler::RequestId;

/// Each token looks its request up a few times. The scheduler counts requests, so nobody can choose numbers that collide,
/// and a multiplication spreads them well enough.
pub(crate) type ByRequest<T> = HashMap<RequestId, T, BuildHasherDefault<NumberHasher>>;

#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write_u64(&mut self, number: u64) {
        // 2⁶⁴ divided by the golden ratio: the map takes its bits from both ends.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Not for request numbers, which are one `u64`.
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
