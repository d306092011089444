"""A shard whose device is a clock: `python timed_shard.py LOG STEP_MS MOST_TOKENS PATIENCE serve …` computes nothing
and takes its time for it; for steps of more tokens it has no memory. No step ends before the next one has arrived,
unless that takes PATIENCE seconds longer. All else is the real shard: protocol, inbox, threads. It writes a line of LOG
for each step that landed:

    {"step": 7, "arrived": …, "began": …, "ended": …}      seconds of one clock, of the message and of the device
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headrace_server import flags, log, serve
from headrace_server.batch import StepRows
from headrace_server.compute.interface import Computed, PoolPlan
from headrace_server.distributed.collective import Alone, Collective
from headrace_server.models.config import ModelConfig
from headrace_server.prompt_logprobs import AskedChunk
from headrace_server.rows import Rows
from headrace_server.runner import Landing, Runner
from headrace_server.sampling.samples import Samples
from headrace_server.service import ShardService
from headrace_server.session import Session
from headrace_server.step import Ints, Step

TOKEN = 1000
MEMORY = 2**30


class TimedStep:
    """Ends when its time has come."""

    def __init__(self, began: float, ended: float, samples: int) -> None:
        self.began = began
        self.ended = ended
        self._samples = samples

    def land(self) -> Computed:
        time.sleep(max(self.ended - time.monotonic(), 0))
        count = self._samples
        ids, nothing = np.full(count, TOKEN), np.empty(0, np.int64)
        samples = Samples(
            ids, np.ones(count, np.bool_), np.zeros(count, np.float32), nothing, nothing.astype(np.float32)
        )
        return Computed(samples if count else None, [], round((self.ended - self.began) * 1e6), 0)


class TimedCompute:
    """See `Compute`."""

    dtype = "float32"
    device = "cpu"
    block_size = 16
    kv_bytes_per_token = 64
    overlaps = True
    collective: Collective = Alone()

    def __init__(self, config: ModelConfig, step_seconds: float, most_tokens: int) -> None:
        self.config = config
        self._most_tokens = most_tokens
        self.last: TimedStep | None = None
        self._step_seconds = step_seconds

    def available(self) -> tuple[int, float]:
        return MEMORY, 1.0

    def worst_case(self, run: Callable[[], None]) -> int:
        return 0

    def prepare(self, plan: PoolPlan) -> None:
        pass

    def free_pool(self) -> None:
        pass

    def copy_blocks(self, pairs: Ints) -> None:
        pass

    def usable(self) -> bool:
        return True

    def relieve(self) -> None:
        pass

    def swap(self, out: Ints, back: Ints) -> None:
        pass

    def swap_us(self) -> int:
        return 0

    def rehearse(self) -> None:
        pass

    def improve(self) -> bool:
        return False

    def launch(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> TimedStep:
        """On a device that is free, or after the step before."""
        if (tokens := int(laid_out.num_tokens.sum())) > self._most_tokens:
            raise MemoryError(f"{tokens} tokens do not fit")
        began = max(time.monotonic(), self.last.ended if self.last else 0.0)
        self.last = TimedStep(began, began + self._step_seconds, int(laid_out.sampling.sum()))
        return self.last


def main(log_path: str, step_ms: str, most_tokens: str, patience: str, _serve: str, *words: str) -> int:
    """Serve until told to end."""
    parsed = flags.parse_serve(words)
    log.configure(parsed.json_output)
    lines = Path(log_path).open("a", buffering=1)  # noqa: SIM115 (for as long as the process lives)
    arrived: dict[int, float] = {}
    another = threading.Condition()

    def load(_flags: flags.ServeFlags, config: ModelConfig) -> Runner:
        compute = TimedCompute(config, float(step_ms) / 1000, int(most_tokens))

        class Noting(Runner):
            def launch(self, step: Step) -> Landing:
                land = super().launch(step)
                timed = compute.last
                assert timed is not None

                def landed() -> Any:
                    result = land()
                    if step.number in arrived:
                        with another:
                            followed = another.wait_for(lambda: step.number + 1 in arrived, float(patience))
                        ended = timed.ended if not followed else max(timed.ended, arrived[step.number + 1])
                        told = {"step": step.number, "arrived": arrived.pop(step.number)}
                        lines.write(json.dumps({**told, "began": timed.began, "ended": ended}) + "\n")
                    return result

                return landed

        return Noting(compute)

    to_work = ShardService._step

    def note_arrival(self: ShardService, parse: Any, session: Session, message: Any) -> Any:
        with another:
            arrived[message.step] = time.monotonic()
            another.notify_all()
        return to_work(self, parse, session, message)

    ShardService._step = note_arrival  # type: ignore[method-assign]
    serve._load = load  # type: ignore[assignment]
    return serve.run(parsed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
