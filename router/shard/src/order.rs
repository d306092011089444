//! Whether the addresses are those of all ranks of one model, in rank order.

use crate::address::ShardAddress;
use crate::error::ShardError;
use crate::proto::InfoResponse;

/// An address, and who answers there.
#[derive(Debug)]
struct Named {
    address: String,
    rank: u32,
    world_size: u32,
}

/// `infos[i]` is what the rank at the i-th address says of itself.
///
/// # Errors
/// `Addresses`, with who is where and what to write instead.
pub(crate) fn in_order<'a>(
    addresses: impl Iterator<Item = &'a ShardAddress>,
    infos: &[InfoResponse],
) -> Result<(), ShardError> {
    let all = infos.len() as u32;
    if (0..).zip(infos).all(|(place, info)| (info.rank, info.world_size) == (place, all)) {
        return Ok(());
    }
    let named = addresses.zip(infos).map(|(address, info)| Named {
        address: address.to_string(),
        rank: info.rank,
        world_size: info.world_size,
    });
    let named: Vec<_> = named.collect();
    let found =
        named.iter().map(|Named { address, rank, world_size }| format!("{address} is rank {rank} of {world_size}"));
    Err(ShardError::Addresses { found: found.collect::<Vec<_>>().join(" and "), remedy: remedy(named) })
}

/// `info` is what a rank says while others cannot be reached: they need not be waited for if there are none.
///
/// # Errors
/// `Addresses`, with both numbers.
pub(crate) fn as_many(
    addresses: &[ShardAddress],
    address: &ShardAddress,
    info: &InfoResponse,
) -> Result<(), ShardError> {
    let (given, rank, world_size) = (addresses.len(), info.rank, info.world_size);
    if world_size as usize == given {
        return Ok(());
    }
    let found = format!("{address} is rank {rank} of {world_size} and {given} addresses are given");
    Err(ShardError::Addresses { found, remedy: format!("name those of the {world_size} that were started together") })
}

fn remedy(mut named: Vec<Named>) -> String {
    let world_size = named.first().map_or(0, |first| first.world_size);
    if named.iter().any(|other| other.world_size != world_size) {
        return "these were started for different models: name those that were started together".to_owned();
    }
    let missing = (0..world_size).filter(|rank| named.iter().all(|other| other.rank != *rank));
    let missing: Vec<_> = missing.map(|rank| format!("rank {rank}")).collect();
    if !missing.is_empty() {
        return format!("{} {} missing", missing.join(" and "), if missing.len() == 1 { "is" } else { "are" });
    }
    named.sort_by_key(|one| one.rank);
    named.dedup_by_key(|one| one.rank);
    let addresses: Vec<_> = named.into_iter().map(|one| one.address).collect();
    format!("write --shards {}", addresses.join(","))
}
