"""One order out of three streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_server.errors import ProtocolError
from headrace_server.inbox import Inbox


@given(st.permutations(range(1, 30)))
def test_whatever_order_messages_arrive_in_they_leave_by_sequence(arrivals: list[int]) -> None:
    inbox: Inbox[int] = Inbox(capacity=100)
    left = [message for sequence in arrivals for message in inbox.put(sequence, sequence)]
    assert left == sorted(arrivals)
    assert len(inbox) == 0


def test_a_message_leaves_as_soon_as_those_before_it_are_there() -> None:
    inbox: Inbox[str] = Inbox(capacity=100)
    assert inbox.put(2, "b") == []
    assert inbox.put(1, "a") == ["a", "b"]
    assert inbox.put(3, "c") == ["c"]


@pytest.mark.parametrize("sequence", [0, 1, 3], ids=["never valid", "executed", "waiting"])
def test_a_sequence_number_is_used_once(sequence: int) -> None:
    inbox: Inbox[str] = Inbox(capacity=100)
    inbox.put(1, "a")
    inbox.put(3, "c")
    with pytest.raises(ProtocolError, match=f"sequence {sequence} came twice; the next one is 2"):
        inbox.put(sequence, "again")


def test_too_many_messages_behind_a_missing_one_are_an_error() -> None:
    inbox: Inbox[int] = Inbox(capacity=3)
    for sequence in (2, 3, 4):
        inbox.put(sequence, sequence)
    with pytest.raises(ProtocolError, match="4 messages wait for sequence 1"):
        inbox.put(5, 5)
