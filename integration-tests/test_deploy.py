"""deploy/ holds against a real server: a dashboard without an empty panel, rules that can fire, and what they point at.

Everything they ask for is looked for in a scrape of `headrace serve` on the real model, which has answered, refused and
cancelled. The dashboard goes through Grafana's own types, expressions through a parser of PromQL.
"""

import contextlib
import http.client
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard

from harness.metrics import PARTS, Series, series_of, table
from harness.promql import Find, Nonsense, metric_names, result_labels
from harness.server import ROOT, Server, wait_for

DEPLOY = ROOT / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "headrace.json").read_text())
GROUPS: list[dict[str, Any]] = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text())["groups"]
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())

RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = [rule for rule in RULES if "alert" in rule]
RECORDED = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]

JOB = "headrace"
SCRAPED = {"job": JOB, "instance": "127.0.0.1:9000"}
# What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "1m", "$job": JOB, "$instance": SCRAPED["instance"]}


JSON = "application/json"
CHAT = [{"role": "user", "content": "Name a prime."}]
ANSWERED: list[tuple[str, dict[str, Any]]] = [
    ("/generate", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}}),
    ("/generate_stream", {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 4}}),
    ("/v1/completions", {"model": "tgi", "prompt": "Once upon a time", "max_tokens": 4}),
    ("/v1/chat/completions", {"model": "tgi", "messages": CHAT, "max_tokens": 4, "stream": True}),
]
# Method, route, body, content type, status.
MISTAKEN: list[tuple[str, str, Any, str, int]] = [
    ("POST", "/generate", {"inputs": "?", "parameters": {"temperature": -1}}, JSON, 422),
    ("POST", "/v1/completions", {"model": "tgi", "prompt": "?", "suffix": "!"}, JSON, 422),
    ("POST", "/generate", b"{", JSON, 400),
    ("POST", "/generate", b"?", "text/plain", 415),
    ("POST", "/generate", b" " * 2_100_000, JSON, 413),
    ("GET", "/generate", None, JSON, 405),
    ("GET", "/nowhere", None, JSON, 404),
]


@pytest.fixture(scope="module")
def scrape() -> Iterator[dict[Series, float]]:
    """Of a server with two places that has answered, refused for mistakes and for load, and seen clients leave."""
    server = Server("--dtype", "float32", "--max-concurrent-requests", "2")
    try:
        server.wait_until_ready()
        for route, body in ANSWERED:
            assert server.request("POST", route, body)[0] == 200, route
        for method, route, body, kind, expected in MISTAKEN:
            assert server.request(method, route, body, {"content-type": kind})[0] == expected, (method, route)
        with long_streams(server, count=2):
            wait_for(lambda: server.metric("headrace_running_requests") == 2, "both places to be taken")
            assert server.post("/generate", {"inputs": "one more"})[0] == 429
        server.wait_until_idle()
        status, text = server.get("/metrics")
        assert status == 200
        yield series_of(text, SCRAPED.items())
    finally:
        server.stop()


@contextlib.contextmanager
def long_streams(server: Server, count: int) -> Iterator[None]:
    """So many requests that go on until their clients leave, which is at the end."""
    body = json.dumps({"inputs": "Once", "parameters": {"max_new_tokens": 4000, "ignore_eos_token": True}})
    clients = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=60) for _ in range(count)]
    try:
        for client in clients:
            client.request("POST", "/generate_stream", body, {"content-type": "application/json"})
        yield
    finally:
        for client in clients:
            client.close()


@pytest.fixture(scope="module")
def find(scrape: dict[Series, float]) -> Find:
    """Series by name: those of the scrape, what Prometheus adds to one, and what the recording rules make of it."""
    by_name: dict[str, list[Series]] = {}
    for series in scrape:
        by_name.setdefault(series.name, []).append(series)
    for name in ("up", *RECORDED):
        assert name not in by_name
        by_name[name] = [Series(name, frozenset(SCRAPED.items()))]
    return lambda name: by_name.get(name, [])


# ---- the scrape ----


