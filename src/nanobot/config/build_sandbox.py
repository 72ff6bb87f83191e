"""How a server that we start is confined, from its `sandbox` in the document."""

from __future__ import annotations

from nanobot.config.model import SandboxSettings
from nanobot.config.view import View

OFF = "off"

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
    return SandboxSettings(
        network=sandbox.value("network", "proxy" if _is_remote(server.at.source) else "host"),
        allow_hosts=sandbox.names("allowHosts"),
        writable=sandbox.names("writable"),
        readable=sandbox.names("readable"),
        memory_bytes=int(memory[:-1]) * _UNITS[memory[-1].lower()] if memory else None,
        cpus=sandbox.value("cpus"),
        pids=sandbox.value("pids"),
    )


def _is_remote(source: str) -> bool:
    return "://" in source or source.startswith("git@")
