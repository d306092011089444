"""Calls the C++ decoder; decoder/model.h has its structures."""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_float, c_int32, c_int64, c_void_p

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.decoder import DecoderWeights, KvLayer, LayerWeights, StepInputs, StepOutputs
from headrace_kernels.linear import PackedLinear
from headrace_kernels.native import INT, INT32, POINTER, Kernel, address

NO_WINDOW = 1 << 40
"""A sliding window wider than any context."""

MOST_HEAD_DIM, MOST_WINDOWS = 512, 8
"""Elements of a head, and different sliding windows of a model, that the C++ decoder can do."""

_create = Kernel("decoder_create", POINTER, POINTER)
_destroy = Kernel("decoder_destroy", POINTER)
_reserve = Kernel("decoder_reserve", POINTER, INT, INT, INT32)
_forward = Kernel("decoder_forward", POINTER, POINTER, INT32)
_begin = Kernel("decoder_begin", POINTER, POINTER, POINTER, INT32)
_run = Kernel("decoder_run", POINTER, POINTER, INT, INT, INT32)
_logits = Kernel("decoder_logits", POINTER, POINTER, INT32)


class _Linear(ctypes.Structure):
    _fields_ = [
        ("panels", c_void_p),
        ("bias", c_void_p),
        ("num_panels", c_int64),
        ("in_features", c_int64),
        ("kind", c_int64),
    ]


class _Layer(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("input_norm", "mlp_norm", "query_norm", "key_norm")),
        *((name, _Linear) for name in ("qkv", "output", "gate_up", "down")),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("window", c_int64),
        ("rotary", c_int64),
    ]


class _Decoder(ctypes.Structure):
    _fields_ = [
        ("layers", c_void_p),
        ("embedding", c_void_p),
        ("norm", c_void_p),
        ("head", _Linear),
        ("cos_sin", c_void_p),
        *(
            (name, c_int64)
            for name in (
                "num_layers",
                "hidden_size",
                "intermediate_size",
                "num_heads",
                "num_kv_heads",
                "head_dim",
                "rotary_dim",
                "vocab_size",
                "first_token",
                "end_token",
                "positions",
                "num_blocks",
                "block_size",
            )
        ),
        ("dtype", c_int32),
        ("embedding_dtype", c_int32),
        ("eight_bit_cache", c_int32),
        ("carries_residual", c_int32),
        ("eps", c_float),
    ]


class _Step(ctypes.Structure):
    _fields_ = [
        *(
            (name, c_void_p)
            for name in (
                "token_ids",
                "block_tables",
                "query_starts",
                "context_lengths",
                "sampled",
                "logits_rows",
                "logits",
                "best_ids",
                "best_logits",
                "times",
            )
        ),
        *((name, c_int64) for name in ("num_tokens", "num_rows", "max_blocks", "num_sampled")),
    ]


OPERATIONS = ("embedding", "norm", "qkv", "attention", "output", "gate_up", "down", "head", "quantize")


class Times(ctypes.Structure):
    """Nanoseconds a step's operations took, summed over threads, and those of waiting at the barriers before them."""

    _fields_ = [(name, c_int64 * len(OPERATIONS)) for name in ("work", "waiting")]


