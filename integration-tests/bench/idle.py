"""How long a shard computed nothing between its steps, as Headrace's /metrics count it. Other servers don't say."""

import re
import urllib.request
from dataclasses import dataclass
from urllib.error import URLError

COMPUTED, OVERHEAD = "headrace_step_duration_seconds", "headrace_step_overhead_seconds"


@dataclass(frozen=True)
class Times:
    """Seconds since the server's start, of all its steps."""

    computed: float
    overhead: float

    def idle_share_since(self, before: "Times") -> float | None:
        """Of the time in which there was something to do. None: no step ran."""
        computed, overhead = self.computed - before.computed, self.overhead - before.overhead
        return overhead / (computed + overhead) if computed > 0 else None


def read(url: str) -> Times | None:
    """None of a server that doesn't count them."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            text = answer.read().decode("utf-8", "replace")
    except (URLError, OSError):
        return None
    computed, overhead = (_sum(text, name) for name in (COMPUTED, OVERHEAD))
    return Times(computed, overhead) if computed is not None and overhead is not None else None


def _sum(text: str, name: str) -> float | None:
    values = re.findall(rf"^{name}_sum(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values)) if values else None
