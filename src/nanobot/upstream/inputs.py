"""Answering a modern server that needs input, for a caller of the legacy era.

A modern server returns `resultType: input_required` with its questions instead of asking them; whoever wants
the result asks them and sends the request again with the answers. Legacy callers know nothing of this: they
are asked in their own way, and see only the last result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from nanobot.aio import task_group
from nanobot.wire.call import Call
from nanobot.wire.outgoing import answer
from nanobot.wire.rpc import INTERNAL_ERROR, ErrorResponse, Payload, Request, Response, RpcError, decode

MAX_ROUNDS: Final = 10

_MARK = b'"input_required"'


class _Answer(
    msgspec.Struct, rename={"kind": "resultType", "requests": "inputRequests", "state": "requestState"}
):
    kind: str = "complete"
    requests: dict[str, dict[str, Any]] = {}
    state: str | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def asks_only(result: Payload, method: str) -> bool:
    """Whether `result` is none yet, and all that the server needs for it are answers to `method`."""
    if _MARK not in result.raw:  # nearly always; spares decoding
        return False
    try:
        needed = _decode(result.raw)
    except msgspec.DecodeError:
        return False
    questions = needed.requests.values()
    return (
        needed.kind == "input_required"
        and bool(questions)
        and all(question.get("method") == method for question in questions)
    )


async def completed(
    first: Payload, params: Payload, call: Call, send: Callable[[Payload], Awaitable[Payload]]
) -> Payload:
    """The final result of a request whose answer so far is `first`. `send` sends it again with other params.

    Raises `RpcError` if a question cannot be answered or there are more than `MAX_ROUNDS` rounds of them.
    """
    result = first
    for _ in range(MAX_ROUNDS):
        if _MARK not in result.raw:  # nearly always; spares decoding
            return result
        try:
            needed = _decode(result.raw)
        except msgspec.DecodeError:
            return result
        if needed.kind != "input_required":
            return result
        members: dict[str, Any] = dict(params.members())
        members["inputResponses"] = await answers_of(needed.requests, lambda question: answer(question, call))
        if needed.state is not None:
            members["requestState"] = needed.state
        result = await send(Payload.encoded(msgspec.json.encode(members)))
    raise RpcError(INTERNAL_ERROR, f"the server still needs input after {MAX_ROUNDS} rounds of questions")


async def answers_of(
    questions: Mapping[str, Mapping[str, Any]], ask: Callable[[Request], Awaitable[bytes]]
) -> dict[str, msgspec.Raw]:
    """The answers to questions (`{method, params}`) by their keys; all are asked at once.

    `ask` gives the encoded response to a request. Raises `RpcError` for one that was refused.
    """
    answers: dict[str, msgspec.Raw] = {}

    async def put(key: str, question: Mapping[str, Any]) -> None:
        method, params = str(question.get("method")), Payload.of(question.get("params", {}))
        match decode(await ask(Request(1, method, params))):
            case Response(result=result):
                answers[key] = msgspec.Raw(result.raw)
            case ErrorResponse(error=refusal):
                raise refusal
            case _:
                raise AssertionError("an answer is a response")

    async with task_group() as group:
        for key, question in questions.items():
            group.start_soon(put, key, question)
    return answers
