"""Where a provider is reached, and how it differs from the dialect it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Where a provider departs from its dialect. All off: the dialect as its inventor documents it."""

    max_completion_tokens: bool = False
    """The output limit is called `max_completion_tokens` for every model."""
    replay_reasoning: bool = False
    """`reasoning_content` must be sent back with every assistant message, "" where there is none."""
    string_content: bool = False
    """`content` must be a string; media become notes."""
    short_call_ids: bool = False
    """Call ids must be exactly nine letters or digits."""
    prompt_cache: bool = False
    """The provider caches prompt prefixes on request."""
    thinking: Literal["", "thinking_type", "enable_thinking", "reasoning_split"] = ""
    """The switch that turns thinking on and off, instead of `reasoning_effort`."""
    tool_stream: bool = False
    """Argument text is streamed only when asked for."""


DOCUMENTED: Final = Quirks()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One provider at one address. The key is sent there and nowhere else.

    `base_url` has no trailing slash. `headers` come from the configuration and win over ours.
    """

    provider: str
    base_url: str
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    quirks: Quirks = DOCUMENTED

    def laid_over(self, headers: Mapping[str, str]) -> dict[str, str]:
        """`headers`, whose names are lower case, with the configured ones over them."""
        return {**headers, **{name.lower(): value for name, value in self.headers.items()}}

    def scope(self, model: str) -> str:
        """What opaque provider data is bound to (see `ProviderData`)."""
        return f"{self.provider}|{self.base_url}|{model}"


@dataclass(slots=True)
class Adaptations:
    """What one model of an endpoint was found to refuse. Kept for the life of the process."""

    refused: set[str] = field(default_factory=set[str])
    """Names of request fields that must not be sent again; `images` for a model without vision."""
    max_tokens: int | None = None
    """The largest output limit the model accepts, once it said so."""

    def limit(self, wanted: int | None) -> int | None:
        """`wanted`, or less if the model is known to accept only less."""
        if wanted is None or self.max_tokens is None:
            return wanted
        return min(wanted, self.max_tokens)
