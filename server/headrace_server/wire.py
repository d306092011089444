"""proto ⇄ values. Packed little-endian arrays become numpy arrays without a Python object per element."""

import numpy as np
from numpy.typing import NDArray

from headrace_server.errors import ProtocolError
from headrace_server.pb import shard_pb2 as pb
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import Filter, NewRow, Step, StepResult

U32_MAX = 2**32 - 1


def parse_prefill(message: pb.PrefillStep) -> Step:
    """Raises ProtocolError naming the field that is malformed."""
    return _step(
        message,
        new_rows=tuple(_new_row(row) for row in message.new_rows),
        chunk_rows=_u32(message.chunk_rows, "chunk_rows"),
        chunk_tokens=_u32(message.chunk_tokens, "chunk_tokens"),
        copies=_pairs(message.copies, "copies"),
    )


def parse_decode(message: pb.DecodeStep) -> Step:
    """Raises ProtocolError naming the field that is malformed."""
    nothing = np.empty(0, np.int64)
    return _step(message, new_rows=(), chunk_rows=nothing, chunk_tokens=nothing, copies=nothing.reshape(0, 2))


def parse_filter(message: pb.FilterRows) -> Filter:
    """Raises ProtocolError naming the field that is malformed."""
    rows = _u32(message.rows, "rows")
    epochs = _array(message.epochs, "<u8", "epochs").astype(np.int64)
    if len(rows) != len(epochs):
        raise ProtocolError(f"Filter names {len(rows)} rows and {len(epochs)} epochs; send one epoch per row")
    return Filter(rows, epochs)


def render_result(result: StepResult, sequence: int, inbox_us: int) -> pb.StepResult:
    """The answer to the message `sequence`, which waited `inbox_us` for its step."""
    message = pb.StepResult(
        sequence=sequence,
        step=result.number,
        token_ids=_packed_u32(result.token_ids),
        logprobs=_packed_f32(result.logprobs),
        top_ids=_packed_u32(result.top_ids),
        top_logprobs=_packed_f32(result.top_logprobs),
        prompt_logprobs=_packed_f32(result.prompt_logprobs),
        row_errors=[pb.RowError(row=row, message=text) for row, text in result.row_errors.items()],
        timing=pb.Timing(
            inbox_us=min(inbox_us, U32_MAX),
            forward_us=min(result.forward_us, U32_MAX),
            sampling_us=min(result.sampling_us, U32_MAX),
        ),
    )
    if result.error is not None:
        message.error = result.error
        message.out_of_memory = result.out_of_memory
    return message


def _step(
    message: pb.PrefillStep | pb.DecodeStep,
    new_rows: tuple[NewRow, ...],
    chunk_rows: NDArray[np.int64],
    chunk_tokens: NDArray[np.int64],
    copies: NDArray[np.int64],
) -> Step:
    decode_rows = _u32(message.decode_rows, "decode_rows")
    lengths = _u32(message.tables.lengths, "tables.lengths")
    blocks = _u32(message.tables.blocks, "tables.blocks")
    rows = len(chunk_rows) + len(decode_rows)
    if len(chunk_rows) != len(chunk_tokens):
        raise ProtocolError(
            f"step {message.step} has {len(chunk_rows)} chunk_rows and {len(chunk_tokens)} chunk_tokens"
        )
    if rows == 0:
        raise ProtocolError(f"step {message.step} has neither a chunk nor a decode row")
    if len(lengths) != rows:
        raise ProtocolError(f"step {message.step} has {rows} rows and {len(lengths)} block tables")
    if lengths.sum() != len(blocks):
        raise ProtocolError(
            f"step {message.step}: the lengths of its block tables add up to {lengths.sum()}, "
            f"but {len(blocks)} blocks were sent"
        )
    return Step.of(
        number=message.step,
        new_rows=new_rows,
        chunk_rows=chunk_rows,
        chunk_tokens=chunk_tokens,
        decode_rows=decode_rows,
        table_lengths=lengths,
        table_blocks=blocks,
        swaps_out=_pairs(message.swaps.out, "swaps.out"),
        swaps_back=_pairs(message.swaps.back, "swaps.back"),
        copies=copies,
    )


def _new_row(message: pb.NewRow) -> NewRow:
    return NewRow(
        row=message.row,
        epoch=_wrapped(message.epoch),
        token_ids=_u32(message.token_ids, "token_ids"),
        num_generated=message.num_generated,
        num_computed=message.num_computed,
        sampling=_sampling(message.sampling),
    )


def _sampling(message: pb.Sampling) -> SamplingParameters:
    def present(name: str, otherwise: float) -> float:
        return getattr(message, name) if message.HasField(name) else otherwise

    return SamplingParameters(
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=present("top_p", 1.0),
        typical_p=present("typical_p", 1.0),
        min_p=present("min_p", 0.0),
        repetition_penalty=present("repetition_penalty", 1.0),
        frequency_penalty=message.frequency_penalty,
        presence_penalty=message.presence_penalty,
        seed=_wrapped(message.seed),
        bias_ids=_u32(message.logit_bias_ids, "logit_bias_ids"),
        bias_values=_array(message.logit_bias_values, "<f4", "logit_bias_values"),
        logprobs=message.logprobs,
        top_n=message.top_n,
        prompt_logprobs=message.prompt_logprobs,
    )


def _wrapped(value: int) -> int:
    """A u64 as the int64 with the same bits: numpy and torch have no complete uint64."""
    return value - 2**64 if value >= 2**63 else value


def _u32(data: bytes, field: str) -> NDArray[np.int64]:
    return _array(data, "<u4", field).astype(np.int64)


def _pairs(data: bytes, field: str) -> NDArray[np.int64]:
    numbers = _u32(data, field)
    if len(numbers) % 2:
        raise ProtocolError(f"{field} has {len(numbers)} numbers, which are not pairs")
    return numbers.reshape(-1, 2)


def _array(data: bytes, dtype: str, field: str) -> NDArray:
    width = np.dtype(dtype).itemsize
    if len(data) % width:
        raise ProtocolError(f"{field} has {len(data)} bytes, which is no multiple of {width}")
    return np.frombuffer(data, dtype)


def _packed_u32(values: NDArray[np.int64]) -> bytes:
    return values.astype("<u4").tobytes()


def _packed_f32(values: NDArray[np.float32]) -> bytes:
    return values.astype("<f4", copy=False).tobytes()
