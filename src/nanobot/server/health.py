"""Whether this installation can do its work: the database, what is published, the servers behind it.

A check looks at what is known and has the rest found out in the background; it never waits for a server, so
an unhealthy one cannot make the check itself time out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from nanobot.agent.engine import Engine
from nanobot.config.model import Config
from nanobot.errors import NanobotError, UsageError
from nanobot.hub.published import Offer
from nanobot.server.exchange import Exchange
from nanobot.upstream.state import UpstreamState

HEALTH_PATH: Final = "/healthz"
"""Where health is always told; a second path may be added."""

Health = Literal["ok", "starting", "failing"]
_STATUS_CODES: Final[Mapping[Health, int]] = {"ok": 200, "starting": 503, "failing": 503}
_LEGACY_CODES: Final[Mapping[Health, int]] = {"ok": 200, "starting": 425, "failing": 500}
_LEGACY_HEADERS: Final = ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store"))
_TAKEN: Final = ("mcp", "api", "v1", "assets", "ws", "metrics", "browser")


class Offering(Protocol):
    """What is published, as far as it is known. `warm` has the rest listed in the background."""

    def warm(self) -> None: ...

    def offer(self) -> Offer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`reason` is one sentence, empty when all is well. `checks` is what the answer shows."""

    health: Health
    reason: str
    checks: Mapping[str, object]


class HealthCheck:
    """Comes to a verdict, and tells it at the health paths."""

    def __init__(
        self,
        engine: Engine,
        config: Config,
        *,
        servers: Callable[[], Iterable[UpstreamState]],
        offering: Offering,
    ) -> None:
        self._engine = engine
        self._config = config
        self._servers = servers
        self._offering = offering
        self._is_legacy = _is_on(config.env.get("NANOBOT_HEALTHZ_LEGACY_STATUS"))
        self._is_off = _is_on(config.env.get("NANOBOT_DISABLE_HEALTH_CHECKER"))

    async def show(self, http: Exchange) -> None:
        """`GET /healthz`: 200 or 503 with what was checked; `?live=1` asks for the process alone."""
        if self._is_off or http.query.get("live") in ("1", "true"):
            verdict = Verdict(health="ok", reason="", checks={})
        else:
            verdict = await self.verdict()
        if self._is_legacy:
            text = "waiting for startup" if verdict.health == "starting" else verdict.reason
            await http.answer(_LEGACY_CODES[verdict.health], _LEGACY_HEADERS, text.encode())
            return
        body = {"status": verdict.health, "checks": verdict.checks}
        await http.answer_json(body, status=_STATUS_CODES[verdict.health])

    async def verdict(self) -> Verdict:
        """Failing: no database, nothing of what is published is there, or every published server failed."""
        self._offering.warm()
        database = await self._database()
        states = list(self._servers())  # nothing is awaited from here on: the checks are of one moment
        offer = self._offering.offer()
        catalogue, catalogue_reason = self._judge_offer(offer)
        servers, servers_reason = self._judge_servers(states)
        checks = {
            "database": database or "ok",
            "config": "ok",
            "catalog": catalogue_reason or catalogue,
            "servers": {state.name: _brief(state) for state in states},
        }
        if database:
            return Verdict(health="failing", reason=database, checks=checks)
        for health in ("failing", "starting"):
            for one, reason in ((servers, servers_reason), (catalogue, catalogue_reason)):
                if one == health:
                    return Verdict(health=health, reason=reason, checks=checks)
        return Verdict(health="ok", reason="", checks=checks)

    async def _database(self) -> str:
        """What is wrong with it; "" if nothing is."""
        try:
            await self._engine.threads(limit=1)
        except NanobotError as e:
            return str(e)
        return ""

    def _judge_offer(self, offer: Offer) -> tuple[Health, str]:
        if offer.things or not offer.is_asked:
            return "ok", ""
        if offer.wants_login and self._config.auth.is_on:
            return "ok", ""  # each account logs in for itself, and the check has none
        if offer.is_pending:
            return "starting", "Nothing of what is published has been listed yet."
        reasons = " ".join(offer.reasons)
        return "failing", "Nothing of what is published is available." + (f" {reasons}" if reasons else "")

    def _judge_servers(self, states: Sequence[UpstreamState]) -> tuple[Health, str]:
        """One that works is enough; an agent that can be talked to is enough too."""
        publish = self._config.publish
        published = {
            r.server
            for refs in (publish.mcp_servers, publish.tools, publish.prompts, publish.resources)
            for r in refs
        }
        asked = [state for state in states if state.name in published]
        if publish.entrypoint or not asked or any(s.state not in ("backoff", "failed") for s in asked):
            return "ok", ""
        reasons = "; ".join(f"{s.name}: {s.last_error or s.state}" for s in asked)
        return "failing", f"Every published server failed: {reasons}"


def health_path(text: str) -> str:
    """A path as a person writes it, with or without the slash in front. Raises `UsageError`."""
    path = "/" + text.strip().strip("/")
    if path == "/" or "?" in path or "#" in path or any(c.isspace() for c in path):
        raise UsageError(f"{text!r} is no path for health; write for example {HEALTH_PATH}.")
    if path.split("/")[1] in _TAKEN:
        raise UsageError(f"{text!r} cannot be the path for health: other things are served below it.")
    return path


def _brief(state: UpstreamState) -> str:
    return f"{state.state}: {state.last_error}" if state.last_error else state.state


def _is_on(text: str | None) -> bool:
    return (text or "").strip().lower() in ("1", "true", "yes", "on")
