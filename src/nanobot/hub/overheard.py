"""What clients and MCP servers say to each other, in the log. Composed only where somebody asked for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import msgspec

from nanobot.config.model import Config
from nanobot.errors import NanobotError
from nanobot.hub.around import Around
from nanobot.hub.audit.redaction import masked
from nanobot.logs import OVERHEARD
from nanobot.upstream.definition import secrets_of
from nanobot.upstream.secrecy import RecentSecrets, Secrecy
from nanobot.wire.call import NOBODY, Audience, Call, Caller
from nanobot.wire.notifications import PROGRESS
from nanobot.wire.rpc import Payload, RpcError
from nanobot.wire.service import Announced, Description, Service
from nanobot.wire.source import Entry, Kind, Source, Told

log = logging.getLogger(OVERHEARD)

VARIABLE: Final = "NANOBOT_DEBUG"
TOPICS: Final = ("messages", "progress", "ui")
MAX_BYTES: Final = 256 * 1024
"""Of a longer message only its length is told."""
MAX_SHOWN: Final = 16 * 1024
MAX_BASE64: Final = 60

_ON: Final = frozenset({"", "1", "true", "yes", "on", "0", "false", "no", "off"})
"""Words of `--debug`, which has the same variable."""
_BASE64: Final = re.compile(rf"([A-Za-z0-9+/_-]{{{MAX_BASE64}}})[A-Za-z0-9+/_-]+={{0,2}}")
_SECRET_VARIABLE: Final = re.compile(r"token|key|secret|passw|auth|credential|cookie", re.IGNORECASE)
_METHODS: Final[dict[Kind, str]] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
_encode = msgspec.json.Encoder().encode
_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What is to be told: MCP messages, news of progress, what the web chat is told, all of some servers."""

    messages: bool = False
    progress: bool = False
    ui: bool = False
    servers: frozenset[str] = frozenset()

    @staticmethod
    def of(text: str, known: Iterable[str]) -> Interest:
        """From `NANOBOT_DEBUG`: words between commas or blanks. One that says nothing is told in the log."""
        words = {word for word in re.split(r"[,\s]+", text) if word.lower() not in _ON}
        servers = words.difference(TOPICS)
        if unknown := servers.difference(known):
            names = ", ".join(sorted(unknown))
            log.warning("%s: no server and none of %s: %s", VARIABLE, ", ".join(TOPICS), names)
        topics = {topic: topic in words for topic in TOPICS}
        return Interest(**topics, servers=frozenset(servers))

    def wants(self, method: str, server: str = "") -> bool:
        if server in self.servers:
            return True
        return self.progress if method == PROGRESS else self.messages


