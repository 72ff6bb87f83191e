"""The seam to a wire format: how a request is written and how an answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nanobot.llm.endpoint import Adaptations, Endpoint
from nanobot.llm.model import Emit, ModelRequest, ModelResponse


class Reading(Protocol):
    """One answer being read. Raises `ProviderError` where the provider reports one.

    `msgspec.DecodeError` means that a single event cannot be read.
    """

    done: bool
    """True after the event that ends an answer."""

    @property
    def shown(self) -> bool:
        """True once visible text was emitted."""
        ...

    def event(self, data: bytes) -> None:
        """The next event of a streamed answer."""
        ...

    def whole(self, body: bytes) -> None:
        """An answer that came as one JSON document although a stream was asked for."""
        ...

    def response(self) -> ModelResponse:
        """The complete answer. Raises `ProviderError` if it was cut off."""
        ...


class Dialect(Protocol):
    """A wire format. Holds no state."""

    path: str
    """Of the request, below the endpoint's base URL."""
    models_path: str
    """Of the list of models, likewise."""

    def headers(self, endpoint: Endpoint) -> Mapping[str, str]:
        """Headers of every request, credentials included."""
        ...

    def encode(self, request: ModelRequest, endpoint: Endpoint, learned: Adaptations) -> bytes:
        """The request body. Parts that did not change since the last request are taken from their caches."""
        ...

    def read(self, request: ModelRequest, endpoint: Endpoint, emit: Emit) -> Reading: ...
