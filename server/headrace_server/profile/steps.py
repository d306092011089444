"""Makes the messages that a router would send for a shape, as bytes, and runs them."""

from collections.abc import Iterator

import numpy as np

from headrace_server import wire
from headrace_server.errors import ConfigError, HeadraceError
from headrace_server.memory import Limits
from headrace_server.pb import shard_pb2 as pb
from headrace_server.profile.shapes import Shape
from headrace_server.runner import Runner
from headrace_server.step import Ints, Step, StepResult
from headrace_server.warmup import warm_up

SOURCE_TOKENS = 512
"""Of the prompt whose keys and values fill the pool: memory that was never written is read for nothing."""


class Steps:
    """A pool that is large enough for some shapes, full of real keys and values, and steps in it."""

    def __init__(self, runner: Runner, sizes: dict[Shape, int], temperature: float) -> None:
        """sizes: shape → steps that will be asked of it at most. Raises CapacityError if memory lacks for them."""
        self.runner = runner
        self._block_size = runner.compute.block_size
        self._temperature = temperature
        self._random = np.random.default_rng(0)
        self.last = StepResult(0)
        longest = max(shape.context + sizes[shape] for shape in sizes)
        if longest > runner.config.max_positions:
            raise ConfigError(
                f"--shapes: {longest} tokens of context exceed the {runner.config.max_positions} positions of the model"
            )
        prompt = max((shape.context for shape in sizes if shape.rows == 0), default=0)
        source = min(SOURCE_TOKENS, longest)
        self.num_blocks = max(max(shape.rows, 1) * self._blocks(shape.context + sizes[shape]) for shape in sizes)
        rows = max(max(shape.rows, 1) for shape in sizes)
        warm_up(runner, Limits(rows, max(prompt, source), longest, self.num_blocks))
        self._fill(source)

    def prompt(self, shape: Shape) -> bytes:
        """The one step of a prompt."""
        return self._admission(Shape(1, shape.context), known=shape.context, computed=0, extent=shape.context)

    def decodes(self, shape: Shape, count: int) -> Iterator[bytes]:
        """As many steps, each one token further. Rows are admitted first, with all but one token computed."""
        extent = shape.context + count
        self.execute_prefill(self._admission(shape, known=shape.context - 1, computed=shape.context - 2, extent=extent))
        rows = _packed(np.arange(shape.rows))
        for number in range(count):
            tables = self._tables(shape, shape.context + number, extent)
            yield pb.DecodeStep(step=number, decode_rows=rows, tables=tables).SerializeToString()

    def execute_prefill(self, message: bytes) -> bytes:
        """Bytes in, bytes out, as a served step."""
        return self._answer(wire.parse_prefill(pb.PrefillStep.FromString(message)))

    def execute_decode(self, message: bytes) -> bytes:
        """The same of a step of decodes alone."""
        return self._answer(wire.parse_decode(pb.DecodeStep.FromString(message)))

    def _answer(self, step: Step) -> bytes:
        self.last = self.runner.execute(step)
        answer: bytes = wire.render_result(self.last, 0, 0).SerializeToString()
        _check(self.last)
        return answer

    def _admission(self, shape: Shape, known: int, computed: int, extent: int) -> bytes:
        self.runner.reset()
        vocabulary = self.runner.config.vocab_size
        sampling = pb.Sampling(temperature=self._temperature, seed=1)
        rows = np.arange(shape.rows)
        new_rows = [
            pb.NewRow(
                row=row,
                token_ids=_packed(self._random.integers(0, vocabulary, known)),
                num_computed=computed,
                sampling=sampling,
            )
            for row in rows.tolist()
        ]
        return pb.PrefillStep(
            new_rows=new_rows,
            chunk_rows=_packed(rows),
            chunk_tokens=_packed(np.full(shape.rows, known - computed)),
            tables=self._tables(shape, known, extent),
        ).SerializeToString()

    def _tables(self, shape: Shape, context: int, extent: int) -> pb.BlockTables:
        """Of rows that see `context` tokens and will see `extent`."""
        order = self._order(shape.rows * self._blocks(extent)).reshape(shape.rows, -1)
        used = order[:, : self._blocks(context)]
        return pb.BlockTables(lengths=_packed(np.full(shape.rows, used.shape[1])), blocks=_packed(used.ravel()))

    def _order(self, count: int) -> Ints:
        """Blocks lie anywhere in the pool, as they do after some requests have come and gone."""
        return np.random.default_rng(count).permutation(self.num_blocks)[:count]

    def _fill(self, source: int) -> None:
        self.execute_prefill(self.prompt(Shape(0, source)))
        written = self._order(self._blocks(source))
        others = np.setdiff1d(np.arange(self.num_blocks), written)
        self.runner.compute.copy_blocks(np.stack((np.resize(written, len(others)), others), axis=1))

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_size)


def _check(result: StepResult) -> None:
    problem = result.error or next(iter(result.row_errors.values()), None)
    if problem is not None:
        raise HeadraceError(f"a step of the profile failed: {problem}")


def _packed(values: Ints) -> bytes:
    return values.astype("<u4").tobytes()
