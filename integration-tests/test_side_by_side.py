"""`make bench` without its peers: what it says of runs, and its rounds with two small servers in this process."""

import fcntl
import json
import socket
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bench import floors, plot, report, shape
from bench.cases import CASES, Asked, Case, Unit, Weights
from bench.figures import Spread, Verdict, best, ratio, verdicts
from bench.floors import Machine
from bench.idle import Times
from bench.load import Client, Invalid, Run, run_of
from bench.peers.environment import once, require_program, require_space
from bench.peers.peer import Model, Served, Unavailable
from bench.peers.process import serving
from bench.rounds import Results, Rounds
from harness.server import HEADRACE

SMOLLM2 = shape.of_config(
    {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49152,
    }
)
# The machine on which the limits were set.
THERE = Machine(bandwidth=22.6e9, flops=1.9e12)
RUN = Run(
    output_tokens=960,
    output_tokens_per_s=100.0,
    prompt_tokens_per_s=50.0,
    requests_per_s=2.0,
    seconds=9.6,
    ttft_p50=1.0,
    ttft_p99=2.0,
    tpot_p50=3.0,
    itl_p99=4.0,
    e2e_p50=5.0,
)

# ---- shapes and floors ----


def floor_of(name: str, output_tokens: int, machine: Machine = THERE) -> float:
    found = floors.floor(CASES[name], SMOLLM2, machine, output_tokens)
    assert found is not None
    return found


def test_the_small_models_bytes_are_those_of_its_files():
    assert SMOLLM2.weight_bytes(Weights.BF16) == pytest.approx(269e6, rel=0.001)
    assert SMOLLM2.weight_bytes(Weights.INT8) == pytest.approx(134.5e6, rel=0.001)
    assert SMOLLM2.weight_bytes(Weights.INT4) == pytest.approx(96.4e6, rel=0.001)
    assert SMOLLM2.kv_bytes == 23_040
    assert THERE.flops / SMOLLM2.prompt_flop == pytest.approx(8_950, rel=0.001)


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        ("one", 768, 84.0),
        ("one-8bit", 768, 168.1),
        ("one-4bit", 768, 234.3),
        # Prompts, then the weights of each step and the KV of each row of it.
        ("decode", 48 * 256, 12_288 / (1_536 / 8_950 + (255 * 269e6 + 48 * 40_800 * 23_040) / 22.6e9)),
        ("seed", 48 * 110, 5_280 / (13_200 / 8_950 + (199 * 269e6 + 24 * (119_400 + 1_140) * 23_040) / 22.6e9)),
        ("prefill", 64, 16_384 / (16_384 / 8_950 + 3 * (269e6 + 16 * 1_026 * 23_040) / 22.6e9)),
        # The 900 tokens once, computed and then read by every step.
        ("prefix", 1024, 32 / (1_860 / 8_950 + 31 * (269e6 + (900 + 32 * 46) * 23_040) / 22.6e9)),
    ],
)
def test_a_floor_is_what_reading_and_multiplying_take(name, tokens, expected):
    assert floor_of(name, tokens) == pytest.approx(expected, rel=0.003)


def test_a_start_has_no_floor():
    assert floors.floor(CASES["start"], SMOLLM2, THERE, 1) is None


def test_a_mixture_with_more_long_requests_has_another_floor():
    short, long = (floor_of("seed", tokens) for tokens in (48 * 20 + 180, 48 * 200))
    assert long > 1.5 * short


def test_twice_the_bandwidth_halves_decoding_and_leaves_prompts():
    quick = replace(THERE, bandwidth=2 * THERE.bandwidth)
    gain = {name: floor_of(name, 768, quick) / floor_of(name, 768) for name in ("one", "prefill")}
    assert gain["one"] == pytest.approx(2)
    assert 1 < gain["prefill"] < 1.1


# ---- medians, ratios, verdicts ----


def test_the_median_and_its_spread():
    assert Spread.of([3.0, 9.0, 1.0]) == Spread(median=3.0, low=1.0, high=9.0)


def test_a_ratio_above_one_is_better_for_speeds_and_for_times():
    fast, slow = Spread.of([200.0]), Spread.of([100.0])
    assert ratio(CASES["decode"], fast, slow) == 2
    assert ratio(CASES["start"], slow, fast) == 2


def test_the_best_of_speeds_is_the_highest_and_of_times_the_lowest():
    others = {"vllm": Spread.of([5.0]), "llama.cpp": Spread.of([7.0])}
    assert best(CASES["decode"], others) == "llama.cpp"
    assert best(CASES["start"], others) == "vllm"
    assert best(CASES["start"], {}) is None


