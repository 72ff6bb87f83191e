"""MCP Apps: tools that come with a user interface, as far as their definitions and their callers tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from nanobot.wire.call import Caller
from nanobot.wire.extensions import APPS
from nanobot.wire.rpc import Payload, RpcError


def is_for_models(definition: Payload) -> bool:
    """Whether a tool is meant for models: an app may keep some for its own user interface."""
    if b'"visibility"' not in definition.raw:  # nearly all: not worth decoding
        return True
    try:
        meta = _mapping(definition.object().get("_meta"))
    except RpcError:
        return True
    visibility = _mapping(meta.get("ui")).get("visibility")
    return not isinstance(visibility, list) or "model" in cast("list[object]", visibility)


def shows_apps(caller: Caller) -> bool:
    """Whether a client declared that it can show apps."""
    return APPS in _mapping(caller.capabilities.get("extensions"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
