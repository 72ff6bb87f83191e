"""Which hooks of an owner run for an event, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from nanobot.config.model import HookMapping, HookTarget
from nanobot.hub.hooks.hook import Hook, HookFailed
from nanobot.wire.call import Call

DEEPEST: Final = 3
"""How many hooks may run inside one another: one calls a tool, whose server has hooks, and so on."""


@dataclass(frozen=True, slots=True)
class Target:
    """A hook and how it was configured."""

    hook: Hook
    config: HookTarget

    @property
    def text(self) -> str:
        return self.config.text


@dataclass(frozen=True, slots=True)
class Mapped:
    """One key and its targets. `id` is unique in the configuration."""

    id: str
    config: HookMapping
    targets: tuple[Target, ...]

    @property
    def key(self) -> str:
        return self.config.key

    def matches(self, event: str, params: Mapping[str, str]) -> bool:
        if self.config.event not in (event, "*"):
            return False
        return all(params.get(name) == value for name, value in self.config.params.items())

    def could_match(self, event: str, direction: str) -> bool:
        """Whether some message of this method and direction could match."""
        is_that_way = self.config.params.get("direction", direction) == direction
        return is_that_way and self.config.concerns(event)

    def call(self, outer: Call) -> Call:
        """The company of what this hook does for `outer`. Raises `HookFailed` when it is too deep."""
        if len(outer.hooks) >= DEEPEST:
            raise HookFailed(f"hooks run inside one another more than {DEEPEST} deep")
        return Call(
            caller=outer.caller,
            thread=outer.thread,
            folder=outer.folder,
            agents=outer.agents,
            hooks=(*outer.hooks, self.id),
        )


class Matching:
    """The hooks of one owner: `mappings` in the order of the configuration, each target opened once."""

    def __init__(
        self, owner: str, mappings: Sequence[HookMapping], open_target: Callable[[HookTarget], Hook]
    ) -> None:
        self.owner = owner
        self._mapped = tuple(
            Mapped(
                f"{owner}|{mapping.key}",
                mapping,
                tuple(Target(open_target(target), target) for target in mapping.targets),
            )
            for mapping in mappings
        )

    def events(self, event: str, params: Mapping[str, str], call: Call) -> Iterator[Mapped]:
        """The mappings that match, but for those on whose behalf `call` is made: no hook triggers itself."""
        for mapped in self._mapped:
            if mapped.matches(event, params) and mapped.id not in call.hooks:
                yield mapped

    def all(self, call: Call) -> Iterator[Mapped]:
        """Every mapping, in order, but for those on whose behalf `call` is made."""
        return (mapped for mapped in self._mapped if mapped.id not in call.hooks)

    def could_match(self, event: str, direction: str) -> bool:
        return any(mapped.could_match(event, direction) for mapped in self._mapped)

    def hears_notifications(self) -> bool:
        """Whether some key could be meant for a notification of a server."""
        return any(
            mapped.config.event == "*" or mapped.config.event.startswith("notifications/")
            for mapped in self._mapped
            if mapped.config.params.get("direction", "request") == "request"
        )

    def has(self, *events: str) -> bool:
        """Whether something runs for one of these events."""
        return any(mapped.config.event in (*events, "*") for mapped in self._mapped)
