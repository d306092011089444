"""Reads a checkpoint of one or several safetensors files by tensor name, and notices what nobody asked for.

Files are mapped, not read: a tensor's pages come in when it is taken and can go again after it was copied. Peak
memory is the model in its own dtype plus the largest tensor of the file. Tensors are always copied, so a file that
is replaced while the shard runs does no harm.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headrace_server.errors import WeightsError
from headrace_server.weights.index import checkpoint_files

# Buffers that old checkpoints carry and every model computes for itself.
_COMPUTED = re.compile(r".*\.rotary_emb\.(inv_freq|cos_cached|sin_cached)")
_FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


ADVICE = "config.json and the weights do not belong together: correct config.json, or fetch both again"


class Checkpoint:
    """The tensors of a model directory. A context manager; `finish` must hold before it is left.

    Raises WeightsError for a missing or damaged file, a missing tensor, and one of the wrong shape.
    """

    def __init__(
        self, model_dir: Path, dtype: torch.dtype, device: torch.device, sizes: Mapping[str, int] | None = None
    ) -> None:
        """`sizes`: fields of config.json that say the sizes of tensors, to be named when one does not fit."""
        self._model_dir = model_dir
        self._sizes = dict(sizes or {})
        self._dtype = dtype
        self._device = device
        self._files = ExitStack()
        self._where: dict[str, tuple[Path, Any]] = {}  # tensor name → its file
        for path in checkpoint_files(model_dir):
            file = self._files.enter_context(_opened(path))
            self._where.update(dict.fromkeys(file.keys(), (path, file)))
        self._left = {name for name in self._where if not _COMPUTED.fullmatch(name)}

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def has(self, name: str) -> bool:
        return name in self._where

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor, copied to the model's dtype and device; its shape must be as said."""
        return self.take_stacked([name], [shape[0]], *shape[1:])

    def take_stacked(self, names: Sequence[str], heights: Sequence[int], *rest: int) -> Tensor:
        """Several tensors as one, stacked along their first axis: names[i] has the shape [heights[i], *rest]."""
        # All are looked up first: sizes that do not fit the file must not be allocated.
        tensors = [self._mapped(name, (height, *rest)) for name, height in zip(names, heights, strict=True)]
        stacked = torch.empty(sum(heights), *rest, dtype=self._dtype, device=self._device)
        for name, part, tensor in zip(names, stacked.split(list(heights)), tensors, strict=True):
            part.copy_(tensor)
            self._left.discard(name)
        return stacked

    def ignore(self, name: str) -> None:
        """This tensor, if there, is not needed."""
        self._left.discard(name)

    def finish(self) -> None:
        """Raises WeightsError if the files hold tensors that the model did not take."""
        if self._left:
            shown = ", ".join(sorted(self._left)[:3])
            raise WeightsError(
                f"{len(self._left)} tensors of the checkpoint have no place in the model (such as {shown}); {ADVICE}"
            )

    def _mapped(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._where:
            raise WeightsError(
                f"tensor '{name}' is in none of the files of {self._model_dir}, but config.json asks for it; {ADVICE}"
            )
        path, file = self._where[name]
        try:
            tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"tensor '{name}' of {path} cannot be read: {error}") from None
        if tuple(tensor.shape) != shape:
            raise WeightsError(
                f"tensor '{name}' of {path} has shape {list(tensor.shape)}, but config.json makes it {list(shape)}"
                f"{self._blamed(tuple(tensor.shape), shape)}; {ADVICE}"
            )
        if tensor.dtype not in _FLOATS:
            raise WeightsError(f"tensor '{name}' of {path} is {tensor.dtype}; weights must be floating-point")
        return tensor

    def _blamed(self, found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
        """Fields of config.json that say the sizes which differ, as far as a field says one."""
        sizes = {want for want, size in zip(wanted, found, strict=False) if want != size}
        named = [f"'{name}' {size}" for name, size in self._sizes.items() if size in sizes]
        return f" by {' or '.join(named)}" if named else ""


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is damaged or incomplete: {error}; fetch or convert it again") from None
