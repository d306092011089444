"""What a rank finds no memory for, in Warmup and in C++, alone and among others: it says so, and can be asked again."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ranks_world import Raised, Ranks, SplitRunner, SplitWorld
from shard_world import BLOCK_SIZE, GREEDY, random_tokens
from test_ranks_memory import HOST_BYTES, ON_CPU, ON_TORCH, SHORT, only
from tiny_models import TinyModel, save

from headrace_server.errors import CapacityError
from headrace_server.flags import parse_serve
from headrace_server.load import out_of_memory_is_a_sentence
from headrace_server.memory import Limits
from headrace_server.step import NewRow, Step

PROMPTS = {0: random_tokens(9, seed=0), 3: random_tokens(5, seed=3)}
LIMITS = Limits(4, 16, 64, 16, HOST_BYTES)
LARGE = Limits(4, 16, 64, 2**14)
"""Of whose pool the smallest tensor is 16 MiB."""
LONG, ROWS = 2**17, 8
HEADS = {"num_hidden_layers": 1, "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 8}
"""For contexts so long attention needs more than PIECE bytes to say who computes what, and the rest of a step less."""


@pytest.fixture(scope="module", params=[1, 2, 3], ids=["alone", "2 ranks", "3 ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(request.param, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


def victim(ranks: Ranks) -> int:
    return min(1, len(ranks.pipes) - 1)


def refused(ranks: Ranks, limits: Limits) -> str:
    """Warmup fails on all ranks for the reason that one of them has, which is returned. No memory is held for it."""
    refusals = ranks.all("warm_up", limits)
    assert {refusal.kind for refusal in refusals} == {"CapacityError"}, refusals
    mine = str(refusals.pop(victim(ranks)).text)
    assert {refusal.text for refusal in refusals} <= {f"rank {victim(ranks)} says: {mine}"}
    assert not any(ranks.all("holds_a_pool"))
    return mine


def goes_well(runner: SplitRunner, model: TinyModel) -> None:
    """A second Warmup, and requests."""
    answers = SplitWorld(runner, max_total_tokens=64).generate(PROMPTS, 3)
    assert answers == {row: model.greedy(prompt, 3) for row, prompt in PROMPTS.items()}


@pytest.mark.parametrize("way", ["C++", "torch", "device"])
def test_a_pool_for_which_the_system_has_no_memory(way: str, ranks: Ranks, tiny_llama: TinyModel) -> None:
    """One of the ranks may take no more of it, and the sentence has the bytes that it lacked."""
    runner = ranks.load(tiny_llama.directory, way=way)
    only(ranks, victim(ranks), "leave_memory", 8 * 2**20)
    try:
        why = refused(ranks, LARGE)
    finally:
        only(ranks, victim(ranks), "relieve")
    heads = {1: 2, 2: 1, 3: 1}[len(ranks.pipes)]
    keys = heads * 2**14 * BLOCK_SIZE * 16 * 4  # bytes, of a layer
    assert why.startswith("there is no memory for a KV pool of 16384 blocks (")
    assert any(0 <= int(number) - keys < keys / 8 for number in re.findall(r"\d+", why)), (why, keys)
    goes_well(runner, tiny_llama)


PARTS = [
    ("C++", ON_CPU, "huge_zeros", "a KV pool of 16 blocks"),
    ("C++", ON_CPU, "Decoder", "a KV pool of 16 blocks"),
    ("C++", ON_CPU, "_copy_blocks", "copies of blocks in host memory"),
    ("C++", ON_CPU, "build_batch", None),
    ("torch", "backend", "allocate", "a KV pool of 16 blocks"),
    ("torch", ON_TORCH, "HostCache", "a KV pool of 16 blocks"),
    ("torch", "headrace_server.compute.swap_on_torch", "swap_out", "copies of blocks in host memory"),
    ("torch", "_device", "upload", None),
    ("device", "backend", "allocate", "a KV pool of 6 blocks"),  # with which steps are rehearsed
    ("device", "_device", "upload", None),
]


@pytest.mark.parametrize(
    ("way", "owner", "name", "what"),
    PARTS,
    ids=[" ".join((part[0], part[1].split(".")[-1], part[2])) for part in PARTS],
)
def test_any_part_of_warmup_without_memory(
    way: str, owner: str, name: str, what: str | None, ranks: Ranks, tiny_llama: TinyModel
) -> None:
    runner = ranks.load(tiny_llama.directory, way=way)
    only(ranks, victim(ranks), "run_short_in", owner, name)
    expected = f"there is no memory for {what}" if what else "the warm-up step of 16 tokens failed: out of memory"
    why = refused(ranks, LIMITS)
    assert why.startswith(expected) and SHORT in why
    goes_well(runner, tiny_llama)


def test_a_model_for_which_there_is_no_memory_is_named(tiny_llama: TinyModel) -> None:
    flags = parse_serve(["--model-dir", str(tiny_llama.directory), "--uds-path", "unused"])
    why = f"the model of {tiny_llama.directory} does not fit into memory: Unable to allocate 909. TiB for an array"
    with pytest.raises(CapacityError, match=why), out_of_memory_is_a_sentence(flags):
        np.empty(10**15, np.uint8)
    with pytest.raises(RuntimeError, match="a bug"), out_of_memory_is_a_sentence(flags):
        raise RuntimeError("a bug in what allocates")


def test_a_device_without_memory_for_the_largest_graph(ranks: Ranks, tiny_llama: TinyModel) -> None:
    runner = ranks.load(tiny_llama.directory, way="device")
    only(ranks, victim(ranks), "run_short_after_recording")
    assert refused(ranks, LIMITS) == "there is no memory to record the decode step of 4 rows: CUDA error: out of memory"
    goes_well(runner, tiny_llama)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(2, tmp_path_factory.mktemp("ranks")) as two:
        yield two


def test_no_memory_for_what_the_largest_graph_does(two: Ranks, tiny_llama: TinyModel) -> None:
    runner = two.load(tiny_llama.directory, way="device")
    only(two, victim(two), "run_short_while_rehearsing")
    assert refused(two, LIMITS) == f"there is no memory to record the decode step of 4 rows: {SHORT}"
    goes_well(runner, tiny_llama)


@pytest.mark.parametrize(("way", "owner"), [("C++", "_among.stand_in"), ("torch", "_stand_in")])
def test_no_memory_to_stand_in_with(way: str, owner: str, two: Ranks, tiny_llama: TinyModel) -> None:
    runner = two.load(tiny_llama.directory, way=way)
    only(two, victim(two), "run_short_in", owner, "reserve")
    assert "no memory for a KV pool of 16 blocks" in refused(two, LIMITS)
    goes_well(runner, tiny_llama)


def test_a_warm_up_that_fails_otherwise_fails_alone(tmp_path: Path, tiny_llama: TinyModel) -> None:
    with Ranks(1, tmp_path) as alone:
        runner = alone.load(tiny_llama.directory)
        only(alone, 0, "break_down_in", ON_CPU, "huge_zeros")
        assert alone.all("warm_up", LIMITS) == [Raised("RuntimeError", "a bug")]
        goes_well(runner, tiny_llama)


def test_a_warm_up_that_fails_otherwise_ends_all(tmp_path: Path, tiny_llama: TinyModel) -> None:
    """Nobody knows where the rank is in it."""
    with Ranks(2, tmp_path) as two:
        two.load(tiny_llama.directory)
        only(two, 1, "break_down_in", ON_CPU, "huge_zeros")
        with pytest.raises((EOFError, ConnectionResetError)):
            two.all("warm_up", LIMITS)
        assert two.wait_until_gone(5) == [3, 1]
        assert "rank 1 failed: unexpected RuntimeError: a bug" in two.logs[0].read_text().splitlines()[-1]


def test_kernels_without_memory_for_a_step(tmp_path: Path) -> None:
    """What attention needs grows with the context, and is taken from the system when a longer one comes than ever
    before. The step fails, and the same one goes well when there is memory again."""
    with Ranks(1, tmp_path) as alone:
        runner = alone.load(save("Llama", tmp_path / "model", max_position_embeddings=LONG, **HEADS).directory)
        runner.warm_up(Limits(ROWS, 16, LONG, ROWS * LONG // BLOCK_SIZE))
        (result,) = alone.all("execute_without_memory", contexts(1, LONG))
        assert result.out_of_memory
        assert "decoder_forward: no memory for a thread's scratch space" in result.error
        for number, length in ((2, 100), (3, LONG)):
            (result,) = alone.all("execute", contexts(number, length))
            assert (result.error, result.row_errors, len(result.token_ids)) == (None, {}, ROWS)


def contexts(number: int, length: int) -> Step:
    """A token for each row, with as many before it as make up the length, which count as computed."""
    tokens, blocks = np.ones(length, np.int64), -(-length // BLOCK_SIZE)
    first = np.arange(ROWS)[:, None] * (LONG // BLOCK_SIZE)
    return Step.of(
        number=number,
        new_rows=tuple(NewRow(row, number, tokens, 0, length - 1, GREEDY) for row in range(ROWS)),
        chunk_rows=np.arange(ROWS),
        chunk_tokens=np.ones(ROWS, np.int64),
        decode_rows=np.empty(0, np.int64),
        table_lengths=np.full(ROWS, blocks),
        table_blocks=(first + np.arange(blocks)).ravel(),
    )
