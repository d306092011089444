"""`make bench`: Headrace and other servers in turn on this machine, the same load from the same client.

Each round starts every server once, measures its cases and ends it: A B A B. Prints medians, their spread, ratios and
how near Headrace is to what the machine can do; writes results.json, results.md and results.svg. Run it on an otherwise
idle machine. The first run installs the peers, which takes minutes and gigabytes. docs/side-by-side.md says more.
"""

import argparse
import json
import platform
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import machine, plot, report, shape
from bench.cases import CASES
from bench.floors import Machine
from bench.load import Client
from bench.peers import PEERS
from bench.peers.headrace import BINARY
from bench.peers.peer import Model
from bench.rounds import Rounds, holding
from harness.server import PYTHON, ROOT, prepared_model_dir


def main() -> None:
    args = arguments()
    # Whoever stops this run must not leave a server behind: `finally` and `with` end it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    args.out.mkdir(parents=True, exist_ok=True)
    model_dir = prepared_model_dir(args.model)
    link = model_dir / "source.gguf"
    model = Model(model_dir, link.resolve() if link.exists() else None)
    cases = [CASES[name] for name in args.cases]
    ours = [] if args.peers_only else [report.OURS]
    rounds = Rounds(
        peers=[PEERS[name] for name in [*ours, *args.peers]],
        cases=cases,
        rounds=args.rounds,
        home=args.home,
        logs=args.out,
        model=model,
        client=Client(BINARY, model.tokenizer),
        say=lambda line: print(line, flush=True),
        lock=args.lock,
    )
    before = limits(args.lock)
    results = rounds.run()
    after = limits(args.lock)
    # What the machine can do at best: it may have had a bad moment.
    best = Machine(max(before.bandwidth, after.bandwidth), max(before.flops, after.flops))
    table = report.lines(results, cases, shape.of_directory(model_dir), best)
    text = report.as_markdown(table, results, best, args.rounds)
    about = {
        "machine": machine.describe(),
        "system": platform.platform(),
        "model": model_dir.name,
        "rounds": args.rounds,
    }
    whole = report.as_json(table, results, best, about)
    (args.out / "results.json").write_text(json.dumps(whole, indent=1) + "\n")
    (args.out / "results.md").write_text(text)
    (args.out / "results.svg").write_text(plot.draw(table, report.OURS))
    print(f"\n{text}\nWritten: {args.out}/results.json, results.md and results.svg")


def limits(lock: Path | None) -> Machine:
    with holding(lock):
        return machine.measure(PYTHON)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    others = [name for name in PEERS if name != report.OURS]
    parser.add_argument("--peers", nargs="*", default=others, choices=others, help="measured beside Headrace (all)")
    parser.add_argument("--peers-only", action="store_true", help="without Headrace")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), help="what is measured (all)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each server runs each case (3)")
    parser.add_argument("--model", default="embedded", help="a .gguf, a directory or a hub id ('embedded')")
    default_home = Path.home() / ".cache" / "headrace-peers"
    parser.add_argument("--home", type=Path, default=default_home, help=f"where peers are installed ({default_home})")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="where the results go (build/bench)")
    parser.add_argument("--lock", type=Path, help="a file whose lock is held while something is measured: others wait")
    return parser.parse_args()


if __name__ == "__main__":
    main()
