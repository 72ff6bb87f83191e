"""What a modern client carries between rounds opens for nothing but what it was made for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nanobot.wire.request_state import LIFETIME_S, Binding, RequestStates
from nanobot.wire.rpc import INVALID_PARAMS, RpcError

HERE = Binding("ada", "tools/call", "greet")
KEY = bytes(32)


@given(text=st.one_of(st.none(), st.text()), kind=st.sampled_from(["parked", "relayed"]))
def test_r04_what_was_sealed_is_opened_for_the_same_request(text: str | None, kind: str) -> None:
    states = RequestStates(KEY)
    assert states.open(states.seal(kind, text, HERE), HERE) == (kind, text)


@pytest.mark.parametrize(
    "other",
    [
        Binding("bob", "tools/call", "greet"),
        Binding("ada", "prompts/get", "greet"),
        Binding("ada", "tools/call", "pay"),
    ],
)
def test_r04_another_account_method_or_tool_is_refused(other: Binding) -> None:
    states = RequestStates(KEY)
    with pytest.raises(RpcError, match="unknown or expired") as refusal:
        states.open(states.seal("parked", "x", HERE), other)
    assert refusal.value.rpc_code == INVALID_PARAMS


@given(at=st.integers(0, 10_000), bit=st.integers(0, 6))
def test_r04_a_flipped_bit_is_refused(at: int, bit: int) -> None:
    states = RequestStates(KEY)
    sealed = states.seal("parked", "x", HERE)
    at %= len(sealed)
    flipped = sealed[:at] + chr(ord(sealed[at]) ^ (1 << bit)) + sealed[at + 1 :]
    with pytest.raises(RpcError, match="unknown or expired"):
        states.open(flipped, HERE)


@given(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())))
def test_r04_anything_made_up_is_refused(made_up: object) -> None:
    with pytest.raises(RpcError):
        RequestStates(KEY).open(made_up, HERE)


def test_r04_it_expires() -> None:
    clock = [1000.0]
    states = RequestStates(KEY, now=lambda: clock[0])
    sealed = states.seal("parked", "x", HERE)
    clock[0] += LIFETIME_S
    with pytest.raises(RpcError):
        states.open(sealed, HERE)


def test_r04_a_process_with_another_key_refuses() -> None:
    sealed = RequestStates(KEY).seal("parked", "x", HERE)
    with pytest.raises(RpcError):
        RequestStates(bytes([1]) * 32).open(sealed, HERE)
