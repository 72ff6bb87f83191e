"""How a server that we start is confined, from its `sandbox` in the document."""

from __future__ import annotations

from nanobot.config.http_values import check_permitted
from nanobot.config.model import ImageSource, SandboxSettings
from nanobot.config.view import View

OFF = "off"

_OF_CONTAINERS = ("extraArgs", "sharedCache", "clientRoots")
_UNITS = {"m": 1 << 20, "g": 1 << 30}


def build_sandbox(server: View) -> SandboxSettings | None:
    """The settings; None if the document says `sandbox: off`.

    A server that a document from elsewhere declares has the filtered network unless its `sandbox` says more.
    """
    written = server.value("sandbox")
    if isinstance(written, str):
        if written == OFF:
            return None
        server.place.key("sandbox").error(
            "bad-value",
            server.origin("sandbox"),
            "A `sandbox` is `off` or a section.",
            "the section may be {}",
        )
    sandbox = server.under("sandbox")
    memory: str = sandbox.text("memory")
    check_permitted(sandbox, "allowHosts")
    return SandboxSettings(
        network=sandbox.value("network", "proxy" if _is_remote(server.at.source) else "host"),
        allow_hosts=sandbox.names("allowHosts"),
        writable=sandbox.names("writable"),
        readable=sandbox.names("readable"),
        memory_bytes=int(memory[:-1]) * _UNITS[memory[-1].lower()] if memory else None,
        cpus=sandbox.value("cpus"),
        pids=sandbox.value("pids"),
        shared_cache=sandbox.value("sharedCache", False),
        client_roots=sandbox.value("clientRoots", False),
        extra_args=sandbox.names("extraArgs"),
    )


def build_source(server: View) -> ImageSource | None:
    if not server.has("source"):
        return None
    source = server.under("source")
    return ImageSource(
        repo=source.text("repo"),
        commit=source.text("commit"),
        tag=source.text("tag"),
        branch=source.text("branch"),
        reference=source.text("reference"),
        sub_path=source.text("subPath"),
    )


def in_container(server: View) -> bool:
    """Whether the server runs in a container: if it has an image of its own, unless it says otherwise."""
    if server.value("unsandboxed") or server.text("command") == "nanobot":
        return False
    return bool(server.value("sandboxed")) or any(
        server.has(key) for key in ("image", "dockerfile", "source")
    )


def check_container(name: str, server: View) -> None:
    """Report what does not go together."""
    if server.value("sandboxed") and server.value("unsandboxed"):
        server.place.key("unsandboxed").error(
            "bad-server-shape",
            server.origin("unsandboxed"),
            f"The server {name!r} is both `sandboxed` and `unsandboxed`.",
        )
    sandbox = server.under("sandbox")
    if in_container(server):
        if server.value("sandbox") == OFF or sandbox.value("network") == "proxy":
            server.place.key("sandbox").error(
                "bad-server-shape",
                server.origin("sandbox"),
                f"The server {name!r} runs in a container, whose network is `host` (the engine's bridge) or "
                "`none`; with `unsandboxed: true` it runs without one.",
            )
        if server.names("reversePorts") and sandbox.value("network") == "none":
            server.place.key("reversePorts").error(
                "bad-server-shape",
                server.origin("reversePorts"),
                f"The server {name!r} has no network, so that no port can be led to it.",
            )
        return
    for view, key in (*((sandbox, key) for key in _OF_CONTAINERS), (server, "reversePorts")):
        if view.has(key):
            view.place.key(key).error(
                "bad-server-shape", view.origin(key), f"`{key}` is for servers in a container."
            )


def _is_remote(source: str) -> bool:
    return "://" in source or source.startswith("git@")
