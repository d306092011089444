"""Series of a scrape, and the table of metrics that docs/reference/metrics.md is."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from harness.server import ROOT

REFERENCE = ROOT / "docs" / "reference" / "metrics.md"

ROW = re.compile(r"\| `(?P<name>\w+)` \| (?P<kind>\w+) \| [^|]+ \| (?P<labels>[^|]*) \| [^|]+ \|")
LABEL = re.compile(r"`(?P<name>\w+)`(?:: (?P<values>`[^;]*))?")


@dataclass(frozen=True)
class Series:
    """One line of a scrape without its value."""

    name: str
    labels: frozenset[tuple[str, str]]

    @property
    def label_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.labels)


@dataclass(frozen=True)
class Metric:
    """One row of the reference."""

    name: str
    kind: str
    labels: dict[str, frozenset[str]]  # name to values; no values: one, which a process has for its life

    def sample_names(self) -> list[str]:
        return [self.name + suffix for suffix in PARTS.get(self.kind, {"": None})]

    def own_labels(self, series: Series) -> frozenset[tuple[str, str]] | None:
        """Of one of its series, without what a bucket or a quantile adds. None: it cannot have that series."""
        extra = PARTS.get(self.kind, {"": None}).get(series.name.removeprefix(self.name))
        own = frozenset(pair for pair in series.labels if pair[0] != extra)
        fits = series.label_names == frozenset({*self.labels, *([extra] if extra else [])})
        known = all(not self.labels.get(name) or value in self.labels[name] for name, value in own)
        return own if fits and known else None


# What is behind a metric's name, by kind, and which label that part adds.
PARTS: dict[str, dict[str, str | None]] = {
    "histogram": {"_bucket": "le", "_sum": None, "_count": None},
    "summary": {"": "quantile", "_sum": None, "_count": None},
}


def table() -> dict[str, Metric]:
    """By the names of samples: `x_bucket`, `x_sum` and `x_count` for a histogram `x`."""
    rows = [row for line in REFERENCE.read_text().splitlines() if (row := ROW.match(line))]
    metrics = [Metric(row["name"], row["kind"], dict(_labels(row["labels"]))) for row in rows]
    return {name: metric for metric in metrics for name in metric.sample_names()}


def _labels(cell: str) -> Iterator[tuple[str, frozenset[str]]]:
    for label in filter(None, cell.strip().split("; ")):
        found = LABEL.fullmatch(label)
        assert found, f"a cell of labels that is none: {cell!r}"
        yield found["name"], frozenset(re.findall(r"`([^`]+)`", found["values"] or ""))


def series_of(scrape: str, added: Iterable[tuple[str, str]] = ()) -> dict[Series, float]:
    """Every series of a text in Prometheus' format with its value; `added`: labels that the scraper sets."""
    found = {}
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            # The parser calls every counter `…_total`, as OpenMetrics wants. TGI's have other names.
            name = sample.name
            if family.type == "counter" and f"\n{name}" not in f"\n{scrape}":
                name = name.removesuffix("_total")
            found[Series(name, frozenset({**sample.labels, **dict(added)}.items()))] = sample.value
    return found
