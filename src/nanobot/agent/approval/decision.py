"""Run, ask or refuse: what the rules of a conversation say about one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from nanobot.agent.approval.matching import holds, with_texts
from nanobot.agent.approval.readings import command_readings, is_plain_enough, is_too_long, real_path
from nanobot.config.approvals import Approvals, Matcher, Rule
from nanobot.config.builtin import SYSTEM
from nanobot.config.places import Reference

Verdict = Literal["run", "ask", "refuse"]

_PATHS: Final = {
    "read": "file_path",
    "write": "file_path",
    "edit": "file_path",
    "glob": "path",
    "grep": "path",
    "bash": "workdir",
}
"""Built-in tool → its argument that is a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call as it would run. `server` is an agent's id when an agent is called, and `tool` then "".

    `tool` is the name after renames and prefixes, without alias; `folder` is where relative paths begin.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any]
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`rule` is the one that decided; None if none did. `reason` is one sentence for people."""

    verdict: Verdict
    rule: Rule | None
    reason: str


def decide(levels: Sequence[Approvals | None], called: Called) -> Decision:
    """`levels`: the approvals of what is active, the outermost first; None for a level without opinion.

    A refusal at any level stands. Otherwise the innermost level with a matching rule decides.
    """
    firsts = [_first(level, called) for level in levels if level is not None]
    for rule in firsts:
        if rule is not None and not rule.allow:
            return Decision(verdict="refuse", rule=rule, reason=f"The rule at {rule.origin} refuses it.")
    for rule in reversed(firsts):
        if rule is not None:
            return Decision(verdict="run", rule=rule, reason=f"The rule at {rule.origin} allows it.")
    if firsts:
        return Decision(verdict="ask", rule=None, reason="No rule decides, so a person is asked.")
    return Decision(verdict="run", rule=None, reason="Nothing here asks for approval.")


def covers(target: Reference, server: str, tool: str) -> bool:
    """Whether a rule about `target` is about this tool."""
    return target.server == server and target.tool in (None, tool)


def _first(approvals: Approvals, called: Called) -> Rule | None:
    return next((rule for rule in approvals.rules if _matches(rule, called)), None)


def _matches(rule: Rule, called: Called) -> bool:
    if not covers(rule.target, called.server, called.tool):
        return False
    return all(
        name in called.arguments and _holds(rule, matcher, name, called)
        for name, matcher in rule.when.items()
    )


def _holds(rule: Rule, matcher: Matcher, name: str, called: Called) -> bool:
    value = called.arguments[name]
    if called.server != SYSTEM or not isinstance(value, str):
        return holds(matcher, value, in_doubt=not rule.allow)
    if _PATHS.get(called.tool) == name:
        real = real_path(value, called.folder)
        rebased = with_texts(matcher, lambda text: real_path(text, called.folder))
        if rule.allow:
            return holds(rebased, real)
        meant = ((matcher, value), (matcher, real), (rebased, real))
        return any(holds(one, text, in_doubt=True) for one, text in meant)
    if called.tool == "bash" and name == "command":
        if rule.allow:
            return holds(matcher, value, lambda leaf: is_plain_enough(leaf, value))
        if is_too_long(value):  # nobody can say what it runs, so it is refused
            return True
        return any(holds(matcher, text, in_doubt=True) for text in dict.fromkeys(command_readings(value)))
    return holds(matcher, value, in_doubt=not rule.allow)
