"""Attention by other libraries, of which fakes check what they are given, and the choice among them."""

import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

from headrace_kernels.ops import kv_cache_shape, paged_attention
from headrace_server.attention import choose
from headrace_server.attention.choose import attention_backend
from headrace_server.attention.fa3 import FlashAttention3
from headrace_server.attention.flashinfer import FlashInfer
from headrace_server.attention.interface import AttentionBatch, HeadCounts, LayerAttention, LayerCache
from headrace_server.attention.paged import PagedAttention
from headrace_server.errors import ConfigError

HEADS = HeadCounts(4, 2, 64)
CPU = torch.device("cpu")
BLOCK_SIZE = 16
NUM_BLOCKS = 12


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def batch_of(starts, most_queries):
    """Two rows, of 40 and 16 tokens."""
    tables, starts, contexts = ints([7, 2, 9], [4, 0, 0]), ints(*starts), ints(40, 16)
    host = SimpleNamespace(
        block_tables=tables.numpy(), query_starts=starts.numpy().copy(), context_lengths=contexts.numpy()
    )
    return AttentionBatch(tables, starts, contexts, most_queries, on_host=host)


MIXED = batch_of((0, 5, 6), 5)
DECODES = batch_of((0, 1, 2), 1)


def reference(query, keys, values, tables, starts, contexts, scale, window):
    """Attention over pages [kv_heads, block_size, head_dim]."""
    pages = keys.contiguous(), values.contiguous()
    return paged_attention(query, *pages, tables, starts, contexts, scale, window, panels=False, backend="reference")


class FakeWrapper:
    """FlashInfer's BatchPrefillWithPagedKVCacheWrapper."""

    plans: ClassVar[list] = []  # who made them, of which starts

    def __init__(self, space, layout):
        assert (space.dtype, layout) == (torch.uint8, "HND")

    def plan(self, starts, block_starts, blocks, in_last, heads, kv_heads, head_dim, block_size, **options):
        FakeWrapper.plans.append((self, starts))
        assert (heads, kv_heads, head_dim, block_size) == (4, 2, 64, BLOCK_SIZE)
        assert options["causal"] and options["q_data_type"] == options["kv_data_type"] == torch.float32
        assert block_starts.dtype == in_last.dtype == blocks.dtype == torch.int32
        counts = block_starts.diff()
        self._tables = torch.zeros(len(counts), int(counts.max()), dtype=torch.int32)
        for row, (begin, end) in enumerate(pairwise(block_starts)):
            self._tables[row, : end - begin] = blocks[begin:end]
        self._batch = starts, (counts - 1) * block_size + in_last
        self._scale, left = options["sm_scale"], options["window_left"]
        self._window = None if left < 0 else left + 1

    def run(self, query, cache):
        return reference(query, *cache, self._tables, *self._batch, self._scale, self._window)


def flash_attn_with_kvcache(query, keys, values, **options):
    """FlashAttention 3's."""
    assert keys.shape == (NUM_BLOCKS, BLOCK_SIZE, 2, 64) and keys.stride(-1) == 1
    assert options["causal"] and options["max_seqlen_q"] == int(options["cu_seqlens_q"].diff().max())
    left, right = options["window_size"]
    assert right == 0
    tables, starts, contexts = options["page_table"], options["cu_seqlens_q"], options["cache_seqlens"]
    window = None if left < 0 else left + 1
    pages = keys.transpose(1, 2), values.transpose(1, 2)
    return reference(query, *pages, tables, starts, contexts, options["softmax_scale"], window)


@pytest.fixture
def installed(monkeypatch):
    """Both libraries, as fakes."""
    fakes = {
        "flashinfer": SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=FakeWrapper),
        "flash_attn_interface": SimpleNamespace(flash_attn_with_kvcache=flash_attn_with_kvcache),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.setattr(FakeWrapper, "plans", [])


@pytest.fixture(params=["flashinfer", "fa3"])
def library(request, installed):
    make = {"flashinfer": FlashInfer, "fa3": FlashAttention3}[request.param]
    return make(HEADS, BLOCK_SIZE, CPU)


def plain(kernels):
    """A backend of ours with the cache in the plain order."""
    backend = PagedAttention(HEADS, BLOCK_SIZE, CPU, kernels)
    backend._panels = False
    return backend


def attend(backend, batch, window):
    """Two layers of seeded numbers; the caches hold numbers already."""
    backend.prepare(4, 64)
    layer = LayerAttention(4, 0.125, window, None)
    generator = torch.Generator().manual_seed(3)
    tokens = int(batch.query_starts[-1])
    results = []
    for _ in range(2):
        shape = kv_cache_shape(NUM_BLOCKS, BLOCK_SIZE, 2, 64)
        cache = LayerCache(*(torch.randn(shape, generator=generator) for _ in range(2)))
        qkv = torch.randn(tokens, 8 * 64, generator=generator)
        cos_sin = torch.randn(64, 64, generator=generator)
        results.append(backend(qkv, layer, cos_sin, cache, batch))
    return torch.stack(results)