def case_with(asked: Asked, unit: Unit = Unit.OUTPUT) -> Case:
    return replace(CASES["decode"], asked=asked, unit=unit)


@pytest.mark.parametrize(
    ("asked", "unit", "ours", "holds"),
    [
        (Asked(of_floor=0.75), Unit.OUTPUT, 750.0, True),
        (Asked(of_floor=0.75), Unit.OUTPUT, 749.0, False),
        (Asked(limit=500), Unit.OUTPUT, 499.0, False),
        (Asked(limit=3), Unit.SECONDS, 2.9, True),
        (Asked(limit=3), Unit.SECONDS, 3.1, False),
        (Asked(of_vllm=2), Unit.OUTPUT, 600.0, True),
        (Asked(of_vllm=2), Unit.OUTPUT, 599.0, False),
    ],
)
def test_what_is_asked_holds_or_not(asked, unit, ours, holds):
    said = verdicts(case_with(asked, unit), Spread.of([ours]), vllm=Spread.of([300.0]), floor=1000.0)
    assert [verdict.holds for verdict in said] == [holds]


def test_without_vllm_nothing_is_said_of_the_ratio_and_goals_are_not_judged():
    said = verdicts(case_with(Asked(of_vllm=2, goal=9)), Spread.of([600.0]), vllm=None, floor=1000.0)
    assert said == [Verdict("≥ 2x vLLM", None)]


# ---- what counts as a run ----


def a_report(**changed: object) -> dict:
    times = {"mean": 1.0, "p50": 1.0, "p90": 1.0, "p99": 1.0, "max": 1.0}
    whole = {
        "whole": 2,
        "short": 0,
        "long": 0,
        "failed": 0,
        "failures": {},
        "seconds": 4.0,
        "output_tokens": 8,
        "prompt_tokens": 20,
        "output_tokens_per_s": 2.0,
        "requests_per_s": 0.5,
        **dict.fromkeys(("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"), times),
    }
    return {**whole, **changed}


def test_prompt_tokens_are_counted_over_the_whole_run():
    assert run_of(a_report()).prompt_tokens_per_s == 5.0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"short": 1}, "1 were short"),
        ({"long": 2}, "2 long"),
        ({"failed": 3, "failures": {"status 500": 3}}, "3 x status 500"),
    ],
)
def test_a_run_with_an_answer_that_failed_or_has_another_length_has_no_figure(changed, said):
    with pytest.raises(Invalid, match=said):
        run_of(a_report(**changed))


# ---- installing and starting ----


def test_what_is_half_made_is_made_again_and_what_is_made_is_left_alone(tmp_path):
    place, made = tmp_path / "peer", []

    def make(works: bool) -> None:
        place.mkdir()
        made.append(works)
        if not works:
            raise Unavailable("no network")

    with pytest.raises(Unavailable):
        once(place, lambda: make(False))
    once(place, lambda: make(True))
    once(place, lambda: make(True))
    assert made == [False, True]


def test_a_lack_of_disk_or_of_a_compiler_is_said_with_what_to_do(tmp_path):
    with pytest.raises(Unavailable, match=r"needs 1e\+09 GiB in .* --home"):
        require_space(tmp_path, 1e9)
    with pytest.raises(Unavailable, match=r"needs no-such-program: .*apt-get install"):
        require_program("no-such-program")


def test_a_server_that_exits_is_reported_with_the_end_of_its_log(tmp_path):
    words = ["sh", "-c", "echo no such model; exit 3"]
    with pytest.raises(Unavailable, match=r"(?s)exited with 3 .*no such model"), serving(words, tmp_path / "log"):
        pytest.fail("it does not serve")


def test_a_server_is_ended_with_everything_that_it_started(tmp_path):
    (tmp_path / "health").write_text("well")
    child = f"{sys.executable} -m http.server {{port}} --bind 127.0.0.1 --directory {tmp_path}"
    with serving(["sh", "-c", f"{child} & wait"], tmp_path / "log") as served:
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        socket.create_connection(address).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)


# ---- rounds ----