def test_every_series_is_one_of_the_table_and_every_one_of_the_table_is_there(scrape: dict[Series, float]) -> None:
    metrics = table()
    seen: dict[str, set[frozenset[tuple[str, str]]]] = {name: set() for name in metrics}
    for series in scrape:
        bare = Series(series.name, series.labels - SCRAPED.items())
        assert bare.name in metrics, f"docs/reference/metrics.md does not have {bare.name}"
        own = metrics[bare.name].own_labels(bare)
        assert own is not None, f"docs/reference/metrics.md says other labels: {bare}"
        seen[bare.name].add(own)
    for name, metric in metrics.items():
        # A label without listed values has one value for the life of a process.
        combinations = itertools.product(*(values or {"?"} for values in metric.labels.values()))
        assert len(seen[name]) == len(list(combinations)), f"{name}: {seen[name]}"


def test_the_traffic_is_in_the_counters_by_outcome_and_cause(scrape: dict[Series, float]) -> None:
    def value(name: str, **labels: str) -> float:
        return scrape[Series(name, frozenset({**labels, **SCRAPED}.items()))]

    ends = "headrace_request_duration_seconds_count"
    outcomes = {outcome: value(ends, outcome=outcome) for outcome in ("success", "failure", "cancelled")}
    assert outcomes == {"success": len(ANSWERED), "failure": 0, "cancelled": 2}
    assert value(ends, outcome="refused") >= 3
    assert value("headrace_rejections_total", cause="requests") == 1
    assert value("headrace_cancellations_total", cause="client_left") == 2
    assert value("tgi_request_success") == len(ANSWERED)
    assert value("tgi_request_count") == sum(outcomes.values()) + value(ends, outcome="refused")


# ---- expressions ----


def filled(expression: str) -> str:
    """As Grafana sends it."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"a variable that nobody sets: {expression}"
    return expression


@pytest.mark.parametrize(
    ("panel", "target"), TARGETS, ids=[f"{panel['title']} {target['refId']}" for panel, target in TARGETS]
)
def test_a_panel_has_data_and_its_legend_a_label(panel: dict[str, Any], target: dict[str, Any], find: Find) -> None:
    labels = result_labels(filled(target["expr"]), find)
    named = re.findall(r"{{(\w+)}}", target["legendFormat"])
    assert set(named) <= labels
    if panel["type"] == "timeseries":
        assert labels <= {*named, "job", "instance"}, "two lines of one name"
    assert target["expr"].count('job=~"$job", instance=~"$instance"') == len(re.findall(r"\w{", target["expr"]))


@pytest.mark.parametrize("rule", RULES, ids=[rule.get("alert") or rule["record"] for rule in RULES])
def test_a_rule_can_have_a_value_and_its_texts_name_labels_that_it_has(rule: dict[str, Any], find: Find) -> None:
    labels = result_labels(rule["expr"], find)
    texts = " ".join(rule.get("annotations", {}).values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    if "record" in rule:
        assert labels == SCRAPED.keys()


def test_variables_and_annotations_of_the_dashboard_find_something(find: Find) -> None:
    datasource, *variables = DASHBOARD["templating"]["list"]
    assert (datasource["name"], datasource["type"], datasource["query"]) == ("datasource", "datasource", "prometheus")
    assert [variable["name"] for variable in variables] == ["job", "instance"]
    for variable in variables:
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert found and found[2] == variable["name"]
        assert found[2] in result_labels(filled(found[1]), find)
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            result_labels(filled(annotation["expr"]), find)


def test_every_metric_of_headrace_is_on_the_dashboard() -> None:
    """But for those about the live page and about traces, which say nothing of the server's work."""
    elsewhere = {"headrace_live_viewers", "headrace_trace_spans_total", "tgi_request_max_new_tokens"}
    # Steps sent and failed are shown; and no step brings more than one token a row yet.
    elsewhere |= {"tgi_batch_inference_success", "tgi_request_skipped_tokens"}
    shown = {name for _, target in TARGETS for name in metric_names(filled(target["expr"]))}
    parts = {suffix for suffixes in PARTS.values() for suffix in suffixes}
    missing = {metric.name for metric in table().values() if not any(metric.name + part in shown for part in parts)}
    assert missing == elsewhere


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("headrace_step_seconds_count", "finds nothing"),
        ('headrace_rejections_total{cause="load"}', "finds nothing"),
        ('headrace_rejections_total{reason!="requests"}', "no label"),
        ("sum by (reason) (headrace_rejections_total)", "of {"),
        ("histogram_quantile(0.5, sum(rate(headrace_step_rows_bucket[1m])))", "no buckets"),
        ("headrace_rejections_total / headrace_running_requests", "never meets"),
        ("up and on (cause) headrace_rejections_total", "have not all"),
    ],
)
def test_what_would_never_have_a_value_is_found(expression: str, complaint: str, find: Find) -> None:
    with pytest.raises(Nonsense, match=complaint):
        result_labels(expression, find)


