"""The library: how it is built, loaded, and which threads it runs on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import headrace_kernels
from headrace_kernels import build, native

ROOT = Path(headrace_kernels.__file__).parents[1]


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints, warnings included."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_threads_of_kernels_are_made_once_and_sleep_in_between():
    """As many as asked for, the caller among them; after a call none of them takes time that others could use."""
    code = """
import os, time
import torch
from headrace_kernels import native
from headrace_kernels.ops import gumbel_noise
torch.set_num_threads(1)
native.set_num_threads(3)
seeds = torch.arange(64)
counts = [len(os.listdir("/proc/self/task"))]
for _ in range(3):
    gumbel_noise(seeds, seeds, 50000, backend="cpu")
    counts.append(len(os.listdir("/proc/self/task")))
print("threads", *(count - counts[0] for count in counts))
before = time.process_time()
time.sleep(0.3)
print("idle", time.process_time() - before < 0.05)
"""
    output = run_python(code)
    assert "threads 0 2 2 2" in output
    assert "idle True" in output


def test_the_package_and_its_library_come_without_torch():
    """Importing torch takes seconds, which a server on a CPU need not wait for."""
    code = "import sys; from headrace_kernels import native; native.isa(); print('torch' in sys.modules)"
    assert "False" in run_python(code)


def test_a_forked_child_has_threads_of_its_own():
    code = """
import os, torch
from headrace_kernels import native
from headrace_kernels.ops import gumbel_noise
native.set_num_threads(2)
seeds = torch.arange(64)
expected = gumbel_noise(seeds, seeds, 50000, backend="cpu")
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(gumbel_noise(seeds, seeds, 50000, backend="cpu"), expected) else 1)
print("status", os.waitpid(child, 0)[1])
"""
    assert "status 0" in run_python(code)


def test_two_threads_do_work_at_the_same_time():
    """Not only the caller: with two threads asked for, the process's two pool threads both get CPU time. One that has
    no core yet takes no part in a call; so there are as many calls as it takes."""
    code = """
import os, time, torch
from headrace_kernels import native
from headrace_kernels.ops import gumbel_noise
native.set_num_threads(2)
seeds = torch.arange(64)
def busy():
    return [sum(map(int, open(f"/proc/self/task/{t}/stat").read().split(") ")[1].split()[11:13]))
            for t in sorted(os.listdir("/proc/self/task"))]
gumbel_noise(seeds, seeds, 50000, backend="cpu")
before = busy()
worked = 0
end = time.monotonic() + 60
while worked < 2 and time.monotonic() < end:
    for _ in range(10):
        gumbel_noise(seeds, seeds, 50000, backend="cpu")
    worked = sum(b - a >= 5 for a, b in zip(before, busy()))
print("worked", worked)
"""
    assert "worked 2" in run_python(code)


def test_without_the_library_the_definitions_are_used_with_one_warning(tmp_path):
    code = f"""
import pathlib
from headrace_kernels import build, native
native.LIBRARY = pathlib.Path({str(tmp_path / "none.so")!r})
import torch
from headrace_kernels import ops
x = torch.randn(4, 8)
for _ in range(3):
    out = ops.rms_norm(x, x[0], 1e-5)
print(torch.equal(out, ops.rms_norm(x, x[0], 1e-5, backend="reference")))
try:
    ops.rms_norm(x, x[0], 1e-5, backend="cpu")
except ops.ArgumentError as error:
    print(error)
"""
    output = run_python(code)
    assert output.count("the CPU kernels' plain torch definitions are used") == 1
    assert "True\n" in output
    assert "backend: 'cpu' is not available" in output
    assert "python -m headrace_kernels.build" in output


@pytest.mark.parametrize("change", ["native.fingerprint = lambda: '0' * 16", "native.LIBRARY = older()"])
def test_a_library_of_other_sources_is_not_used_and_says_so_once(change, tmp_path):
    """Changed since, or so old that it doesn't say what it was built from."""
    code = f"""
import pathlib, subprocess
from headrace_kernels import build, native
def older():
    library = pathlib.Path({str(tmp_path / "older.so")!r})
    source = 'extern "C" const char* headrace_best_isa() {{ return "baseline"; }}'
    subprocess.run([*build.find_compiler(), "-shared", "-fPIC", "-xc++", "-", "-o", library], input=source, text=True)
    return library
{change}
print(native.available(), native.available(), native.why_unavailable())
"""
    output = run_python(code)
    assert "False False" in output
    assert output.count("the CPU kernels' plain torch definitions are used, which are slow: ") == 1
    assert output.count(".so was built from other sources: build it again with `python -m headrace_kernels.build`") == 2


def test_where_no_sources_are_the_library_is_taken_as_it_is(tmp_path):
    code = f"""
import pathlib
from headrace_kernels import native
native.PACKAGE, native.fingerprint = pathlib.Path({str(tmp_path)!r}), lambda: "0" * 16
print(native.available())
"""
    assert run_python(code) == "True\n"


def test_an_up_to_date_library_is_not_built_again(capsys):
    assert build.main() == 0
    assert "is up to date" in capsys.readouterr().out


def test_a_changed_source_makes_the_library_stale(monkeypatch):
    monkeypatch.setattr(build, "fingerprint", lambda: "0" * 16)
    assert not build.is_current()


def test_no_compiler_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(build, "is_current", lambda: False)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.main() == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no C++ compiler found (tried no-such-compiler)" in error


def test_a_failed_compilation_says_which(monkeypatch, capsys):
    monkeypatch.setattr(build, "is_current", lambda: False)
    monkeypatch.setenv("CXX", "false")
    assert build.main() == 1
    assert "failed with exit status 1" in capsys.readouterr().err


def test_unknown_instruction_sets_are_refused():
    with pytest.raises(ValueError, match="instruction set 'mmx'"):
        native.force_isa("mmx")
