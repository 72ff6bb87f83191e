"""Run, ask or refuse: what the rules of a conversation say about one call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from nanobot.agent.approval import plain
from nanobot.agent.approval.commands import Tangled, command_readings
from nanobot.agent.approval.matching import holds, is_meant
from nanobot.agent.approval.readings import allows_path, allows_text, refuses_path, refuses_text
from nanobot.config.approvals import Approvals, Matcher, Rule
from nanobot.config.builtin import PATH_ARGUMENTS, SYSTEM
from nanobot.config.places import Reference

Verdict = Literal["run", "ask", "refuse"]

_WHOLE_FOLDER: Final = "."
"""What a path that is not given is, where it need not be."""
_GO_BELOW: Final = frozenset({"glob", "grep"})
_LOOK_S: Final = 1.0
"""How long one command line may be looked through; then the next rule that refuses does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A call as it would run. `server` is an agent's id when an agent is called, and `tool` then "".

    `tool` is the name after renames and prefixes, without alias, and `own_name` the one before, if it is
    another. `folder` is where relative paths begin.
    """

    server: str
    tool: str
    arguments: Mapping[str, Any]
    folder: Path | None = None
    own_name: str = ""


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
    command = called.arguments.get("command")
    line = _CommandLine(command) if isinstance(command, str) else None
    firsts = [_first(level, called, line) for level in levels if level is not None]
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


def _first(approvals: Approvals, called: Called, line: _CommandLine | None) -> Rule | None:
    return next((rule for rule in approvals.rules if _matches(rule, called, line)), None)


def _matches(rule: Rule, called: Called, line: _CommandLine | None) -> bool:
    is_about_it = covers(rule.target, called.server, called.tool)
    if not is_about_it and (rule.allow or not covers(rule.target, called.server, called.own_name)):
        return False
    return all(_holds(rule, matcher, name, called, line) for name, matcher in rule.when.items())


def _holds(rule: Rule, matcher: Matcher, name: str, called: Called, line: _CommandLine | None) -> bool:
    is_path = called.server == SYSTEM and PATH_ARGUMENTS.get(called.tool) == name
    if name not in called.arguments:
        is_default = is_path and name != "file_path" and not rule.allow
        return is_default and _path_holds(rule, matcher, _WHOLE_FOLDER, called)
    value = called.arguments[name]
    if is_path and isinstance(value, str):
        return _path_holds(rule, matcher, value, called)
    if line is not None and called.server == SYSTEM and called.tool == "bash" and name == "command":
        if rule.allow:
            return holds(matcher, lambda leaf: plain.covers(leaf, str(value)))
        return line.is_refused_by(matcher)
    if isinstance(value, str):
        return allows_text(matcher, value) if rule.allow else refuses_text(matcher, value)
    return holds(matcher, lambda leaf: is_meant(leaf, value, in_doubt=not rule.allow))


def _path_holds(rule: Rule, matcher: Matcher, path: str, called: Called) -> bool:
    try:
        if rule.allow:
            return allows_path(matcher, path, called.folder)
        return refuses_path(matcher, path, called.folder, goes_below=called.tool in _GO_BELOW)
    except ValueError:  # a NUL, half a surrogate pair, far too long
        return not rule.allow


class _CommandLine:
    """The command line of a call and what it may run, taken apart once for all rules that refuse."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._readings: Sequence[str] | None = None
        self._until = 0.0

    def is_refused_by(self, matcher: Matcher) -> bool:
        """Whether some reading is meant, or there is more to look at than all rules together may take."""
        if self._readings is None:
            self._until = time.monotonic() + _LOOK_S
            self._readings = self._taken_apart()
        for reading in self._readings:
            if holds(matcher, lambda leaf, text=reading: is_meant(leaf, text, in_doubt=True)):
                return True
            if time.monotonic() > self._until:
                return True
        return not self._readings

    def _taken_apart(self) -> Sequence[str]:
        """Its readings, none if it is too tangled."""
        try:
            return tuple(dict.fromkeys(command_readings(self._command)))
        except Tangled:
            return ()
