import os

# Before torch loads: tests share the machine, and their models are too small for more threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TRITON_INTERPRET"] = "1"  # before any kernel of Triton's is imported

import pytest
from tiny_models import TinyModel, llama


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """A Llama of three layers with random weights, as transformers saved it."""
    return llama(tmp_path_factory.mktemp("llama"))
