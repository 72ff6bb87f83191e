"""MCP Apps: tools that come with a user interface, as far as their definitions and their callers tell."""

from __future__ import annotations

from typing import cast

from nanobot.narrow import object_of
from nanobot.wire.call import Caller
from nanobot.wire.extensions import APPS
from nanobot.wire.rpc import Payload, RpcError


def is_for_models(definition: Payload) -> bool:
    """Whether a tool is meant for models: an app may keep some for its own user interface."""
    if b'"visibility"' not in definition.raw:  # nearly all: not worth decoding
        return True
    try:
        meta = object_of(definition.object().get("_meta"))
    except RpcError:
        return True
    visibility = object_of(meta.get("ui")).get("visibility")
    return not isinstance(visibility, list) or "model" in cast("list[object]", visibility)


def shows_apps(caller: Caller) -> bool:
    """Whether a client declared that it can show apps."""
    return APPS in object_of(caller.capabilities.get("extensions"))
