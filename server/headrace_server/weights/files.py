"""The safetensors files of a checkpoint: where each tensor lies, whether it is as expected, and whether all were taken.

Files are mapped, not read: a tensor's pages come in when it is taken and can go again after it was copied. No torch:
`arrays` and `safetensors` make numpy arrays and torch tensors of the bytes.
"""

import hashlib
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from headrace_server.errors import WeightsError
from headrace_server.weights.index import checkpoint_files

# Buffers that old checkpoints carry and every model computes for itself.
_COMPUTED = re.compile(r".*\.rotary_emb\.(inv_freq|cos_cached|sin_cached)")

ADVICE = "config.json and the weights do not belong together: correct config.json, or fetch both again"

FLOATS = ("F32", "BF16", "F16", "F64")
"""What weights may be stored as, in safetensors' names."""

FIRST_BYTES = 64


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file."""

    path: Path
    dtype: str  # safetensors' name
    shape: tuple[int, ...]
    data: NDArray[np.uint8]  # a view of the mapped file


class CheckpointFiles:
    """The tensors of a model directory by name. A context manager; `finish` must hold before it is left.

    Raises WeightsError for a missing or damaged file, a missing tensor, and one of the wrong shape.
    """

    def __init__(self, model_dir: Path, sizes: Mapping[str, int] | None = None) -> None:
        """`sizes`: fields of config.json that say the sizes of tensors, to be named when one does not fit."""
        self._model_dir = model_dir
        self._sizes = dict(sizes or {})
        self._stored: dict[str, StoredTensor] = {}
        for path in checkpoint_files(model_dir):
            self._stored.update(_read_header(path))
        self._left = {name for name in self._stored if not _COMPUTED.fullmatch(name)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stored.clear()

    def has(self, name: str) -> bool:
        return name in self._stored

    def shape_like(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The tensor's own shape if axes of length 1 are all that it has more or less than `shape`; else `shape`."""
        found = self._stored[name].shape if name in self._stored else shape
        return found if [size for size in found if size != 1] == [size for size in shape if size != 1] else shape

    def ignore(self, name: str) -> None:
        """This tensor, if there, is not needed."""
        self._left.discard(name)

    def ignore_modules(self, *names: str) -> None:
        """Nothing of these modules is needed, however a quantization method stores them."""
        self._left = {tensor for tensor in self._left if tensor.rpartition(".")[0] not in names}

    def finish(self) -> None:
        """Raises WeightsError if the files hold tensors that the model did not take."""
        if self._left:
            shown = ", ".join(sorted(self._left)[:3])
            raise WeightsError(
                f"{len(self._left)} tensors of the checkpoint have no place in the model (such as {shown}); {ADVICE}"
            )

    def stored(self, name: str, shape: tuple[int, ...], dtypes: Sequence[str] = FLOATS) -> StoredTensor:
        """The tensor as it lies in its file; its shape, and one of the types, must be as said. Counts as taken."""
        if name not in self._stored:
            raise WeightsError(
                f"tensor '{name}' is in none of the files of {self._model_dir}, but config.json asks for it; {ADVICE}"
            )
        tensor = self._stored[name]
        if tensor.shape != shape:
            raise WeightsError(
                f"tensor '{name}' of {tensor.path} has shape {list(tensor.shape)}, but config.json makes it "
                f"{list(shape)}{self._blamed(tensor.shape, shape)}; {ADVICE}"
            )
        if tensor.dtype not in dtypes:
            wanted = "weights must be floating-point" if dtypes is FLOATS else f"it must be {' or '.join(dtypes)}"
            raise WeightsError(f"tensor '{name}' of {tensor.path} is {tensor.dtype}; {wanted}")
        self._left.discard(name)
        return tensor

    def fingerprint(self) -> str:
        """Of the name, type, shape and first bytes of each tensor: enough to tell one checkpoint from another."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self._stored.items()):
            digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode() + tensor.data[:FIRST_BYTES].tobytes())
        return digest.hexdigest()[:8]

    def _blamed(self, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
        """Fields of config.json that say the sizes which differ, as far as a field says one."""
        sizes = {want for want, size in zip(wanted, found, strict=False) if want != size}
        named = [f"'{name}' {size}" for name, size in self._sizes.items() if size in sizes]
        return f" by {' or '.join(named)}" if named else ""


def _read_header(path: Path) -> dict[str, StoredTensor]:
    try:
        with safe_open(path, framework="np"):
            pass  # its own checks: the header's form, and that the tensors fill the file
        mapped: NDArray[np.uint8] = np.memmap(path, np.uint8, mode="r")
        (length,) = struct.unpack("<Q", mapped[:8].tobytes())
        header: dict[str, Any] = json.loads(mapped[8 : 8 + length].tobytes())
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is damaged or incomplete: {error}; fetch or convert it again") from None
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name] = StoredTensor(path, entry["dtype"], tuple(entry["shape"]), mapped[begin:end])
    return tensors
