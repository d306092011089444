"""`python -m headrace_kernels.bench`: how near the CPU kernels are to what the machine can do.

Decode attention is bounded by reading keys and values, so its figure is GB/s beside a loop that only reads as many
bytes, in the same run. Prefill attention is bounded by arithmetic: GFLOP/s, counting four operations per query, key
and element of a head. Shapes are SmolLM2-135M's: 9 heads, 3 KV heads of 64, 30 layers with a cache each, so that no
layer finds its keys in the processor's cache. Each figure is the median of several rounds.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from headrace_kernels import native
from headrace_kernels.ops import (
    add_rms_norm,
    gumbel_noise,
    kv_cache_shape,
    paged_attention,
    rms_norm,
    rotary_embedding,
    silu_and_mul,
    store_kv,
)

LAYERS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INTERMEDIATE, VOCABULARY = 30, 9, 3, 64, 576, 1536, 49152
BLOCK_SIZE = 32
ROUNDS, REPEATS = 7, 200

_read_memory = native.Kernel("read_memory", native.POINTER, native.INT, native.INT32)


def seconds(work: Callable[[], object]) -> float:
    """Median time of a call, after one that doesn't count."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def repeat(work: Callable[[], object]) -> None:
    """Call it often enough to be measured."""
    for _ in range(REPEATS):
        work()


class Layers:
    """Every layer's cache, and a batch of equal rows whose blocks lie anywhere in it."""

    def __init__(self, rows: int, context: int, queries: int, dtype: torch.dtype) -> None:
        blocks = -(-context // BLOCK_SIZE)
        shape = kv_cache_shape(rows * blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
        self.caches = [torch.randn(2, *shape).to(dtype) for _ in range(LAYERS)]
        self.query = torch.randn(rows * queries, HEADS, HEAD_DIM).to(dtype)
        self.tables = torch.randperm(rows * blocks).to(torch.int32).view(rows, blocks)
        self.starts = torch.arange(rows + 1, dtype=torch.int32) * queries
        self.contexts = torch.full((rows,), context, dtype=torch.int32)

    def attend(self) -> None:
        """One step's attention: all layers."""
        for k_cache, v_cache in self.caches:
            paged_attention(
                self.query, k_cache, v_cache, self.tables, self.starts, self.contexts, HEAD_DIM**-0.5, backend="cpu"
            )

    def read(self) -> None:
        """Read all caches and do nothing else."""
        for cache in self.caches:
            _read_memory(cache.data_ptr(), cache.nbytes // 4, native.num_threads())


def bench_decode(name: str, rows: int, context: int, dtype: torch.dtype) -> None:
    """One line about a step of decode rows."""
    layers = Layers(rows, context, 1, dtype)
    bytes_read = 2 * LAYERS * rows * context * KV_HEADS * HEAD_DIM * dtype.itemsize
    reading = seconds(layers.read) * bytes_read / sum(cache.nbytes for cache in layers.caches)
    attending = seconds(layers.attend)
    print(
        f"{name:34} {attending * 1e3:8.2f} ms  {bytes_read / attending / 1e9:6.1f} GB/s"
        f"   reading alone {bytes_read / reading / 1e9:6.1f} GB/s ({reading / attending:4.0%})"
    )


def bench_prefill(name: str, queries: int, context: int, dtype: torch.dtype) -> None:
    """One line about a step with one prompt chunk."""
    layers = Layers(1, context, queries, dtype)
    seen = sum(range(context - queries + 1, context + 1))
    operations = 4 * LAYERS * HEADS * HEAD_DIM * seen
    attending = seconds(layers.attend)
    print(
        f"{name:34} {attending * 1e3:8.2f} ms  {operations / attending / 1e9:6.1f} GFLOP/s"
        f"   {operations / attending / 1e9 / native.num_threads():.1f} a thread"
    )


def bench_small(tokens: int, dtype: torch.dtype) -> None:
    """One line for each of the small operations of a layer."""
    x, residual, weight = torch.randn(tokens, HIDDEN), torch.randn(tokens, HIDDEN), torch.randn(HIDDEN)
    x, weight = x.to(dtype), weight.to(dtype)
    gate_up = torch.randn(tokens, 2 * INTERMEDIATE).to(dtype)
    heads = torch.randn(tokens, HEADS + 2 * KV_HEADS, HEAD_DIM).to(dtype)
    query, key, value = heads.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    angles, positions = torch.randn(8192, HEAD_DIM), torch.arange(tokens)
    k_cache, v_cache = torch.zeros(2, *kv_cache_shape(64, BLOCK_SIZE, KV_HEADS, HEAD_DIM), dtype=dtype)
    tables = torch.arange(-(-tokens // BLOCK_SIZE), dtype=torch.int32)[None]
    starts, lengths = torch.tensor([0, tokens], dtype=torch.int32), torch.tensor([tokens], dtype=torch.int32)
    for name, work in {
        "rms_norm": lambda: rms_norm(x, weight, 1e-5),
        "add_rms_norm": lambda: add_rms_norm(x, residual, weight, 1e-5),
        "rotary_embedding": lambda: rotary_embedding(query, key, angles, positions),
        "store_kv": lambda: store_kv(key, value, k_cache, v_cache, tables, starts, lengths),
        "silu_and_mul": lambda: silu_and_mul(gate_up),
    }.items():
        took = seconds(partial(repeat, work)) / REPEATS
        print(f"{name + f', {tokens} tokens':34} {took * 1e6:8.1f} us")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m headrace_kernels.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="default: torch's")
    parser.add_argument("--isa", help="instruction set; default: the machine's best")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    native.force_isa(options.isa)
    print(f"{native.num_threads()} threads, {native.isa()}, 9 heads, 3 KV heads of 64, 30 layers")
    for dtype in (torch.float32, torch.bfloat16):
        print(f"\n{str(dtype).removeprefix('torch.')}")
        bench_decode("decode, 48 rows x 300 context", 48, 300, dtype)
        bench_decode("decode, 1 row x 4,096 context", 1, 4096, dtype)
        bench_prefill("prefill, 512 tokens, context 1,024", 512, 1024, dtype)
        bench_small(1, dtype)
        bench_small(48, dtype)
    rows = 48
    took = seconds(lambda: gumbel_noise(torch.arange(rows), torch.arange(rows), VOCABULARY))
    print(f"\n{'gumbel_noise, 48 x 49,152':34} {took * 1e3:8.2f} ms  {rows * VOCABULARY / took / 1e6:6.0f} M/s")


if __name__ == "__main__":
    main()
