"""What the hub hands out: entries of many servers under the names by which they are published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from nanobot.wire.rpc import Payload


@dataclass(frozen=True, slots=True)
class Published:
    """One tool, prompt, resource or resource template as its users see it.

    `name` is the published name (a URI or URI template for resources); `own_name` is what `server` calls
    it, and `listed_as` the name that an alias hides ("" without alias). `definition` is the MCP object with
    the published name in it, otherwise as the server wrote it.
    """

    name: str
    server: str
    own_name: str
    definition: Payload
    is_for_models: bool = True
    """False for a tool that only the user interface of its server uses."""
    listed_as: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Something that was asked for and is not there. `message` is one sentence for a person.

    `code`: `pending` the server has not answered yet · `not_found` there is no such server, tool or prompt ·
    `reference` the reference cannot mean anything · otherwise the code of the error the server failed with.
    """

    server: str
    code: str
    message: str
    for_caller: bool = field(default=False, compare=False)
    """Whether the server failed for what the caller brought along, or did not."""

    @property
    def is_failure(self) -> bool:
        """Whether the server itself failed, as opposed to being slow or not having the thing."""
        return self.code not in ("pending", "not_found", "reference")

    @property
    def is_unlisted(self) -> bool:
        """Whether it is not known what the server has."""
        return self.is_failure or self.code == "pending"

    @property
    def is_passing(self) -> bool:
        """Whether the same request may well succeed a while later, without anybody doing anything."""
        passing = ("pending", "busy", "upstream.unavailable", "upstream.timeout")
        return self.code in passing and not self.for_caller


@dataclass(frozen=True)  # without slots, for what is worked out once
class Listing:
    """Everything some references lead to, sorted by name in byte order, and what they do not lead to."""

    items: tuple[Published, ...] = ()
    missing: tuple[Missing, ...] = ()
    by_name: Mapping[str, Published] = field(default_factory=dict[str, Published], repr=False, compare=False)

    @cached_property
    def for_models(self) -> Listing:
        """The same without the tools that only apps use; this very listing if there are none."""
        kept = tuple(item for item in self.items if item.is_for_models)
        if len(kept) == len(self.items):
            return self
        return Listing(kept, self.missing, {item.name: item for item in kept})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """How much of what `publish` asks for is there.

    `things`: tools, prompts, resources and templates together ·
    `is_asked`: whether anything is to be published at all · `is_pending`: some server has not answered yet ·
    `wants_login`: some server shows what it has only to people who have logged in ·
    `reasons`: a sentence for each server that failed.
    """

    things: int
    is_asked: bool
    is_pending: bool
    wants_login: bool = False
    reasons: tuple[str, ...] = ()
