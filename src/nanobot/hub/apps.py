"""MCP Apps: tools that come with a user interface, as far as their definitions tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from nanobot.narrow import object_of
from nanobot.wire.rpc import Payload, RpcError

SCHEME: Final = "ui://"


def is_for_models(definition: Payload) -> bool:
    """Whether a tool is meant for models: an app may keep some for its own user interface."""
    return _is_visible_to("model", definition)


def is_for_apps(definition: Payload) -> bool:
    """Whether the user interfaces of its server may call a tool."""
    return _is_visible_to("app", definition)


def app_of(definition: Payload) -> str:
    """The URI of the user interface that a tool comes with; "" if it names none.

    What it names may be something else than such an interface: those have URIs that begin with `SCHEME`.
    """
    if b'esourceUri"' not in definition.raw:  # nearly all: not worth decoding
        return ""
    meta = _meta(definition)
    uri = object_of(meta.get("ui")).get("resourceUri") or meta.get("ui/resourceUri")
    return uri if isinstance(uri, str) else ""


def _is_visible_to(whom: str, definition: Payload) -> bool:
    if b'"visibility"' not in definition.raw:
        return True
    visibility = object_of(_meta(definition).get("ui")).get("visibility")
    return not isinstance(visibility, list) or whom in cast("list[object]", visibility)


def _meta(definition: Payload) -> Mapping[str, Any]:
    try:
        return object_of(definition.object().get("_meta"))
    except RpcError:
        return {}
