"""Rules about which calls of tools a person has to approve, as they stand in a document.

What they mean for a call is decided in `agent.approval`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nanobot.config.places import NOWHERE, Origin, Reference


@dataclass(frozen=True, slots=True)
class Equals:
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class StartsWith:
    prefix: str


@dataclass(frozen=True, slots=True)
class Matches:
    """A regular expression that is found anywhere in a text. It has been compiled once, so it is one."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Contains:
    value: Any


@dataclass(frozen=True, slots=True)
class ContainsAll:
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    matchers: tuple[Matcher, ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    matchers: tuple[Matcher, ...]


Matcher = Equals | In | StartsWith | Matches | Contains | ContainsAll | AnyOf | AllOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`target` without a tool is an agent or a whole server. `when` is by argument; all must hold."""

    target: Reference
    allow: bool
    when: Mapping[str, Matcher] = field(default_factory=dict[str, Matcher])
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvals:
    """The first rule that matches decides; a call that none matches is asked about."""

    rules: tuple[Rule, ...] = ()
    origin: Origin = NOWHERE
