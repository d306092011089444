//! How many ranks hold the model together.

use std::path::Path;
use std::time::Duration;

use super::ConfigError;
use crate::flags::Device;
use crate::machine;

/// A driver that is just being loaded takes a second or two.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than any model is split into; each is a process.
const MOST_RANKS: u32 = 128;

/// As Text Generation Inference decides it: what --num-shard says, else one for each visible GPU unless --sharded is
/// false, and one where there is none. `gpus` is only called where it matters: it may start a program.
pub fn settle(
    num_shard: Option<u32>,
    sharded: Option<bool>,
    device: Device,
    gpus: impl FnOnce() -> u32,
) -> Result<u32, ConfigError> {
    let gpus = || if device == Device::Cpu { 0 } else { gpus() };
    match (num_shard, sharded) {
        (Some(0), _) => Err(ConfigError::Zero { flag: "--num-shard" }),
        (Some(asked), _) if asked > MOST_RANKS => Err(ConfigError::TooManyShards { asked, limit: MOST_RANKS }),
        (Some(1), Some(true)) => Err(ConfigError::NothingToShard { found: "--num-shard is 1".to_owned() }),
        (Some(1), _) | (None, Some(false)) => Ok(1),
        // Without a GPU the ranks share the cores.
        (Some(shards), _) => match gpus() {
            0 => Ok(shards),
            gpus if shards > gpus => Err(ConfigError::ShardsAboveGpus { shards, gpus }),
            _ => Ok(shards),
        },
        (None, Some(true)) => match gpus() {
            0 => Err(ConfigError::NothingToShard { found: "no GPU is visible".to_owned() }),
            1 => Err(ConfigError::NothingToShard { found: "only one GPU is visible".to_owned() }),
            gpus => Ok(gpus),
        },
        (None, None) => Ok(gpus().max(1)),
    }
}

/// GPUs that a list like `0,1` or `all` makes visible; without one, those of the machine.
pub fn count_gpus(visible: Option<&str>) -> u32 {
    match visible.map(str::trim) {
        None | Some("all") => installed_gpus(),
        Some("" | "void" | "none") => 0,
        // CUDA stops at the first entry that it does not understand, and -1 is how people hide all.
        Some(list) => list.split(',').take_while(|gpu| names_a_gpu(gpu.trim())).count() as u32,
    }
}

/// By its number, or by its UUID or the beginning of that.
fn names_a_gpu(entry: &str) -> bool {
    let is_number = !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit());
    is_number || entry.starts_with("GPU-") || entry.starts_with("MIG-")
}

/// One line for each of them; none where there is no driver.
fn installed_gpus() -> u32 {
    let listed = machine::output(Path::new("nvidia-smi"), &["-L"], PATIENCE).unwrap_or_default();
    listed.lines().filter(|line| line.starts_with("GPU ")).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(num_shard: Option<u32>, sharded: Option<bool>, gpus: u32) -> Result<u32, String> {
        settle(num_shard, sharded, Device::Auto, || gpus).map_err(|error| error.to_string())
    }

    #[test]
    fn every_visible_gpu_gets_a_rank_unless_somebody_says_otherwise() {
        assert_eq!(ranks(None, None, 4), Ok(4));
        assert_eq!(ranks(None, None, 0), Ok(1));
        assert_eq!(ranks(None, Some(true), 4), Ok(4));
        assert_eq!(ranks(None, Some(false), 4), Ok(1));
        assert_eq!(ranks(Some(2), None, 4), Ok(2));
        assert_eq!(ranks(Some(2), Some(false), 4), Ok(2));
        assert_eq!(settle(None, None, Device::Cpu, || 4).ok(), Some(1));
    }

    #[test]
    fn ranks_on_a_cpu_are_as_many_as_are_asked_for() {
        assert_eq!(ranks(Some(3), None, 0), Ok(3));
        assert_eq!(settle(Some(3), None, Device::Cpu, || 2).ok(), Some(3));
    }

    #[test]
    fn what_cannot_be_is_one_sentence_with_what_to_do() {
        for (asked, words) in [
            (ranks(Some(4), None, 2), "--num-shard 4 is more than this process may use GPUs, which are 2"),
            (ranks(Some(0), None, 2), "--num-shard"),
            (ranks(Some(2000), None, 0), "--num-shard 2000 is more than the 128"),
            (ranks(Some(1), Some(true), 2), "--num-shard is 1; say how many"),
            (ranks(None, Some(true), 0), "no GPU is visible"),
            (ranks(None, Some(true), 1), "only one GPU is visible"),
        ] {
            assert!(asked.as_ref().is_err_and(|error| error.contains(words)), "{asked:?}");
        }
    }

    #[test]
    fn visible_gpus_are_counted_as_cuda_does() {
        for (list, gpus) in [("0", 1), ("0,1,3", 3), ("GPU-8932f937, GPU-b9a3", 2), ("MIG-8932f937", 1)] {
            assert_eq!(count_gpus(Some(list)), gpus, "{list:?}");
        }
        for (list, gpus) in [("", 0), ("-1", 0), ("0,-1,1", 1), ("foo", 0), ("0,,1", 1), ("0;1", 0)] {
            assert_eq!(count_gpus(Some(list)), gpus, "{list:?}");
        }
        assert_eq!((count_gpus(Some("void")), count_gpus(Some("none"))), (0, 0));
    }
}
