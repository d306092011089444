"""Where the ranks of one model meet. Plain values, as the command line gives them; no torch."""

from dataclasses import dataclass

PATIENCE_SECONDS = 600.0
"""For every rank to come. As long as a router waits for its shards: machines may be found for them one by one."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """One rank's way to the others."""

    rank: int
    world_size: int
    host: str  # where rank 0 is
    port: int  # of the store in which ranks find each other's addresses
    store_is_up: bool  # whoever started the ranks keeps the store; otherwise rank 0 does
    attempt: int = 0  # how often these ranks were started again: the store may still hold what the earlier ones said
