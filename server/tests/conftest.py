import os
from pathlib import Path

# Before torch loads: tests share the machine, and their models are too small for more threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TRITON_INTERPRET"] = "1"  # before any kernel of Triton's is imported

import pytest
from hypothesis import HealthCheck, settings
from tiny_models import TinyModel, llama

# A busy machine may stop a test anywhere, for as long as it likes; and what failed once fails again.
settings.register_profile("headrace", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """A Llama of three layers with random weights, as transformers saved it."""
    return llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def embedded(tmp_path_factory) -> Path:
    """The embedded model, converted once for all tests."""
    from headrace_server.prepare.sources import EMBEDDED, Request
    from headrace_server.prepare.sources import prepare as prepare_model

    place = tmp_path_factory.mktemp("embedded")
    return Path(prepare_model(Request(EMBEDDED, None, place, place)).model_dir)
