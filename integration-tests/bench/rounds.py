"""Rounds A B A B: in each, every server in turn is started, measured and ended. Never two at once."""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.cases import Case, Weights
from bench.figures import Spread
from bench.load import Invalid, Run
from bench.peers.peer import Model, Peer, Unavailable


class Load(Protocol):
    """`bench.load.Client`, or what a test takes for it."""

    def load(self, url: str, case: Case, seed: int) -> Run: ...

    def first_token(self, url: str, began: float) -> Run: ...


@dataclass
class Results:
    """By case, then by server: its runs, or why there are none. `installed`: what each server says it is."""

    runs: dict[str, dict[str, list[Run]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    reasons: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    installed: dict[str, str] = field(default_factory=dict)

    def spreads(self, case: Case) -> dict[str, Spread]:
        """Of the servers that have runs and no failure: a median of what was left over would flatter."""
        return {
            name: Spread.of([run.figure(case) for run in runs])
            for name, runs in self.runs[case.name].items()
            if name not in self.reasons[case.name]
        }


@dataclass(frozen=True)
class Rounds:
    """`lock`: a file whose lock is held during each measurement, so that other work on the machine can wait for it."""

    peers: Sequence[Peer]
    cases: Sequence[Case]
    rounds: int
    home: Path
    logs: Path
    model: Model
    client: Load
    say: Callable[[str], None]
    lock: Path | None = None

    def run(self) -> Results:
        results = Results()
        able = [peer for peer in self.peers if self._installed(peer, results)]
        for number in range(self.rounds):
            for peer in able:
                for weights in Weights:
                    cases = [case for case in self.cases if case.weights is weights]
                    if cases and weights in peer.weights:
                        self._serve(peer, weights, cases, number, results)
        return results

    def _installed(self, peer: Peer, results: Results) -> bool:
        try:
            results.installed[peer.name] = peer.install(self.home, self.model)
        except Unavailable as reason:
            self._give_up(peer, self.cases, str(reason), results)
            return False
        self.say(f"{peer.name}: {results.installed[peer.name]}")
        return True

    def _serve(self, peer: Peer, weights: Weights, cases: Sequence[Case], number: int, results: Results) -> None:
        """One life of a server. A case that failed once is not tried again: it has no figure any more."""
        cases = [case for case in cases if peer.name not in results.reasons[case.name]]
        if not cases:
            return
        log = self.logs / f"{peer.name}-{weights}-{number + 1}.log"
        with ExitStack() as life:
            try:
                with holding(self.lock):
                    served = life.enter_context(peer.serve(self.home, self.model, weights, log))
                    first = self.client.first_token(served.url, served.began)
            except (Unavailable, Invalid) as reason:
                self._give_up(peer, cases, str(reason), results)
                return
            for place, case in enumerate(cases):
                # Servers keep prefixes: no run may ask what this one, or an earlier one, has asked.
                seed = number * len(cases) + place + 1
                try:
                    with holding(self.lock):
                        run = self.client.load(served.url, case, seed) if case.workload else first
                except Invalid as reason:
                    self._give_up(peer, [case], str(reason), results)
                    continue
                results.runs[case.name][peer.name].append(run)
                figure = f"{run.figure(case):,.{2 if case.unit.less_is_better else 1}f} {case.unit.value}"
                self.say(f"round {number + 1}  {case.name:12} {peer.name:14} {figure}")

    def _give_up(self, peer: Peer, cases: Sequence[Case], reason: str, results: Results) -> None:
        for case in cases:
            if case.weights in peer.weights:
                results.reasons[case.name][peer.name] = reason
        self.say(f"{peer.name}: no figure for {', '.join(case.name for case in cases)}: {reason}")


@contextmanager
def holding(lock: Path | None) -> Iterator[None]:
    """With the file's lock, if there is one to hold."""
    if lock is None:
        yield
        return
    with lock.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