@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("batch", [MIXED, DECODES], ids=["mixed", "decodes"])
def test_a_library_attends_as_the_definition_does(library, batch, window):
    expected = attend(plain("reference"), batch, window)
    torch.testing.assert_close(attend(library, batch, window), expected, atol=2e-5, rtol=2e-5)


def test_flashinfer_plans_once_a_step_and_leaves_decodes_to_our_kernels(installed):
    flashinfer = FlashInfer(HEADS, BLOCK_SIZE, CPU)
    attend(flashinfer, DECODES, None)
    assert len(FakeWrapper.plans) == 0
    attend(flashinfer, MIXED, None)
    assert len(FakeWrapper.plans) == 1


def test_flashinfer_plans_what_the_host_knows_and_leaves_the_plan_of_the_step_before_alone(installed):
    flashinfer = FlashInfer(HEADS, BLOCK_SIZE, CPU)
    flashinfer.prepare(4, 64)
    layer = LayerAttention(4, 0.125, None, None)
    cache = LayerCache(*(torch.zeros(kv_cache_shape(NUM_BLOCKS, BLOCK_SIZE, 2, 64)) for _ in range(2)))
    steps = [batch_of((0, 5, 6), 5) for _ in range(3)]
    for step in steps:
        for _ in range(2):
            flashinfer(torch.zeros(6, 8 * 64), layer, torch.zeros(64, 64), cache, step)
    (first, _), (second, _), (third, _) = FakeWrapper.plans
    assert first is third and first is not second
    read = [starts.data_ptr() for _, starts in FakeWrapper.plans]
    assert read == [step.on_host.query_starts.ctypes.data for step in steps], (
        "nothing that the device would be asked for"
    )


def test_auto_takes_the_fastest_that_is_there(installed, monkeypatch):
    present = {"triton"}
    monkeypatch.setattr(choose, "find_spec", lambda name: name if name in present else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(choose, "PagedAttention", lambda *args: SimpleNamespace(name="ours"))
    gpu = torch.device("cuda:0")

    def chosen(dtype=torch.bfloat16):
        return attention_backend("auto", HEADS, BLOCK_SIZE, gpu, dtype).name

    assert chosen() == "ours"
    present.add("flashinfer")
    assert chosen() == "flashinfer"
    assert chosen(torch.float32) == "ours"
    present.add("flash_attn_interface")
    assert chosen() == "fa3"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert chosen() == "flashinfer"


@pytest.mark.parametrize(
    ("name", "advice"),
    [("flashinfer", "`pip install flashinfer-python`"), ("fa3", "build flash_attn_3 from the folder hopper")],
)
def test_what_is_missing_comes_with_how_to_install_it(name, advice):
    with pytest.raises(ConfigError, match=f"--attention-backend {name}: not installed; {advice}"):
        attention_backend(name, HEADS, BLOCK_SIZE, torch.device("cuda:0"), torch.bfloat16)


def test_what_cannot_compute_here_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(choose, "find_spec", lambda name: name)
    monkeypatch.setattr(choose, "_interpreting", lambda: False)
    gpu, half = torch.device("cuda:0"), torch.float16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    for name, heads, device, dtype, reason in (
        ("triton", HEADS, CPU, torch.float32, r"needs a GPU \(or TRITON_INTERPRET=1"),
        ("triton", HeadCounts(4, 2, 288), gpu, half, "heads of 288 elements are more than 256"),
        ("flashinfer", HEADS, CPU, half, "needs a GPU"),
        ("flashinfer", HEADS, gpu, torch.float32, "needs --dtype bfloat16 or float16"),
        ("flashinfer", HeadCounts(4, 2, 80), gpu, half, "heads of 80 elements are none of 64, 128, 256"),
        ("fa3", HEADS, gpu, half, "needs a Hopper GPU"),
    ):
        with pytest.raises(ConfigError, match=reason):
            attention_backend(name, heads, BLOCK_SIZE, device, dtype)


def test_what_must_not_depend_on_the_batch_is_left_to_triton(installed, monkeypatch):
    present = {"triton", "flashinfer", "flash_attn_interface"}
    monkeypatch.setattr(choose, "find_spec", lambda name: name if name in present else None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def chosen(device):
        return attention_backend("auto", HEADS, BLOCK_SIZE, device, torch.float16, batch_invariant=True)

    assert chosen(torch.device("cuda:0")).name == "triton"
    present.remove("triton")
    with pytest.raises(
        ConfigError, match="--batch-invariant: not installed; `pip install triton`, or leave the flag out"
    ):
        chosen(torch.device("cuda:0"))


@pytest.mark.parametrize("name", ["auto", "flashinfer", "fa3", "triton"])
def test_ahead_of_time_triton_stands_for_all(name):
    assert attention_backend(name, HEADS, BLOCK_SIZE, torch.device("meta"), torch.float16).name == "triton"
