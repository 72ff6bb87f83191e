"""What a hook says about a message: let it through, change it, or stop it."""

from __future__ import annotations

from typing import Any, Final, Literal, cast

import msgspec

from nanobot.hub.hooks.hook import HookFailed, JsonObject

Direction = Literal["request", "response"]

NOT_ALLOWED: Final = "mutation not allowed by hook configuration"
_LONGEST_REASON: Final = 1000


class Answer(msgspec.Struct, frozen=True):
    """A hook's answer. What a hook leaves out stays as it was."""

    accept: bool = True
    mutated: bool = False
    message: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    reason: str | None = None


def read_answer(value: Any) -> Answer:
    """The answer of a hook; None means that it has no objection. Raises `HookFailed`."""
    if value is None:
        return Answer()
    try:
        answer = msgspec.convert(value, Answer)
    except msgspec.ValidationError as e:
        raise HookFailed(f"its answer is not valid: {e}") from e
    if answer.accept and answer.mutated and answer.message is None:
        raise HookFailed("its answer is not valid: it changes the message and says that there is none")
    return answer


def reason_of(answer: Answer, *more: str) -> str:
    """The reason in one text of bounded length."""
    reasons = [answer.reason[:_LONGEST_REASON]] if answer.reason else []
    return "; ".join([*reasons, *more])


def changed(before: JsonObject, after: JsonObject) -> JsonObject:
    """`before` with what a hook may change taken from `after`; id and method stay. Raises `HookFailed`."""
    kept = {key: before[key] for key in ("jsonrpc", "id", "method") if key in before}
    if "method" in before:
        params = after.get("params")
        if params is None:
            return kept
        if not isinstance(params, dict):
            raise HookFailed("its message has params that are no object")
        return {**kept, "params": params}
    result, error = after.get("result"), after.get("error")
    if error is not None and result is not None:
        raise HookFailed("its message has both a result and an error")
    if error is not None:
        return {**kept, "error": _error(error)}
    if result is None:
        raise HookFailed("its message has neither a result nor an error")
    if not isinstance(result, dict):
        raise HookFailed("its message has a result that is no object")
    return {**kept, "result": result}


def _error(value: Any) -> JsonObject:
    error = cast("JsonObject", value) if isinstance(value, dict) else {}
    code = error.get("code")
    if isinstance(code, float) and code.is_integer():  # JavaScript knows one kind of number
        error = {**error, "code": int(code)}
    if type(error.get("code")) is not int or not isinstance(error.get("message"), str):
        raise HookFailed("its message has an error without code and message")
    return error
