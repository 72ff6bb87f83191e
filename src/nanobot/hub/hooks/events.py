"""Hooks of what is no message: each may change the payload, all of them run, and any failure aborts."""

from __future__ import annotations

import time
from typing import Any, cast

import msgspec

from nanobot.hub.hooks.hook import REJECTED, HookFailed, JsonObject
from nanobot.hub.hooks.matching import Mapped, Matching, Target
from nanobot.hub.hooks.record import Audit, HookRecord, HookStatus, Status
from nanobot.wire.call import Call
from nanobot.wire.rpc import Payload, RpcError


class HooksFailed(RpcError):
    """Hooks of `event` failed; the message has what all of them said."""

    code = "hook.failed"

    def __init__(self, owner: str, event: str, failures: list[tuple[str, str, str]]) -> None:
        """`failures`: key, target and reason of each."""
        said = "; ".join(f"hook {target!r} of event {event!r}: {reason}" for _, target, reason in failures)
        key, target, reason = failures[0]
        data = {"hook": key, "target": target, "direction": "", "reason": reason, "owner": owner}
        super().__init__(REJECTED, said, Payload.of(data))


class EventHooks:
    """The hooks of one agent, or those of all sessions."""

    def __init__(self, matching: Matching, audit: Audit) -> None:
        self._matching = matching
        self._audit = audit

    def has(self, *events: str) -> bool:
        return self._matching.has(*events)

    async def run(self, event: str, payload: JsonObject, call: Call) -> JsonObject:
        """`payload` as the hooks made it; what an answer leaves out stays. Raises `HooksFailed`."""
        current = original = _encode(payload)
        statuses: list[HookStatus] = []
        failures: list[tuple[str, str, str]] = []
        for mapped in self._matching.events(event, {}, call):
            for target in mapped.targets:
                began = time.perf_counter()
                status: Status = "ok"
                reason = ""
                try:
                    after = await _asked(mapped, target, event, current, call)
                    status = "ok" if after == current else "mutated"
                    current = after
                except HookFailed as e:
                    status, reason = "skipped" if target.config.is_optional else "failed", str(e)
                    if status == "failed":
                        failures.append((mapped.key, target.text, reason))
                ms = round((time.perf_counter() - began) * 1000)
                statuses.append(
                    HookStatus(hook=mapped.key, target=target.text, status=status, reason=reason, ms=ms)
                )
        if statuses:
            is_changed = current != original
            self._audit(
                HookRecord(
                    owner=self._matching.owner,
                    event=event,
                    direction="",
                    name="",
                    call=call,
                    statuses=tuple(statuses),
                    original=original if is_changed else None,
                    final=current if is_changed else None,
                )
            )
        if failures:
            raise HooksFailed(self._matching.owner, event, failures)
        return msgspec.json.decode(current)


async def _asked(mapped: Mapped, target: Target, event: str, payload: bytes, call: Call) -> bytes:
    """The payload after one target, encoded. Raises `HookFailed`, also for an answer that says no."""
    value = await target.hook.run(event, msgspec.json.decode(payload), mapped.call(call))
    if value is None:
        return payload
    if not isinstance(value, dict):
        raise HookFailed(f"its answer is a {type(value).__name__}, not an object")
    answer = cast("JsonObject", value)
    if answer.get("accept") is False:
        raise HookFailed(str(answer.get("reason") or "it did not accept"))
    try:
        after = _encode({**msgspec.json.decode(payload), **answer})
    except (TypeError, ValueError, RecursionError) as e:
        raise HookFailed(f"its answer is no JSON: {e}") from e
    if after != payload and not target.config.may_mutate:
        raise HookFailed("mutation not allowed by hook configuration")
    return after


_encode: Any = msgspec.json.Encoder().encode
