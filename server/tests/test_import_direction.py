"""Imports go one way: service → runner → {batch, kv_cache, sampling, models} → layers → {quantization, attention}."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import TinyModel

import headrace_server

ROOT = Path(headrace_server.__file__).parent
# Lowest first. A module may import from its own line's package and from lower lines; siblings on a line are strangers
# unless the later one says so by standing below.
LAYERS = (
    ("errors", "log", "architectures", "signals"),
    ("fields", "parent", "inbox", "model_thread", "tokenizer"),
    ("weights", "attention", "distributed"),
    ("quantization",),
    ("layers",),
    ("sampling.parameters",),
    ("step",),
    ("models", "sampling"),
    ("rows",),
    ("batch",),
    ("prompt_logprobs", "results", "memory"),
    ("devices",),
    ("compute",),
    ("runner",),
    ("flags",),
    ("rehearsal",),
    ("warmup", "load", "wire"),
    ("session",),
    ("streams",),
    ("service",),
    ("serve",),
    ("prepare",),
    ("profile", "warm", "gpu_check"),
    ("main", "text_generation_server", "torchrun", "ray"),
    ("__main__",),
)
OUTSIDE = {"", "pb"}  # the package itself has a version and a docstring; pb is generated


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if name != "__init__" and name.split(".")[0] != "pb":
            yield name, path


def level(module: str) -> int:
    """The line of LAYERS that holds the module: the longest prefix wins."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for number, line in enumerate(LAYERS):
            if prefix in line:
                return number
    raise AssertionError(f"{module} has no place in LAYERS")


def imports(path: Path) -> Iterator[str]:
    """Modules of this package that the file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix("headrace_server.") for name in names if name.startswith("headrace_server."))


def resolve(name: str) -> str:
    """`wire.parse_step` → `wire`: the longest prefix that is a module; empty for the package itself."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.with_suffix(".py").exists() or path.is_dir():
            return ".".join(parts[:length])
    return ""


def is_below(imported: str, importer: str) -> bool:
    if level(imported) < level(importer):
        return True
    return level(imported) == level(importer) and imported.split(".")[0] == importer.split(".")[0]


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_module_imports_only_what_is_below_it(module: str, path: Path) -> None:
    for name in imports(path):
        imported = resolve(name)
        if imported.split(".")[0] not in OUTSIDE:
            assert is_below(imported, module), f"{module} imports {imported}"


def test_only_kernels_users_import_the_kernels() -> None:
    users = {name.split(".")[0] for name, path in modules() if "headrace_kernels" in path.read_text()}
    assert users <= {
        "attention",
        "compute",
        "layers",
        "load",
        "models",
        "profile",
        "quantization",
        "sampling",
        "warm",
        "gpu_check",
    }


@pytest.mark.parametrize("module", ["main", "flags", "serve", "service", "wire", "models.registry", "sampling.on_cpu"])
def test_what_starts_the_process_does_not_import_torch(module: str) -> None:
    """Two seconds in which the socket is there already. Follows imports at the top of files."""
    seen: set[str] = set()

    def visit(name: str) -> None:
        path = ROOT.joinpath(*name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                text = ast.unparse(node)
                assert "torch" not in text.split(), f"{name}: {text}"
        for imported in (resolve(found) for found in imports_at_top(path)):
            if imported.split(".")[0] not in OUTSIDE and imported not in seen:
                seen.add(imported)
                visit(imported)

    visit(module)


STARTS_ON_A_CPU = """
import sys
from headrace_server.flags import parse_serve
from headrace_server.load import load_runner
from headrace_server.memory import Limits
from headrace_server.models.registry import read_config
from headrace_server.warmup import warm_up

flags = parse_serve(["--uds-path", "unused", "--device", "cpu", *sys.argv[1:]])
warm_up(load_runner(flags, read_config(flags.model_dir)), Limits(2, 32, 64, 16))
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""


@pytest.mark.parametrize("flags", [[], ["--quantize", "int8", "--kv-cache-dtype", "int8"]])
def test_a_cpu_starts_without_torch(flags: list[str], tiny_llama: TinyModel) -> None:
    """What is imported on the way to the first step, by whomever."""
    words = ["--model-dir", str(tiny_llama.directory), *flags]
    started = subprocess.run([sys.executable, "-c", STARTS_ON_A_CPU, *words], capture_output=True, text=True)
    assert started.returncode == 0, started.stderr


def imports_at_top(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headrace_server"):
            for alias in node.names:
                yield f"{node.module}.{alias.name}".removeprefix("headrace_server.")
