"""`--kv-cache-dtype`: what a cache in 8 bits takes, how far answers move, and what does not move at all."""

import logging

import pytest
from shard_world import GREEDY, World, forward_logits, load, random_tokens
from tiny_models import TinyModel, save

from headrace_server import load as loading
from headrace_server.errors import ConfigError

DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
TOKENS = random_tokens(60, seed=3)
INT8 = ("--kv-cache-dtype", "int8")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Two KV heads of 24 elements, which the cache pads to 32."""
    sizes = {"hidden_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3}
    return save("Llama", tmp_path_factory.mktemp("llama"), initializer_range=0.1, **sizes)


@DTYPES
def test_a_token_takes_a_byte_an_element_and_a_scale_a_head(dtype: str, model: TinyModel) -> None:
    assert load(model.directory, *INT8, dtype=dtype).compute.kv_bytes_per_token == 2 * 3 * 2 * (32 + 4)


@DTYPES
def test_log_probabilities_move_little(dtype: str, model: TinyModel) -> None:
    exact = model.logits(TOKENS).log_softmax(-1)
    shifts = {}
    for name, flags in {"as --dtype": (), "int8": INT8}.items():
        got = forward_logits(World(load(model.directory, *flags, dtype=dtype)), 0, TOKENS, 100)
        shifts[name] = float((got.log_softmax(-1) - exact).abs().mean())
    assert shifts["int8"] != shifts["as --dtype"]
    assert shifts["int8"] < shifts["as --dtype"] + 0.01


@DTYPES
def test_chunks_of_any_size_give_the_same_bits(dtype: str, model: TinyModel) -> None:
    runner = load(model.directory, *INT8, dtype=dtype)
    whole, *others = (forward_logits(World(runner, seed=chunk), 0, TOKENS, chunk) for chunk in (100, 1, 7, 16, 33))
    assert all(other.equal(whole) for other in others)


def test_a_copied_block_continues_as_its_original(model: TinyModel) -> None:
    """A second choice of a question: whole blocks shared, the last one copied with its scales."""
    world = World(load(model.directory, *INT8, dtype="bfloat16"))
    prompt = TOKENS[:41]
    world.step(new={0: (prompt, GREEDY)}, chunks={0: 41})
    world.step(new={1: (prompt, GREEDY)}, chunks={1: 1}, decodes=[0], shared={1: (0, 40)})
    for _ in range(6):
        world.step(decodes=[0, 1])
    assert world.copies == [] and world.rows[1].blocks[-1] != world.rows[0].blocks[-1]
    assert world.rows[1].answer == world.rows[0].answer[:-1]


def test_a_cpu_takes_int8_for_fp8_and_says_so(model: TinyModel, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        compute = load(model.directory, "--kv-cache-dtype", "fp8_e5m2").compute
    assert compute.kv_bytes_per_token == 2 * 3 * 2 * (32 + 4)
    assert "--kv-cache-dtype fp8_e5m2: a CPU keeps keys and values as int8" in caplog.text


def test_without_the_library_it_is_refused(model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.native, "available", lambda: False)
    with pytest.raises(ConfigError, match=r"--kv-cache-dtype int8: needs the C\+\+ kernels: "):
        load(model.directory, *INT8)
