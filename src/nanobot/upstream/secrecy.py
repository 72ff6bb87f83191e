"""What must not be told of a server's words: a server may print, log or answer whatever it was sent.

`Secrecy` is the one place that knows: what the operator wrote down for a server, and what callers and tokens
were sent along lately. Everything that leaves for a log, a state or somebody's error passes it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from nanobot.config.redact import MASK
from nanobot.errors import UpstreamUnavailable
from nanobot.wire.client import ConnectionLost
from nanobot.wire.rpc import Payload, RpcError

SHORTEST_SECRET: Final = 6
"""A shorter value is left in messages: replacing each `1` or `debug` would only make them unreadable."""
MOST_RECENT: Final = 1000
FEW: Final = 32
"""So many secrets are looked for one after the other."""
MAX_CAUSES: Final = 10


class RecentSecrets:
    """What was sent to servers on behalf of callers, the latest `most` of it; shared by a whole program.

    One server's connection may repeat what another was sent, so they are all kept in one place.
    """

    def __init__(self, most: int = MOST_RECENT) -> None:
        self._most = most
        self._known: OrderedDict[str, Sequence[str]] = OrderedDict()
        self._by_end: dict[str, set[str]] = {}

    def remember(self, *secrets: str) -> None:
        """Take note of values before they are sent; what follows the scheme of a header counts by itself."""
        for secret in secrets:
            for value in (secret, secret.rpartition(" ")[2]):
                if value in self._known:
                    self._known.move_to_end(value)
                elif len(value) >= SHORTEST_SECRET:
                    self._known[value] = _spellings(value)
                    for spelling in self._known[value]:
                        self._by_end.setdefault(_end(spelling), set()).add(spelling)
        while len(self._known) > self._most:
            _, spellings = self._known.popitem(last=False)
            for spelling in spellings:
                self._by_end[_end(spelling)].discard(spelling)
                if not self._by_end[_end(spelling)]:
                    del self._by_end[_end(spelling)]

    def found_in(self, text: str) -> list[str]:
        """Those that stand in `text`, as they are spelled there."""
        ends = self._by_end.keys()
        if len(ends) > FEW:  # one walk through the text, however many there are
            ends &= {text[at : at + SHORTEST_SECRET] for at in range(len(text) - SHORTEST_SECRET + 1)}
        return [one for end in ends for one in self._by_end[end] if one in text]

    @property
    def is_empty(self) -> bool:
        return not self._known


class Secrecy:
    """Hides in what one server says what is `recent`, and `own`, the secrets of its definition.

    Satisfies `wire.client.Discretion`.
    """

    def __init__(self, recent: RecentSecrets, own: Iterable[str] = ()) -> None:
        self._recent = recent
        self._own: Sequence[str] = ()
        self.keep(own)

    def keep(self, own: Iterable[str]) -> None:
        """Hide these for good, instead of earlier ones."""
        self._own = [one for secret in own for one in _spellings(secret)]

    def hide(self, text: str) -> str:
        """`text` with each secret replaced by `***`, the longest first, so that no piece of one remains."""
        found = [secret for secret in self._own if secret in text] + self._recent.found_in(text)
        for secret in sorted(found, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def hide_in_json(self, payload: Payload) -> Payload:
        """`payload` with secrets hidden in its texts and names; itself where there are none."""
        if not self._own and self._recent.is_empty:
            return payload
        raw = payload.raw.decode("utf-8", "replace")
        if "\\" not in raw and self.hide(raw) == raw:
            return payload
        try:
            hidden = self._hidden(payload.value)
        except (RpcError, RecursionError):
            return Payload.of(self.hide(raw))
        return payload if hidden == payload.value else Payload.of(hidden)

    def hide_in(self, error: BaseException) -> None:
        """Hide what stands in the texts of `error` and of what caused it."""
        one: BaseException | None = error
        for _ in range(MAX_CAUSES):
            if one is None:
                return
            one.args = tuple(self.hide(arg) if isinstance(arg, str) else arg for arg in one.args)
            if isinstance(one, RpcError):
                one.message = self.hide(one.message)
                one.data = None if one.data is None else self.hide_in_json(one.data)
            elif isinstance(one, ConnectionLost | UpstreamUnavailable):
                one.reason = self.hide(one.reason)
            one = one.__cause__ or one.__context__

    def _hidden(self, value: Any) -> Any:
        match value:
            case str():
                return self.hide(value)
            case list():
                return [self._hidden(item) for item in cast("list[Any]", value)]
            case dict():
                members = cast("dict[str, Any]", value)
                return {self.hide(name): self._hidden(item) for name, item in members.items()}
            case _:
                return value


def _end(spelling: str) -> str:
    """What tells secrets apart: tokens of one issuer begin alike."""
    return spelling[-SHORTEST_SECRET:]


def _spellings(secret: str) -> Sequence[str]:
    """How a secret is written in plain text, in JSON and in a URL."""
    if len(secret) < SHORTEST_SECRET:
        return ()
    in_json = json.dumps(secret, ensure_ascii=False)[1:-1]
    return tuple(dict.fromkeys((secret, in_json, quote(secret), quote(secret, safe=""))))
