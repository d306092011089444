"""What ranks must have in common, compared when they meet.

Ranks that one launcher starts are alike. Those that somebody starts one by one, or that choose for themselves on
different machines, may not be: they would add up what does not belong together, without any error.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from headrace_server.errors import ConfigError


class Setting(NamedTuple):
    """What one rank computes with."""

    shown: str  # in a sentence
    exact: str  # what must be the same; not always what a reader would recognise


class Store(Protocol):
    """A TCPStore, as far as ranks compare notes in it."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes:
        """Waits until somebody has set it."""
        ...


def check_alike(store: Store, rank: int, world_size: int, mine: Mapping[str, Setting]) -> None:
    """`mine`: by name, most telling first; every rank calls this. Raises ConfigError, the same on every rank, for the
    first rank that differs from rank 0."""
    store.set(_KEY.format(rank), json.dumps({"--world-size": (str(world_size),) * 2, **mine}))
    first: dict[str, Setting] = {}
    for other in range(world_size):
        settings = {name: Setting(*said) for name, said in json.loads(store.get(_KEY.format(other))).items()}
        first = first or settings
        for name, wanted in first.items():
            said = settings.get(name, _NOTHING)
            if said.exact != wanted.exact:
                raise ConfigError(
                    f"{name} is {wanted.shown} on rank 0 and {said.shown} on rank {other}; "
                    "all ranks of a model need the same"
                )


_KEY = "settings of rank {}"
_NOTHING = Setting("unknown", "")