class Shown:
    """Makes messages fit to be shown: without secrets, without long stretches of base64, and not too long."""

    def __init__(self, config: Config, recent: RecentSecrets) -> None:
        env = config.env
        known = {value for name, value in env.items() if _SECRET_VARIABLE.search(name)}
        for server in config.mcp_servers.values():
            known.update(secrets_of(server, env))
        self._recent = recent
        self._secrecy = Secrecy(recent, known)

    def keep_from(self, caller: Caller) -> None:
        """Show nothing of what the request of a caller brings along."""
        self._recent.remember(*caller.values.values())

    def __call__(self, raw: bytes) -> str:
        if len(raw) > MAX_BYTES:
            return f"({len(raw)} bytes)"
        try:
            text = _encode(masked(msgspec.json.decode(raw))).decode()
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            text = raw.decode("utf-8", "replace")
        text = _BASE64.sub(r"\1…", self._secrecy.hide(text))
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}… ({len(raw)} bytes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhearing:
    """What is to be told, and how it is made fit for that."""

    interest: Interest
    shown: Shown

    @staticmethod
    def of(config: Config, servers: Iterable[str], recent: RecentSecrets) -> Overhearing | None:
        """As the variable in `config` wants; None if nothing is to be told. `recent` is never told."""
        text = config.env.get(VARIABLE, "")
        interest = Interest.of(text, servers) if text else Interest()
        return None if interest == Interest() else Overhearing(interest=interest, shown=Shown(config, recent))

    def sources(self, sources: Mapping[str, Source]) -> dict[str, Source]:
        """`sources` by their names, those of interest being overheard."""
        interest = self.interest
        everything = interest.messages or interest.progress
        return {
            name: OverheardSource(source, self) if everything or name in interest.servers else source
            for name, source in sources.items()
        }

    def service(self, service: Service) -> Service:
        """`service`, its clients being overheard if that is of interest."""
        interest = self.interest
        return OverheardService(service, self) if interest.messages or interest.progress else service


@dataclass(frozen=True, slots=True)
class Ear:
    """Hears what is said with one party: a server by its name, or the clients ("")."""

    overhearing: Overhearing
    server: str = ""

    def note(self, way: str, method: str, said: bytes, number: int | None = None) -> None:
        if self.overhearing.interest.wants(method, self.server):
            party = {"server": self.server} if self.server else {}
            which = {} if number is None else {"number": number}
            extra = {**party, "method": method, **which, "said": self.overhearing.shown(said)}
            log.debug("%s %s", way, "server" if self.server else "client", extra=extra)

    async def request(
        self, method: str, params: Payload, call: Call, answer: Callable[[Call], Awaitable[Payload]]
    ) -> Payload:
        """What `answer` makes of a call on which we listen."""
        asked, answered = ("to", "from") if self.server else ("from", "to")
        number = next(_numbers)
        self.note(asked, method, params.raw, number)
        try:
            result = await answer(self._listening(call, number, answered))
        except RpcError as e:
            self.note(answered, method, _encode({"error": e.body()}), number)
            raise
        except NanobotError as e:
            self.note(answered, method, _encode({"error": str(e)}), number)
            raise
        self.note(answered, method, result.raw, number)
        return result

    def _listening(self, call: Call, number: int, way: str) -> Call:
        notify, ask = call.notify, call.ask
        back = "to" if way == "from" else "from"

        def notified(method: str, params: Payload) -> None:
            assert notify is not None
            self.note(way, method, params.raw, number)
            notify(method, params)

        async def asked(method: str, params: Payload) -> Payload:
            assert ask is not None
            self.note(way, method, params.raw, number)
            result = await ask(method, params)
            self.note(back, method, result.raw, number)
            return result

        return replace(call, notify=notify and notified, ask=ask and asked)


class OverheardSource(Around):
    """`inner`, what is said to the server and by it being told in the log."""

    def __init__(self, inner: Source, overhearing: Overhearing) -> None:
        super().__init__(inner)
        self._ear = Ear(overhearing, inner.name)
        self._hears = False

    async def listing(self, kind: Kind, caller: Caller = NOBODY) -> Sequence[Entry]:
        number, method = next(_numbers), _METHODS[kind]
        self._ear.note("to", method, b"{}", number)
        try:
            entries = await self._inner.listing(kind, caller)
        except NanobotError as e:
            self._ear.note("from", method, _encode({"error": str(e)}), number)
            raise
        self._ear.note("from", method, b"[" + b",".join(e.definition.raw for e in entries) + b"]", number)
        return entries

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        return await self._ear.request(
            method, params, call, lambda call: self._inner.request(method, params, call)
        )

    def hear(self, told: Told) -> Callable[[], None]:
        if not self._hears:  # once, however many listen
            self._hears = True
            self._inner.hear(self._note)
        return self._inner.hear(told)

    def _note(self, method: str, params: Payload, audience: Audience) -> None:
        self._ear.note("from", method, params.raw)


class OverheardService:
    """`inner`, what clients ask and are told being told in the log."""

    def __init__(self, inner: Service, overhearing: Overhearing) -> None:
        self._inner = inner
        self._ear = Ear(overhearing)

    async def describe(self, caller: Caller) -> Description:
        self._ear.overhearing.shown.keep_from(caller)
        self._ear.note(
            "from", "initialize", _encode({"clientInfo": caller.client, "version": caller.version})
        )
        return await self._inner.describe(caller)

    async def request(self, method: str, params: Payload, call: Call) -> Payload:
        self._ear.overhearing.shown.keep_from(call.caller)
        return await self._ear.request(
            method, params, call, lambda call: self._inner.request(method, params, call)
        )

    def watch(self, changed: Announced) -> Callable[[], None]:
        def announced(method: str, params: Payload, audience: Audience) -> None:
            self._ear.note("to", method, params.raw)
            changed(method, params, audience)

        return self._inner.watch(announced)