class Handler(BaseHTTPRequestHandler):
    """Streams so many tokens at once, or as many as the server's `short` less."""

    protocol_version = "HTTP/1.1"
    server: "Small"

    def do_GET(self) -> None:
        self._answer(b"", "text/plain")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.prompts.append(asked["prompt"])
        count = asked["max_tokens"] - (self.server.short if asked["max_tokens"] > 1 else 0)
        events = [{"choices": [{"index": 0, "text": " a"}]}] * count
        usage = {"prompt_tokens": len(asked["prompt"].split()), "completion_tokens": count}
        lines = [f"data: {json.dumps(event)}\n\n" for event in [*events, {"choices": [], "usage": usage}]]
        self._answer("".join([*lines, "data: [DONE]\n\n"]).encode(), "text/event-stream")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


class Small(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, short: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.short = short
        self.prompts: list[str] = []


@dataclass
class Fake:
    """A peer whose server is a thread here. `story`: what was started and ended, of all peers."""

    name: str
    story: list[str]
    weights: frozenset[Weights] = frozenset({Weights.BF16})
    # Tokens that its answers lack, in each of its lives.
    short: tuple[int, int] = (0, 0)
    broken: str | None = None
    prompts: list[list[str]] = field(default_factory=list)

    def install(self, home: Path, model: Model) -> str:
        if self.broken:
            raise Unavailable(self.broken)
        return f"{self.name} 1"

    @contextmanager
    def serve(self, home: Path, model: Model, weights: Weights, log: Path) -> Iterator[Served]:
        self.story.append(f"+{self.name}")
        began = time.monotonic()
        with Small(self.short[len(self.prompts)]) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            self.prompts.append(server.prompts)
            try:
                yield Served(f"http://127.0.0.1:{server.server_address[1]}", began)
            finally:
                server.shutdown()
        self.story.append(f"-{self.name}")


SMALL_CASES = [
    CASES["start"],
    replace(CASES["decode"], requests=6, concurrency=3),
    replace(CASES["one-8bit"], requests=1),
]


def rounds_of(peers: list[Fake], model_dir: Path, out: Path, cases: list[Case] = SMALL_CASES) -> Results:
    client = Client(HEADRACE, model_dir / "tokenizer.json")
    said: list[str] = []
    model = Model(model_dir, None)
    return Rounds(peers, cases, 2, out, out, model, client, said.append, lock=out / "lock").run()


def test_servers_take_turns_and_each_round_asks_all_of_them_the_same_but_never_again(model_dir, tmp_path):
    story: list[str] = []
    peers = [Fake("a", story), Fake("b", story)]
    results = rounds_of(peers, model_dir, tmp_path)

    assert story == ["+a", "-a", "+b", "-b"] * 2
    for name in ("a", "b"):
        assert [run.output_tokens for run in results.runs["decode"][name]] == [6 * 256] * 2
        assert all(run.seconds > 0 for run in results.runs["start"][name])
        # Neither serves 8-bit weights: no figure, and nothing to complain of.
        assert not results.runs["one-8bit"][name] and name not in results.reasons["one-8bit"]
    first, second = peers[0].prompts
    assert sorted(first) == sorted(peers[1].prompts[0])
    long = {prompt for prompt in first if prompt != "Hello"}
    assert len(long) >= 6 and not long & set(second)


def test_who_cannot_be_installed_has_a_reason_and_the_others_go_on(model_dir, tmp_path):
    story: list[str] = []
    peers = [Fake("a", story, broken="it needs cmake"), Fake("b", story)]
    results = rounds_of(peers, model_dir, tmp_path)

    assert story == ["+b", "-b"] * 2
    assert results.reasons["decode"] == {"a": "it needs cmake"}
    # It could not have served 8-bit weights either way.
    assert not results.reasons["one-8bit"]
    assert list(results.spreads(SMALL_CASES[1])) == ["b"]


def test_short_answers_cost_the_case_and_not_the_others(model_dir, tmp_path):
    peer = Fake("a", [], short=(1, 0))
    results = rounds_of([peer], model_dir, tmp_path)

    assert "6 were short" in results.reasons["decode"]["a"]
    assert len(results.runs["start"]["a"]) == 2
    assert peer.prompts[1] == ["Hello"], "what failed once is not measured again"


def test_a_case_that_fails_in_a_later_round_has_no_median_of_the_rest(model_dir, tmp_path):
    results = rounds_of([Fake("a", [], short=(0, 1))], model_dir, tmp_path)

    assert len(results.runs["decode"]["a"]) == 1
    assert not results.spreads(SMALL_CASES[1])
    assert list(results.spreads(SMALL_CASES[0])) == ["a"]


def test_the_lock_is_held_while_something_is_measured(tmp_path):
    lock, held = tmp_path / "lock", []

    class Looks:
        def load(self, url: str, case: Case, seed: int) -> Run:
            with lock.open("a") as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.append(case.name)
            return RUN

        def first_token(self, url: str, began: float) -> Run:
            return self.load(url, CASES["start"], 0)

    model = Model(tmp_path, None)
    Rounds([Fake("a", [])], SMALL_CASES, 1, tmp_path, tmp_path, model, Looks(), lambda line: None, lock).run()
    assert held == ["start", "decode"]


# ---- table and picture ----


def test_a_start_is_judged_without_a_floor():
    results = Results()
    results.runs["start"]["headrace"] = [replace(RUN, seconds=2.5)]
    (line,) = report.lines(results, [CASES["start"]], SMOLLM2, THERE)
    assert (line.of_floor, line.verdicts()) == (None, [Verdict("≤ 3", True)])


def a_table() -> tuple[Results, list[report.Line]]:
    results = Results(installed={"headrace": "headrace 1", "vllm": "vllm 2"})
    for name, speeds in {"headrace": [900.0, 1000.0, 800.0], "vllm": [300.0, 310.0, 290.0]}.items():
        results.runs["seed"][name] = [
            replace(RUN, output_tokens=48 * 110, output_tokens_per_s=speed) for speed in speeds
        ]
    results.reasons["seed"]["llama.cpp"] = "it needs cmake & g++\nmore"
    return results, report.lines(results, [CASES["seed"], CASES["one"]], SMOLLM2, THERE)


def test_the_table_has_medians_spread_floor_ratio_and_what_is_asked():
    results, table = a_table()
    text = report.as_markdown(table, results, THERE, rounds=3)
    row = next(line for line in text.splitlines() if line.startswith("| seed mixture"))
    assert "| 900 (800–1,000) | 300 (290–310) | – |" in row
    assert "| 3.00x vllm |" in row
    assert "≥ 75% of the floor: yes; ≥ 1.6x vLLM: yes" in row
    assert "- llama.cpp, seed: it needs cmake & g++\n" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1


def test_the_idle_time_of_our_shard_is_said_and_nobody_elses():
    results, _ = a_table()
    results.runs["seed"]["headrace"] = [replace(RUN, idle=share) for share in (0.004, 0.012, 0.02)]
    table = report.lines(results, [CASES["seed"], CASES["one"]], SMOLLM2, THERE)
    text = report.as_markdown(table, results, THERE, rounds=3)
    assert "computed nothing although there was work: seed 1.2%.\n" in text
    assert "computed nothing" not in report.as_markdown(a_table()[1], results, THERE, rounds=3)


def test_idle_time_is_what_passed_between_two_scrapes():
    before, after = Times(computed=10.0, overhead=1.0), Times(computed=19.0, overhead=2.0)
    assert after.idle_share_since(before) == pytest.approx(0.1)
    assert before.idle_share_since(before) is None


def test_a_case_that_nobody_ran_has_a_row_without_figures():
    results, table = a_table()
    text = report.as_markdown(table, results, THERE, rounds=3)
    assert "| decode, one at a time | output tok/s | – | – | – | – | – | – | – |" in text


def test_the_json_holds_every_run():
    results, table = a_table()
    whole = json.loads(json.dumps(report.as_json(table, results, THERE, {"rounds": 3})))
    seed = whole["cases"][0]
    assert [run["output_tokens_per_s"] for run in seed["servers"]["headrace"]["runs"]] == [900.0, 1000.0, 800.0]
    assert seed["servers"]["vllm"]["headrace_is_times_better"] == 3
    assert seed["servers"]["llama.cpp"]["no_figure_because"].startswith("it needs cmake")
    assert whole["read_bandwidth_gb_s"] == 22.6 and seed["of_floor"] > 1


def test_the_picture_is_well_formed_and_as_wide_as_the_figures_say():
    _, table = a_table()
    picture = ElementTree.fromstring(plot.draw(table, "headrace"))
    svg = "{http://www.w3.org/2000/svg}"
    bars = {bar.get("class"): float(bar.get("width", 0)) for bar in picture.iter(f"{svg}rect")}
    assert bars["ours"] / bars["bar"] == pytest.approx(3, rel=0.01)
    assert [line.get("class") for line in picture.iter(f"{svg}line")] == ["floor"]
    assert "prefers-color-scheme: dark" in (picture.findtext(f"{svg}style") or "")
