"""What torchrun and Ray say becomes the flags of a rank, and what they lack is one line."""

import sys

import pytest

from headrace_server import ray as ray_starter
from headrace_server import torchrun
from headrace_server.errors import ConfigError
from headrace_server.flags import parse_serve

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}


def test_torchruns_variables_are_a_ranks_flags() -> None:
    words = ["--model-dir", "/m", "--listen", "0.0.0.0:7000", "--dtype", "bfloat16"]
    agents = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"}
    flags = parse_serve(torchrun.serve_words(words, {**TORCHRUN, **agents}))
    assert (flags.address, flags.dtype, flags.local_world_size) == ("0.0.0.0:7001", "bfloat16", 4)
    assert (flags.rank, flags.world_size, flags.local_rank) == (5, 8, 1)
    meeting = flags.rendezvous
    assert meeting is not None
    assert (meeting.host, meeting.port, meeting.store_is_up, meeting.attempt) == ("10.0.0.1", 29500, True, 2)


def test_sockets_are_numbered_by_rank() -> None:
    flags = parse_serve(torchrun.serve_words(["--model-dir", "/m", "--uds-path", "/run/shard"], TORCHRUN))
    assert flags.address == "unix:/run/shard-5"
    assert flags.rendezvous is not None and not flags.rendezvous.store_is_up


def test_without_torchrun_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert torchrun.main(["--model-dir", "/m", "--listen", "127.0.0.1:7000"], {}) == 1
    assert capsys.readouterr().err == "error: RANK is not set; start this with torchrun --nproc-per-node RANKS\n"


@pytest.mark.parametrize("listen", ["7000x", "127.0.0.1:0", "127.0.0.1"])
def test_ranks_need_ports_that_can_be_counted(listen: str) -> None:
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        torchrun.serve_words(["--model-dir", "/m", "--listen", listen], TORCHRUN)


def test_without_ray_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert ray_starter.main(["--model-dir", "/m", "--num-shard", "2"]) == 1
    assert capsys.readouterr().err.endswith("which is not installed here; pip install 'headrace-server[ray]'\n")
