"""Steps of every kind that a router may send: whoever has run them has compiled, and allocated, what any step needs."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headrace_server.memory import Limits
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import Ints, NewRow, Step

GREEDY = SamplingParameters()
DEMANDING = SamplingParameters(
    temperature=1.0,
    top_k=50,
    top_p=0.9,
    typical_p=0.9,
    min_p=0.01,
    repetition_penalty=1.1,
    frequency_penalty=0.1,
    presence_penalty=0.1,
    bias_ids=np.zeros(1, np.int64),
    bias_values=np.ones(1, np.float32),
    logprobs=True,
    top_n=5,
)
"""Everything that sampling can be asked for at once."""
VARIED = (
    GREEDY,
    SamplingParameters(temperature=0.7),
    SamplingParameters(temperature=0.7, top_k=50),
    SamplingParameters(temperature=0.7, top_p=0.9),
    SamplingParameters(temperature=0.7, typical_p=0.9),
    SamplingParameters(temperature=0.7, min_p=0.1),
    SamplingParameters(repetition_penalty=1.1),
    SamplingParameters(logprobs=True),
    SamplingParameters(top_n=5),
)
"""What requests ask for, one at a time: each may take another way through the kernels."""


def longest_prompts(limits: Limits, num_blocks: int, served: int, block_size: int) -> Step:
    """As few and as long prompts as hold max_batch_prefill_tokens, within rows and pool."""
    lengths: list[int] = []
    blocks_left, tokens_left = num_blocks, limits.max_batch_prefill_tokens
    while len(lengths) < limits.max_batch_size and blocks_left and tokens_left:
        lengths.append(min(served, tokens_left, blocks_left * block_size))
        tokens_left -= lengths[-1]
        blocks_left -= -(-lengths[-1] // block_size)
    return prompts(np.array(lengths), block_size)


def every_size(limits: Limits, num_blocks: int, served: int, block_size: int) -> Iterator[Step]:
    """Prompts of 1, 2, 4, … tokens, as far as a step can go: products have kernels for few rows, for more, for many."""
    tokens = 1
    while tokens < limits.max_batch_prefill_tokens + limits.max_batch_size:
        yield longest_prompts(replace(limits, max_batch_prefill_tokens=tokens), num_blocks, served, block_size)
        tokens *= 2


def most_rows(limits: Limits, block_size: int) -> Step:
    """As many rows as there can be, each sampling in the way that takes most memory. One is no decode row."""
    lengths = np.ones(limits.max_batch_size, np.int64)
    lengths[0] = 2
    return prompts(lengths, block_size, DEMANDING)


def every_kind(block_size: int) -> Iterator[Step]:
    """A prompt in two chunks whose tokens are weighed. Then each way to sample: a prompt beside a row that decodes, and
    both decoding. In rows and blocks 0 and 1, of at most 8 positions."""
    yield prompts(np.array([2]), block_size, SamplingParameters(prompt_logprobs=True), known=4)
    yield Step.of(1, (), np.array([0]), np.array([2]), _NONE, np.array([1]), np.array([0]))
    for parameters in VARIED:
        first, second = (NewRow(row, 2, np.zeros(2, np.int64), 0, 0, parameters) for row in (0, 1))
        one, both = np.ones(1, np.int64), np.ones(2, np.int64)
        copies = np.array([[0, 1]])
        yield Step.of(2, (first,), np.array([0]), 2 * one, _NONE, one, np.array([0]))
        yield Step.of(3, (second,), np.array([1]), 2 * one, np.array([0]), both, np.array([1, 0]), copies)
        yield Step.of(4, (), _NONE, _NONE, np.array([0, 1]), both, np.array([0, 1]))


def prompts(lengths: Ints, block_size: int, parameters: SamplingParameters = GREEDY, known: int | None = None) -> Step:
    """Each its first chunk, `known` or as many tokens long, in blocks of its own."""
    rows, blocks = np.arange(len(lengths)), -(-np.maximum(lengths, known or 0) // block_size)
    new = zip(rows.tolist(), lengths.tolist(), strict=True)
    return Step.of(
        number=1,
        new_rows=tuple(NewRow(row, 1, np.zeros(known or length, np.int64), 0, 0, parameters) for row, length in new),
        chunk_rows=rows,
        chunk_tokens=lengths,
        decode_rows=_NONE,
        table_lengths=blocks,
        table_blocks=np.arange(blocks.sum()),
    )


_NONE = np.empty(0, np.int64)
