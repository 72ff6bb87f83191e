"""Publishing one server and nothing else: clients see that server, not a collection with one member."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from nanobot.config.model import Config
from nanobot.narrow import object_of
from nanobot.wire.call import Caller
from nanobot.wire.client import Connected
from nanobot.wire.service import Description


@runtime_checkable
class Introduced(Protocol):
    """A source that is reached over a connection, and so can be asked who it is."""

    async def ready(self, caller: Caller) -> Connected:
        """What the server says of itself to `caller`'s account. Raises `UpstreamUnavailable`."""
        ...


def lone_server(config: Config) -> str | None:
    """The server that `publish` consists of; None if it names anything else as well."""
    publish = config.publish
    singles = publish.tools + publish.prompts + publish.resources + publish.resource_templates
    if len(publish.mcp_servers) != 1 or publish.entrypoint or singles or publish.instructions:
        return None
    reference = publish.mcp_servers[0]
    return reference.server if reference.tool is None and reference.alias is None else None


def introduce(ours: Description, server: Connected) -> Description:
    """What the server says of itself, as far as we can keep its promises."""
    theirs = server.capabilities
    capabilities: dict[str, Any] = {
        name: _shared(name, capability, theirs.get(name))
        for name, capability in ours.capabilities.items()
        if name in theirs or name == "experimental"
    }
    known: Mapping[str, Any] = capabilities.pop("extensions", {})
    extensions: Mapping[str, Any] = object_of(theirs.get("extensions"))
    if shared := {name: extensions[name] for name in known if name in extensions}:
        capabilities["extensions"] = shared
    experimental = theirs.get("experimental")
    if isinstance(experimental, Mapping):
        capabilities["experimental"] = {**experimental, **capabilities.get("experimental", {})}
    return Description(
        server_info=server.server_info, capabilities=capabilities, instructions=server.instructions
    )


def _shared(name: str, ours: Any, theirs: Any) -> Any:
    """`ours`, without subscriptions to resources if the server has none."""
    if name == "resources" and not object_of(theirs).get("subscribe"):
        return {key: value for key, value in ours.items() if key != "subscribe"}
    return ours
