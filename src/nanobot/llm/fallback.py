"""Another model when one fails: a model around several, with a breaker for each."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from nanobot.llm.model import Emit, ErrorKind, Model, ModelRequest, ModelResponse, ProviderError

log = logging.getLogger(__name__)

FAILURES: Final = 3
"""Failures in a row that open a breaker."""
OPEN_S: Final = 60.0
OPEN_LONG_S: Final = 600.0
"""For a key that is refused or an account without credit: that does not pass in a minute."""

_WORTH_ANOTHER: Final = frozenset[ErrorKind](
    {"timeout", "connection", "rate_limit", "server", "billing", "authentication", "not_found"}
)


class Breaker:
    """Whether a model is worth asking. Shared by all its users; after a pause one of them may try it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._probing = False

    def admits(self) -> bool:
        """True if the model may be asked now. An open breaker admits one probe when its time is over."""
        if self._failures < FAILURES:
            return True
        if self._probing or self._clock() < self._open_until:
            return False
        self._probing = True
        return True

    def rest_s(self) -> float:
        """Seconds until it may be asked again."""
        return max(0.0, self._open_until - self._clock())

    def succeeded(self) -> None:
        self._failures = 0
        self._probing = False

    def failed(self, kind: ErrorKind) -> None:
        self._failures += 1
        self._probing = False
        if self._failures >= FAILURES:
            rest = OPEN_LONG_S if kind in ("billing", "authentication") else OPEN_S
            self._open_until = self._clock() + rest

    def released(self) -> None:
        """The attempt says nothing about the model: it was cancelled, or the request itself was wrong."""
        self._probing = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that may answer, under the provider's own `name` for it."""

    model: Model
    name: str
    label: str
    """`provider/model`, for the log."""
    breaker: Breaker


class FallbackModel:
    """The first of `candidates` that can answer. Once text was shown, its failure is the failure."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates

    async def respond(self, request: ModelRequest, emit: Emit) -> ModelResponse:
        failure: ProviderError | None = None
        for candidate in self._candidates:
            if not candidate.breaker.admits():
                continue
            try:
                response = await candidate.model.respond(replace(request, model=candidate.name), emit)
            except ProviderError as error:
                if error.kind not in _WORTH_ANOTHER:
                    candidate.breaker.released()
                    raise
                candidate.breaker.failed(error.kind)
                if error.shown:
                    raise
                log.warning("model failed", extra={"model": candidate.label, "kind": error.kind})
                failure = error
            except BaseException:
                candidate.breaker.released()
                raise
            else:
                candidate.breaker.succeeded()
                return response
        raise failure or self._all_resting()

    def _all_resting(self) -> ProviderError:
        rest = min(c.breaker.rest_s() for c in self._candidates)
        names = ", ".join(c.label for c in self._candidates)
        return ProviderError(
            "server", f"All models failed repeatedly and rest for {rest:.0f} s: {names}.", retry_after=rest
        )
