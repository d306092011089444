"""Messages become values and back, and malformed ones say which field is wrong."""

import numpy as np
import pytest
from grpc_world import packed, tables, unpacked

from headrace_server import wire
from headrace_server.errors import ProtocolError
from headrace_server.pb import shard_pb2 as pb
from headrace_server.step import StepResult


def prefill(**changes: object) -> pb.PrefillStep:
    fields = {
        "sequence": 1,
        "step": 7,
        "chunk_rows": packed(3, 4),
        "chunk_tokens": packed(10, 2),
        "decode_rows": packed(5),
        "tables": tables([8, 9], [1], [2]),
        **changes,
    }
    return pb.PrefillStep(**fields)


def test_a_prefill_step_arrives_whole() -> None:
    sampling = pb.Sampling(
        temperature=0.5, top_k=4, top_p=0.25, min_p=0.125, seed=2**64 - 1, logit_bias_ids=packed(9, 2**32 - 1),
        logit_bias_values=np.array([1.5, -2], "<f4").tobytes(), logprobs=True, top_n=2,
    )  # fmt: skip
    row = pb.NewRow(
        row=3, epoch=2**64 - 2, token_ids=packed(1, 2, 2**32 - 1), num_generated=1, num_computed=2, sampling=sampling
    )
    step = wire.parse_prefill(prefill(new_rows=[row], copies=packed(6, 2, 7, 1)))
    assert step.number == 7
    assert step.copies.tolist() == [[6, 2], [7, 1]]
    assert (step.rows.tolist(), step.num_tokens.tolist(), step.num_chunks) == ([3, 4, 5], [10, 2, 1], 2)
    assert (step.table_lengths.tolist(), step.tables.tolist()) == ([2, 1, 1], [[8, 9], [1, 0], [2, 0]])
    assert (step.highest_row, step.highest_block, step.problem) == (5, 9, None)
    (new,) = step.new_rows
    assert (new.row, new.epoch, new.num_generated, new.num_computed) == (3, -2, 1, 2)
    assert new.token_ids.tolist() == [1, 2, 2**32 - 1]
    assert (new.sampling.temperature, new.sampling.top_k, new.sampling.top_p, new.sampling.min_p) == (
        0.5,
        4,
        0.25,
        0.125,
    )
    assert (new.sampling.typical_p, new.sampling.repetition_penalty) == (1.0, 1.0)
    assert new.sampling.seed == -1
    assert new.sampling.bias_ids.tolist() == [9, 2**32 - 1]
    assert new.sampling.bias_values.tolist() == [1.5, -2]


def test_absent_and_zero_are_not_the_same() -> None:
    row = pb.NewRow(token_ids=packed(1), sampling=pb.Sampling(top_p=0.0, repetition_penalty=0.0))
    (new,) = wire.parse_prefill(prefill(new_rows=[row])).new_rows
    assert (new.sampling.top_p, new.sampling.repetition_penalty) == (0.0, 0.0)  # both refused later, by name
    assert new.sampling.problem(10) is not None


def test_swaps_arrive_with_either_step_and_are_mostly_none() -> None:
    swaps = pb.Swaps(out=packed(6, 0, 7, 3), back=packed(2, 9))
    decode = pb.DecodeStep(step=1, decode_rows=packed(5), tables=tables([1]), swaps=swaps)
    for step in (wire.parse_prefill(prefill(swaps=swaps)), wire.parse_decode(decode)):
        assert (step.swaps_out.tolist(), step.swaps_back.tolist()) == ([[6, 0], [7, 3]], [[2, 9]])
    assert wire.parse_prefill(prefill()).swaps_out.shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk_rows": b"\0\0\0"}, "chunk_rows has 3 bytes, which is no multiple of 4"),
        ({"chunk_tokens": packed(1)}, "2 chunk_rows and 1 chunk_tokens"),
        ({"chunk_rows": b"", "chunk_tokens": b"", "decode_rows": b""}, "neither a chunk nor a decode row"),
        ({"tables": tables([1])}, "3 rows and 1 block tables"),
        ({"tables": pb.BlockTables(lengths=packed(1, 1, 5), blocks=packed(1, 2))}, "add up to 7, but 2 blocks"),
        ({"new_rows": [pb.NewRow(token_ids=b"abc")]}, "token_ids has 3 bytes"),
        ({"copies": packed(1, 2, 3)}, "copies has 3 numbers, which are not pairs"),
        ({"swaps": pb.Swaps(out=packed(1))}, "swaps.out has 1 numbers, which are not pairs"),
        ({"swaps": pb.Swaps(back=b"abc")}, "swaps.back has 3 bytes"),
    ],
    ids=["ragged", "uneven", "empty", "tables", "blocks", "tokens", "pairs", "odd swaps", "ragged swaps"],
)
def test_a_malformed_step_names_the_field(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        wire.parse_prefill(prefill(**changes))


def test_a_filter_with_rows_but_without_epochs_is_refused() -> None:
    with pytest.raises(ProtocolError, match="2 rows and 0 epochs"):
        wire.parse_filter(pb.FilterRows(rows=packed(1, 2)))


def test_a_result_arrives_whole() -> None:
    result = StepResult(
        number=3,
        token_ids=np.array([1, 2**32 - 1]),
        logprobs=np.array([-0.5, np.nan], np.float32),
        top_ids=np.array([4, 5]),
        top_logprobs=np.array([-1, -2], np.float32),
        prompt_logprobs=np.array([np.nan, -3], np.float32),
        row_errors={6: "no"},
        forward_us=10,
        sampling_us=2**40,
    )
    message = wire.render_result(result, sequence=9, inbox_us=11)
    assert (message.sequence, message.step) == (9, 3)
    assert unpacked(message.token_ids) == [1, 2**32 - 1]
    assert unpacked(message.logprobs, "<f4")[0] == -0.5
    assert unpacked(message.top_ids) == [4, 5]
    assert unpacked(message.top_logprobs, "<f4") == [-1, -2]
    assert unpacked(message.prompt_logprobs, "<f4")[1] == -3
    assert [(error.row, error.message) for error in message.row_errors] == [(6, "no")]
    assert (message.timing.inbox_us, message.timing.forward_us, message.timing.sampling_us) == (11, 10, 2**32 - 1)
    assert not message.HasField("error")
    assert wire.render_result(StepResult(3, error=""), 1, 0).HasField("error")