# ---- Grafana ----


def test_the_dashboard_goes_through_grafanas_types_and_loses_nothing() -> None:
    plugins.register_default_plugins()
    again = json.loads(json.dumps(Dashboard.from_json(DASHBOARD), cls=JSONEncoder))
    assert list(lost(DASHBOARD, again)) == []


def lost(given: Any, kept: Any, where: str = "") -> Iterator[str]:
    """Paths of what `given` has and `kept` has not. What is only in `kept` are defaults."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key in given:
            yield from lost(given[key], kept[key], f"{where}.{key}") if key in kept else [f"{where}.{key}"]
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for n, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from lost(one, other, f"{where}[{n}]")
    elif given != kept:
        yield where


def test_a_panel_says_what_it_shows_in_a_unit_that_grafana_has() -> None:
    known = {getattr(units, name) for name in vars(units) if name[0].isupper()}
    for panel in PANELS:
        assert panel["description"].endswith("."), panel["title"]
        used = [panel["fieldConfig"]["defaults"]["unit"]]
        for override in panel["fieldConfig"]["overrides"]:
            used += [each["value"] for each in override["properties"] if each["id"] == "unit"]
        for unit in used:
            assert unit in known or unit.startswith("suffix: "), f"{panel['title']}: {unit}"
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources), panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x, y in itertools.product(range(place["w"]), range(place["h"])):
            cell = (place["x"] + x, place["y"] + y)
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]


# ---- Prometheus ----


def anchors(page: Path) -> set[str]:
    """Of its headings, as Markdown viewers make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_an_alert_says_what_is_wrong_how_bad_it_is_and_where_to_read_on(alert: dict[str, Any]) -> None:
    assert alert.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert alert["labels"] == {"severity": alert["labels"]["severity"]}
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"].keys() == {"summary", "description", "runbook"}
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors(ROOT / page)
    if "for" in alert:
        promql_parser.parse_duration(alert["for"])


def test_rules_have_names_of_their_own_and_recorded_series_are_used_or_recorded_for_long_times() -> None:
    names = [rule.get("alert") or rule["record"] for rule in RULES]
    assert len(set(names)) == len(names)
    used = {name for rule in ALERTS for name in metric_names(rule["expr"])}
    recorded = {name for name in used if name.startswith("instance:")}
    assert recorded <= RECORDED.keys()
    for name in RECORDED:
        assert re.fullmatch(r"instance:(headrace|tgi)_\w+:(p99_5m|rate5m|ratio_rate5m)", name)


def test_prometheus_loads_the_rules_and_scrapes_the_port_and_job_that_are_meant() -> None:
    assert PROMETHEUS["rule_files"] == ["rules.yml"]
    [job] = PROMETHEUS["scrape_configs"]
    assert job["job_name"] == JOB
    flags = (ROOT / "docs" / "reference" / "serve.md").read_text()
    found = re.search(r"`--prometheus-port` \| port \| `(\d+)`", flags)
    assert found and job["static_configs"] == [{"targets": [f"127.0.0.1:{found[1]}"]}]
    jobs = {job for rule in RULES for job in re.findall(r'job="(\w+)"', rule["expr"])}
    assert jobs == {JOB}
