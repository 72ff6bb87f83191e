"""Running hooks over one message of a server: in order, each shown what those before it made of it.

Fails closed: a hook that cannot say yes has said no, unless it was configured as optional.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from nanobot.hub.hooks.answers import NOT_ALLOWED, Direction, changed, read_answer, reason_of
from nanobot.hub.hooks.hook import HookFailed, HookRejected, JsonObject
from nanobot.hub.hooks.matching import Mapped, Matching, Target
from nanobot.hub.hooks.record import Audit, HookRecord, HookStatus, Status
from nanobot.wire.call import Call

_NAMED_BY: Final = ("name", "uri")
"""Members of params that say what a request is about."""


@dataclass(slots=True)
class Passed:
    """A message that may go on. `reasons` are those of the hooks that changed it."""

    message: JsonObject
    is_mutated: bool = False
    reasons: list[str] = field(default_factory=list[str])

    @property
    def trace(self) -> JsonObject:
        return {"mutated": True, "reasons": self.reasons}


@dataclass(slots=True)
class _Run:
    """A message on its way through the hooks."""

    message: JsonObject
    original: bytes | None = None
    reasons: list[str] = field(default_factory=list[str])
    statuses: list[HookStatus] = field(default_factory=list[HookStatus])
    rejection: tuple[Mapped, Target] | None = None
    objections: list[str] = field(default_factory=list[str])


class MessageHooks:
    """The message hooks of one server."""

    def __init__(self, server: str, matching: Matching, audit: Audit) -> None:
        self._server = server
        self._matching = matching
        self._audit = audit

    def concern(self, method: str, direction: Direction) -> bool:
        """Whether a message of this kind could have hooks at all."""
        return self._matching.could_match(method, direction)

    @property
    def hear_notifications(self) -> bool:
        return self._matching.hears_notifications()

    async def pass_on(
        self, method: str, direction: Direction, message: JsonObject, call: Call, *, about: JsonObject
    ) -> Passed:
        """As `run`, without any work for a message that no hook could be meant for."""
        if not self.concern(method, direction):
            return Passed(message)
        return await self.run(method, direction, message, call, about=about)

    async def run(
        self, method: str, direction: Direction, message: JsonObject, call: Call, *, about: JsonObject
    ) -> Passed:
        """`message` as it may go on. `method` is that of its request, `about` the params of that.

        Raises `HookRejected` when a hook said no, or should have said something and could not.
        """
        run = _Run(message)
        try:
            for mapped in self._matching.all(call):
                about_now = run.message.get("params") or {} if direction == "request" else about
                if mapped.matches(method, _params(method, direction, run.message, about_now)):
                    for target in mapped.targets:
                        await self._ask(run, mapped, target, method, direction, call)
        finally:
            self._report(run, method, direction, call, about)
        if run.rejection is not None:
            mapped, target = run.rejection
            reason = "; ".join(run.objections)
            raise _stopped(mapped, target, direction, reason, is_decision=True)
        return Passed(run.message, run.original is not None, run.reasons)

    async def _ask(
        self, run: _Run, mapped: Mapped, target: Target, method: str, direction: Direction, call: Call
    ) -> None:
        """Put the message to one target and note what it says."""
        began = time.perf_counter()

        def note(status: Status, reason: str) -> None:
            ms = round((time.perf_counter() - began) * 1000)
            run.statuses.append(
                HookStatus(hook=mapped.key, target=target.text, status=status, reason=reason, ms=ms)
            )

        raw = _encode(run.message)
        try:
            payload = self._payload(msgspec.json.decode(raw), call)
            answer = read_answer(await target.hook.run(method, payload, mapped.call(call)))
            if not answer.accept:
                status, reason = "rejected", reason_of(answer)
            elif answer.mutated and not target.config.may_mutate:
                status, reason = "rejected", reason_of(answer, NOT_ALLOWED)
            elif answer.mutated:
                status, reason = "mutated", reason_of(answer)
                if isinstance(answer.message, dict):
                    run.message = _plain(changed(run.message, answer.message))
            else:
                status, reason = "ok", reason_of(answer)
        except HookFailed as e:
            if target.config.is_optional:
                note("skipped", str(e))
                return
            note("failed", str(e))
            reason = f"hook {target.text!r} failed: {e}"
            raise _stopped(mapped, target, direction, reason, is_decision=False) from e
        note(status, reason)
        if status == "rejected":
            run.rejection = run.rejection or (mapped, target)
            run.objections.append(reason or f"rejected by hook {target.text!r}")
        elif status == "mutated":
            run.original = run.original or raw
            if reason:
                run.reasons.append(reason)

    def _payload(self, message: JsonObject, call: Call) -> JsonObject:
        caller = call.caller
        context = {
            "server": self._server,
            "session": caller.session or "",
            "account": caller.account,
            "client": dict(caller.client),
        }
        return {"accept": True, "mutated": False, "message": message, "reason": "", "context": context}

    def _report(self, run: _Run, method: str, direction: Direction, call: Call, about: JsonObject) -> None:
        if run.statuses:
            self._audit(
                HookRecord(
                    owner=self._server,
                    event=method,
                    direction=direction,
                    name=_name(about),
                    call=call,
                    statuses=tuple(run.statuses),
                    original=run.original,
                    final=_encode(run.message) if run.original is not None else None,
                )
            )


def _stopped(
    mapped: Mapped, target: Target, direction: Direction, reason: str, *, is_decision: bool
) -> HookRejected:
    return HookRejected(
        key=mapped.key, target=target.text, direction=direction, reason=reason, is_decision=is_decision
    )


def _params(method: str, direction: Direction, message: JsonObject, about: JsonObject) -> dict[str, str]:
    return {
        "name": _name(about),
        "direction": direction,
        "method": method,
        "callOnError": "true" if "error" in message else "false",
    }


def _name(about: JsonObject) -> str:
    """The tool, prompt or URI that a request names; "" if it names nothing."""
    for member in _NAMED_BY:
        if isinstance(name := about.get(member), str):
            return name
    return ""


def _plain(message: JsonObject) -> JsonObject:
    """A copy that shares nothing with what a hook still holds. Raises `HookFailed` for what is no JSON."""
    try:
        return msgspec.json.decode(_encode(message))
    except (TypeError, ValueError, RecursionError) as e:
        raise HookFailed(f"its message is no JSON: {e}") from e


_encode: Any = msgspec.json.Encoder().encode
