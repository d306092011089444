"""What a server holds: weights, the KV pool, and little else."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.cases import Weights
from bench.shape import of_directory
from harness.server import Server

MOST_ELSE = 600e6  # bytes, of router and shard together
POOL_TOKENS = 8192


def test_weights_and_pool_are_nearly_all_that_a_server_holds(launch: Callable[..., Server], model_dir: Path) -> None:
    server = launch("--dtype", "bfloat16", "--max-batch-total-tokens", str(POOL_TOKENS))
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda n: server.token_ids(f"Question {n}: " + "what is it? " * 80, 16), range(24)))
    shape = of_directory(model_dir)
    config = json.loads((model_dir / "config.json").read_text())
    embedding = 2 * config["hidden_size"] * config["vocab_size"]  # beside the head, which is packed
    known = shape.weight_bytes(Weights.BF16) + embedding + POOL_TOKENS * shape.kv_bytes
    # `uss`: what would be free without the process. Pages of the files that it reads belong to the system.
    held = sum(process.memory_full_info().uss for process in server.family)
    assert known * 0.8 < held < known + MOST_ELSE, f"{held / 1e6:.0f} MB held, {known / 1e6:.0f} known"
