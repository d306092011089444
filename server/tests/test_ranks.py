"""Several ranks are one model: the tokens of one rank, also when rows come, go and come back; and one fate."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from int4_checkpoints import write
from ranks_world import Raised, Ranks, SplitWorld
from shard_world import BLOCK_SIZE, GREEDY, World, load, load_on_torch, random_tokens
from test_architectures import ARCHITECTURES
from test_slices import gguf
from test_swap import HOST_BLOCKS, swap_and_go_on
from tiny_models import TinyModel, save

from headrace_server.distributed.collective import Act
from headrace_server.memory import CPU_SHARE, Limits
from headrace_server.sampling.parameters import SamplingParameters

# Heads that ranks can't share evenly: with 4 ranks one of them holds none.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **ARCHITECTURES,
    "three-kv-heads": ("Llama", {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 144}),
}
# Heads and columns in whole groups of 32, as smaller weights want them.
GROUPED = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
TORCH = (*MODELS, "grouped", "four-bits")
ASKING = SamplingParameters(logprobs=True, prompt_logprobs=True)
PROMPTS = {row: random_tokens(length, seed=row) for row, length in ((0, 20), (3, 1), (5, 17))}
TOKENS = 6


@pytest.fixture(scope="module", params=[2, 3, 4], ids=lambda count: f"{count} ranks")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(request.param, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


@pytest.fixture
def two(tmp_path: Path, tiny_llama: TinyModel) -> Iterator[Ranks]:
    """For tests that end them."""
    with Ranks(2, tmp_path) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    models = {**MODELS, "grouped": ("Llama", GROUPED)}
    plain = {name: save(kind, root / name, **changes).directory for name, (kind, changes) in models.items()}
    stored = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
    return {**plain, "four-bits": write(plain["grouped"], root / "four-bits", stored).quantized}


@pytest.mark.parametrize("name", [*MODELS, "four-bits"])
def test_greedy_answers_are_those_of_one_rank(name: str, ranks: Ranks, directories: dict[str, Path]) -> None:
    alone = World(load(directories[name])).generate(PROMPTS, TOKENS, chunk=8)
    assert SplitWorld(ranks.load(directories[name])).generate(PROMPTS, TOKENS, chunk=8) == alone


@pytest.mark.parametrize("name", TORCH)
def test_so_are_those_of_torchs_layers(name: str, ranks: Ranks, directories: dict[str, Path]) -> None:
    """Where there are no C++ kernels."""
    alone = World(load_on_torch(directories[name])).generate(PROMPTS, TOKENS, chunk=8)
    assert SplitWorld(ranks.load(directories[name], way="torch")).generate(PROMPTS, TOKENS, chunk=8) == alone


@pytest.mark.parametrize(
    "flags",
    [
        ("--dtype", "bfloat16"),
        ("--kv-cache-dtype", "int8"),
        ("--quantize", "int8"),
        ("--quantize", "int4"),
        ("--quantize", "int8", "--kv-cache-dtype", "int8", "--dtype", "bfloat16"),
    ],
    ids=" ".join,
)
def test_smaller_types_and_weights_answer_as_on_one_rank(
    flags: tuple[str, ...], ranks: Ranks, directories: dict[str, Path]
) -> None:
    directory = directories["grouped"]
    dtype = flags[flags.index("--dtype") + 1] if "--dtype" in flags else "float32"
    alone = World(load(directory, *flags, dtype=dtype)).generate(PROMPTS, TOKENS, chunk=8)
    assert SplitWorld(ranks.load(directory, *flags)).generate(PROMPTS, TOKENS, chunk=8) == alone


def test_no_rank_begins_within_a_block_of_a_gguf(ranks: Ranks, tmp_path: Path) -> None:
    """4 blocks of 256 columns a row."""
    ranks.load(gguf(tmp_path, "Q4_K", {"down_proj": (256, 1024)}), "--quantize", "int4")


@pytest.mark.parametrize("flags", [(), ("--dtype", "bfloat16", "--quantize", "int8", "--kv-cache-dtype", "int8")])
def test_log_probabilities_have_the_same_bits_whatever_the_chunks_and_batch_mates(
    flags: tuple[str, ...], ranks: Ranks, directories: dict[str, Path]
) -> None:
    """Sums over ranks are the same sums for a row alone and among others."""
    runner = ranks.load(directories["grouped"], *flags)
    prompt = random_tokens(45, seed=9)
    mates = {row: random_tokens(30 + row, seed=row) for row in range(1, 9)}

    def told(chunk: int, others: dict[int, list[int]]) -> bytes:
        world = SplitWorld(runner, seed=chunk)
        for start in range(0, len(prompt), chunk):
            new = {0: (prompt, ASKING), **{row: (tokens, GREEDY) for row, tokens in others.items()}}
            count = min(chunk, len(prompt) - start)
            joining = dict.fromkeys(others, 7) if start == 0 else {}
            world.step(new=new if start == 0 else {}, chunks={0: count, **joining})
        world.step(decodes=[0])
        results = world.rows[0].results
        parts = [result.prompt_logprobs for result in results] + [result.logprobs for result in results]
        return b"".join(part.tobytes() for part in parts)

    whole = told(45, {})
    assert len(whole) == 4 * (45 + 2)
    assert told(45, mates) == told(1, {}) == told(16, mates) == whole


def test_log_probabilities_are_those_of_one_rank(ranks: Ranks, tiny_llama: TinyModel) -> None:
    """Of prompts, and of the likeliest tokens, for which rank 0 needs all logits."""
    asked = SamplingParameters(logprobs=True, top_n=5, prompt_logprobs=True)
    told = []
    for world in (World(load(tiny_llama.directory)), SplitWorld(ranks.load(tiny_llama.directory))):
        world.generate({2: PROMPTS[0]}, 3, chunk=7, parameters={2: asked})
        told.append(world.rows[2].results)
    for ours, theirs in zip(*told, strict=True):
        assert ours.top_ids.tolist() == theirs.top_ids.tolist()
        for name in ("logprobs", "top_logprobs", "prompt_logprobs"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-4)


def test_tokens_are_drawn_as_on_one_rank(ranks: Ranks, tiny_llama: TinyModel) -> None:
    parameters = {0: SamplingParameters(temperature=0.8, seed=7), 3: SamplingParameters(repetition_penalty=1.5)}
    alone = World(load(tiny_llama.directory)).generate(PROMPTS, TOKENS, parameters=parameters)
    together = SplitWorld(ranks.load(tiny_llama.directory)).generate(PROMPTS, TOKENS, parameters=parameters)
    assert together == alone


def test_what_was_swapped_out_comes_back_on_all_ranks(ranks: Ranks, directories: dict[str, Path]) -> None:
    runner = ranks.load(directories["three-kv-heads"])
    host_bytes = HOST_BLOCKS * BLOCK_SIZE * 2 * 3 * 3 * 16 * 4  # a token: keys and values · layers · heads · elements
    swap_and_go_on(SplitWorld(runner, max_rows=4, max_total_tokens=64, host_bytes=host_bytes))


def test_host_memory_has_as_many_blocks_as_the_rank_with_least_has_room_for(
    ranks: Ranks, directories: dict[str, Path]
) -> None:
    ranks.load(directories["three-kv-heads"])
    a_head = BLOCK_SIZE * 2 * 3 * 16 * 4  # bytes of a block: keys and values · layers · elements · float32
    most_heads = {2: 2, 3: 1, 4: 1}[len(ranks.pipes)]
    reports = ranks.all("warm_up", Limits(4, 16, 64, 16, 6 * most_heads * a_head))
    assert [report.host_blocks for report in reports] == [6] * len(ranks.pipes)


def test_prefixes_and_copies_of_blocks_are_found_on_all_ranks(ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = SplitWorld(ranks.load(tiny_llama.directory))
    prompt = random_tokens(2 * BLOCK_SIZE + 5, seed=4)
    world.step(new={0: (prompt, GREEDY)}, chunks={0: len(prompt)})
    world.step(new={1: (prompt, GREEDY)}, chunks={1: 1}, decodes=[0], shared={1: (0, len(prompt) - 1)})
    for _ in range(4):
        world.step(decodes=[0, 1])
    assert world.rows[1].answer == tiny_llama.greedy(prompt, 5)


@pytest.mark.parametrize(
    "config",
    [{"quant_method": "gptq", "bits": 4, "group_size": 64}, {"quant_method": "awq", "bits": 4, "group_size": 32}],
    ids=["gptq", "awq"],
)
def test_checkpoints_of_4_bits_are_cut_too(config: dict[str, Any], ranks: Ranks, tmp_path: Path) -> None:
    """Of four ranks each has one head of 32 inputs, which is half a group of 64."""
    plain = save("Llama", tmp_path / "model", hidden_size=128, intermediate_size=256)
    directory = write(plain.directory, tmp_path, config).quantized
    alone = World(load(directory)).generate(PROMPTS, TOKENS)
    for way in ("C++", "torch"):
        assert SplitWorld(ranks.load(directory, way=way)).generate(PROMPTS, TOKENS) == alone


def test_a_row_that_was_preempted_and_one_that_was_cancelled_disturb_nobody(
    ranks: Ranks, tiny_llama: TinyModel
) -> None:
    world = SplitWorld(ranks.load(tiny_llama.directory))
    expected = tiny_llama.greedy(PROMPTS[0], 10)
    world.generate(PROMPTS, 4, chunk=8)
    for epoch, row in enumerate(PROMPTS, start=1):
        if row != 5:
            world.runner.filter(row, epoch)
            world.forget(row)
    so_far = PROMPTS[0] + expected[:4]
    world.step(new={7: (so_far, GREEDY)}, generated={7: 4}, chunks={7: 9}, decodes=[5])
    world.step(chunks={7: len(so_far) - 9}, decodes=[5])
    while len(world.rows[7].answer) < 10:
        world.step(decodes=[7, 5])
    assert world.rows[7].answer == expected
    assert world.rows[5].answer == tiny_llama.greedy(PROMPTS[5], len(world.rows[5].answer))


def test_what_a_message_makes_impossible_fails_on_all_ranks_alike(ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = SplitWorld(ranks.load(tiny_llama.directory))
    result = world.step(new={0: ([1, 2, 400], GREEDY), 1: (PROMPTS[5], GREEDY)}, chunks={0: 3, 1: len(PROMPTS[5])})
    assert list(result.row_errors) == [0]
    assert "token id 400" in result.row_errors[0]
    assert list(world.step(decodes=[0, 1]).row_errors) == [0]
    assert world.rows[1].answer == tiny_llama.greedy(PROMPTS[5], 2)


def test_logits_that_are_no_numbers_fail_the_row_in_every_step(ranks: Ranks, tiny_llama: TinyModel) -> None:
    """Only rank 0 sees them, so the row stays in the batch on all ranks until the router takes it out."""
    world = SplitWorld(ranks.load(tiny_llama.directory))
    ranks.all("lose_logits")
    for result in (world.step(new={0: (PROMPTS[5], GREEDY)}, chunks={0: 17}), world.step(decodes=[0])):
        assert result.error is None
        assert "not finite" in result.row_errors[0]


def test_ranks_of_one_machine_share_its_memory(ranks: Ranks, tiny_llama: TinyModel) -> None:
    count = len(ranks.pipes)
    ranks.load(tiny_llama.directory, "--local-world-size", str(count))
    assert ranks.all("memory_share") == [CPU_SHARE / count] * count


def test_the_pool_is_as_large_as_the_rank_with_least_memory_allows(ranks: Ranks, tiny_llama: TinyModel) -> None:
    ranks.load(tiny_llama.directory)
    world_size = len(ranks.pipes)
    block_bytes = 16 * 2 * 3 * 16 * 4  # tokens · keys and values · layers · a head · float32: one KV head a rank
    plenty, little = 100 * block_bytes, 40 * block_bytes
    ranks.each([("have_memory", little if rank == 1 else plenty) for rank in range(world_size)])
    reports = ranks.all("warm_up", Limits(16, 16, 64, None))
    assert [report.num_blocks for report in reports] == [40] * world_size
    ranks.each([("have_memory", 3 * block_bytes if rank == 1 else plenty) for rank in range(world_size)])
    refusals = ranks.all("warm_up", Limits(16, 16, 64, None))
    assert {refusal.kind for refusal in refusals} == {"CapacityError"}
    assert "lower --max-total-tokens" in refusals[1].text
    assert {refusal.text for refusal in (refusals[0], *refusals[2:])} == {f"rank 1 says: {refusals[1].text}"}


def test_a_rank_leaves_a_message_behind_that_the_others_never_got(ranks: Ranks, tiny_llama: TinyModel) -> None:
    """A router died after it had reached rank 0 alone; the next one reaches all."""
    ranks.load(tiny_llama.directory)
    later = ("agree", Act.STEP, 8, True)
    ranks.pipes[0].send(("agree", Act.STEP, 7, False))
    for pipe in ranks.pipes[1:]:
        pipe.send(later)
    assert ranks.answer(0) is False
    ranks.pipes[0].send(later)
    assert [ranks.answer(rank) for rank in range(len(ranks.pipes))] == [True] * len(ranks.pipes)


def test_a_rank_that_fails_alone_ends_with_its_reason_and_takes_the_others_along(
    two: Ranks, tiny_llama: TinyModel
) -> None:
    world = SplitWorld(two.load(tiny_llama.directory))
    two.each([("filter", None), ("break_down_in", "decoder._decoder", "forward_among_ranks")])
    with pytest.raises((EOFError, ConnectionResetError)):
        world.generate(PROMPTS, 2)
    assert two.wait_until_gone(5) == [3, 1]
    assert two.logs[1].read_text().splitlines()[-1].startswith("error: unexpected RuntimeError: a bug")
    assert "rank 1 failed: unexpected RuntimeError: a bug" in two.logs[0].read_text().splitlines()[-1]


def test_a_rank_that_waits_for_another_knows_it_and_ends_with_one_line_when_that_one_is_killed(
    two: Ranks, tiny_llama: TinyModel
) -> None:
    two.load(tiny_llama.directory)
    two.pipes[0].send(("agree_aloud", Act.STEP, 7))
    assert two.answer(0) == "it waits"
    two.processes[1].kill()
    with pytest.raises(EOFError):
        two.answer(0)
    assert two.wait_until_gone(5)[0] == 3
    assert two.logs[0].read_text() == "error: rank 1 is gone; this rank is of no use without it\n"


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed_takes_idle_ones_along_within_5_seconds(victim: int, two: Ranks) -> None:
    assert (
        two.all("agree_is_unknown")
        == [Raised("AttributeError", "'_Rank' object has no attribute 'agree_is_unknown'")] * 2
    )
    began = time.monotonic()
    two.processes[victim].kill()
    codes = two.wait_until_gone(5)
    assert time.monotonic() - began < 5
    assert codes[1 - victim] == 3
    assert f"error: rank {victim} is gone" in two.logs[1 - victim].read_text()