class Decoder:
    """A model with its cache, ready for steps. One step at a time."""

    def __init__(
        self, weights: DecoderWeights, cos_sin: NDArray[np.float32], cache: Sequence[KvLayer], block_size: int
    ) -> None:
        """cos_sin [positions, rotary_dim]: of each position the cosines, then as many sines."""
        layers = (_Layer * len(weights.layers))(
            *(_layer(layer, kv) for layer, kv in zip(weights.layers, cache, strict=True))
        )
        self._kept = (weights, cos_sin, cache, layers)  # C++ holds their addresses
        self._num_parts = 2 * len(layers) + 2  # as decoder/model.h counts them
        self.num_sums = self._num_parts - 1  # over ranks, in a step
        self.hidden_size = weights.hidden_size
        self._num_logits = len(weights.vocabulary)
        self._no_logits = np.empty((0, self._num_logits), np.float32)
        model = _Decoder(
            layers=ctypes.addressof(layers),
            embedding=weights.embedding.ctypes.data,
            norm=weights.norm.ctypes.data,
            head=_linear(weights.head),
            cos_sin=cos_sin.ctypes.data,
            num_layers=len(layers),
            hidden_size=weights.hidden_size,
            intermediate_size=weights.intermediate_size,
            num_heads=weights.num_heads,
            num_kv_heads=weights.num_kv_heads,
            head_dim=weights.head_dim,
            rotary_dim=weights.rotary_dim,
            vocab_size=weights.vocab_size,
            first_token=weights.vocabulary.start,
            end_token=weights.vocabulary.stop,
            positions=len(cos_sin),
            num_blocks=cache[0].keys.shape[0] if cache else 0,
            block_size=block_size,
            dtype=weights.dtype,
            embedding_dtype=native.BFLOAT16 if weights.embedding.dtype == np.uint16 else native.FLOAT32,
            eight_bit_cache=int(bool(cache) and cache[0].keys.dtype == np.int8),
            carries_residual=int(weights.carries_residual),
            eps=weights.eps,
        )
        handle = c_void_p()
        if not _create(ctypes.addressof(model), ctypes.addressof(handle)):
            raise ValueError(
                f"this model has heads of more than {MOST_HEAD_DIM} elements, or more than {MOST_WINDOWS} different "
                "sliding windows"
            )
        self._handle = handle

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _destroy(self._handle)

    def reserve(self, tokens: int, sampled: int) -> None:
        """Take the memory for steps of so many tokens, so many of them sampled. Raises MemoryError."""
        _reserve(self._handle, tokens, sampled, native.num_threads())

    def forward(self, inputs: StepInputs, times: Times | None = None) -> StepOutputs:
        """Compute one step; its times are added to `times`.

        Raises ValueError if an array names a token, a position or a block that there isn't.
        """
        outputs, step = self._step(inputs, times)
        if not _forward(self._handle, byref(step), native.num_threads()):
            raise ValueError(_NOT_THERE)
        return outputs

    def forward_among_ranks(
        self, inputs: StepInputs, add_up: Callable[[NDArray[np.float32]], None], times: Times | None = None
    ) -> StepOutputs:
        """The same of a rank's slices, with a call for each part of the model: the embedding, each layer's attention
        and its feed-forward layer, the head. C++ takes memory before the first of them, or raises MemoryError there.

        Between two of them `add_up` makes the residual stream [tokens, hidden_size] the sum of all ranks', in place.
        """
        outputs, step = self._step(inputs, times)
        threads, where = native.num_threads(), c_void_p()
        if not _begin(self._handle, byref(step), byref(where), threads):
            raise ValueError(_NOT_THERE)
        residual = _floats_at(where, (step.num_tokens, self.hidden_size))
        for part in range(self._num_parts):
            if part > 0:
                add_up(residual)
            _run(self._handle, byref(step), part, part + 1, threads)
        return outputs

    def logits(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """[len(tokens), logits that are here] for tokens of the step before, at most as many as `reserve` was told
        of."""
        outputs, step = self._outputs(tokens, np.ones(len(tokens), np.bool_))
        if not _logits(self._handle, byref(step), native.num_threads()):
            raise ValueError(f"tokens {tokens}: not all of the last step, or more than were reserved")
        return outputs.logits

    def _step(self, inputs: StepInputs, times: Times | None) -> tuple[StepOutputs, _Step]:
        outputs, step = self._outputs(inputs.sampled, inputs.logits_wanted)
        step.token_ids = address(inputs.token_ids)
        step.block_tables = address(inputs.block_tables)
        step.query_starts = address(inputs.query_starts)
        step.context_lengths = address(inputs.context_lengths)
        step.num_tokens = len(inputs.token_ids)
        step.times = None if times is None else ctypes.addressof(times)
        step.num_rows, step.max_blocks = inputs.block_tables.shape
        return outputs, step

    def _outputs(self, sampled: NDArray[np.int64], wanted: NDArray[np.bool_]) -> tuple[StepOutputs, _Step]:
        rows, logits = self._logits_rows(wanted)
        outputs = StepOutputs(np.empty(len(sampled), np.int64), np.empty(len(sampled), np.float32), logits)
        step = _Step()
        step.sampled = address(sampled)
        step.logits_rows = address(rows)
        step.logits = address(logits)
        step.best_ids = address(outputs.best_ids)
        step.best_logits = address(outputs.best_logits)
        step.num_sampled = len(sampled)
        step.kept = rows  # until the call is over
        return outputs, step

    def _logits_rows(self, wanted: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Which row of the logits each sampled token's are, or -1; and room for them."""
        if not wanted.any():
            return np.full(len(wanted), -1), self._no_logits
        numbers = np.cumsum(wanted)
        return np.where(wanted, numbers - 1, -1), np.empty((int(numbers[-1]), self._num_logits), np.float32)


_NOT_THERE = "the step names a token id, a position or a block that the model doesn't have"


def _floats_at(begin: c_void_p, shape: tuple[int, int]) -> NDArray[np.float32]:
    """C++'s memory as an array, as long as C++ keeps it there."""
    return np.ctypeslib.as_array(ctypes.cast(begin, ctypes.POINTER(c_float)), shape)


def _layer(layer: LayerWeights, kv: KvLayer) -> _Layer:
    return _Layer(
        input_norm=layer.input_norm.ctypes.data,
        mlp_norm=layer.mlp_norm.ctypes.data,
        query_norm=None if layer.query_norm is None else layer.query_norm.ctypes.data,
        key_norm=None if layer.key_norm is None else layer.key_norm.ctypes.data,
        qkv=_linear(layer.qkv),
        output=_linear(layer.output),
        gate_up=_linear(layer.gate_up),
        down=_linear(layer.down),
        keys=kv.keys.ctypes.data,
        values=kv.values.ctypes.data,
        window=layer.window or NO_WINDOW,
        rotary=int(layer.rotary),
    )


def _linear(layer: PackedLinear) -> _Linear:
    return _Linear(
        panels=layer.panels.ctypes.data,
        bias=None if layer.bias is None else layer.bias.ctypes.data,
        num_panels=layer.num_panels,
        in_features=layer.in_features,
        kind=layer.kind,
    )
