//! Units as types: a count of tokens is not a count of blocks, and neither is a time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Serialize};

/// A token's number in the model's vocabulary.
pub type TokenId = u32;

macro_rules! count {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl $name {
            pub const ZERO: Self = Self(0);

            /// `self - other`, or zero where that would be negative.
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }
        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }
        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }
        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }
        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

count!(
    /// A number of tokens.
    Tokens(u32)
);
count!(
    /// A number of KV blocks.
    Blocks(u32)
);
count!(
    /// A moment or a duration in microseconds. Moments count from any fixed start; only differences matter.
    Micros(u64)
);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A request, numbered in the order of arrival; ties are broken by it.
    RequestId(u64)
);
id!(
    /// A place in the running batch, `0 … max_batch_size − 1`.
    Row(u32)
);
id!(
    /// One holding of a row, from admission to finish or preemption. Grows with every admission.
    Epoch(u64)
);
id!(
    /// A KV block of the pool.
    BlockId(u32)
);
id!(
    /// A block of the shard's host memory, for KV that was swapped out.
    HostBlock(u32)
);
id!(
    /// One forward pass, numbered 1, 2, 3, … without gaps over the scheduler's life.
    StepId(u64)
);

impl Micros {
    /// Rounded up, and at least one: what a `Retry-After` header says.
    pub fn whole_seconds(self) -> u64 {
        self.0.div_ceil(1_000_000).max(1)
    }
}

impl Tokens {
    /// Blocks of `block_size` tokens that hold this many.
    pub fn blocks(self, block_size: Tokens) -> Blocks {
        Blocks(self.0.div_ceil(block_size.0))
    }
}
