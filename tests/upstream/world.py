"""Upstreams of real servers, running for the length of a block."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio

from nanobot.aio import task_group
from nanobot.config.model import McpServer, SessionSettings
from nanobot.http import open_http
from nanobot.upstream.connection import Upstream
from nanobot.upstream.launcher import Launcher
from nanobot.upstream.pauses import BACKOFF_S
from nanobot.upstream.pools import Pools
from nanobot.upstream.sandbox import find_sandbox
from nanobot.wire.call import Call
from nanobot.wire.continuation import Continuation
from nanobot.wire.rpc import Payload
from nanobot.wire.versions import Era

SANDBOX = find_sandbox()
PEERS = Path(__file__).parent.parent / "peers"
ENV = {"PATH": os.environ["PATH"], "HOME": "/home/of-tests", "USER": "tester", "STRANGER": "not for children"}


def bad(mode: str, *more: str, **settings: Any) -> McpServer:
    """The misbehaving stdio server in one of its modes."""
    args = (str(PEERS / "bad_server.py"), mode, *more)
    return McpServer(name="bad", command=sys.executable, args=args, **settings)


def oracle(**settings: Any) -> McpServer:
    """The official SDK's server on stdio."""
    args = (str(PEERS / "sdk_server.py"), "stdio")
    return McpServer(name="oracle", command=sys.executable, args=args, **settings)


def probe(name: str = "probe", **settings: Any) -> McpServer:
    """A process that runs Python for its clients, not confined."""
    args = (str(PEERS / "probe_server.py"),)
    return McpServer(name=name, command=sys.executable, args=args, sandbox=None, **settings)


@contextmanager
def oracle_over_http(*options: str) -> Generator[str]:
    """The official SDK's server as a process that serves HTTP; its address."""
    with subprocess.Popen(
        [sys.executable, str(PEERS / "sdk_server.py"), "http", *options], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@asynccontextmanager
async def running(
    server: McpServer,
    *,
    env: dict[str, str] | None = None,
    backoff_s: Sequence[float] = BACKOFF_S,
    home: Path | None = None,
) -> AsyncGenerator[Upstream]:
    """`server` as an installation with the directory `home` uses it; confined where this machine can."""
    async with open_http() as http, task_group() as group:
        with tempfile.TemporaryDirectory() as temporary:
            upstream = Upstream(
                server,
                http=http,
                env=ENV | (env or {}),
                version="1.2.3",
                launcher=Launcher(sandbox=SANDBOX, home=home or Path(temporary)),
                backoff_s=backoff_s,
            )
            await group.start(upstream.run)
            yield upstream
            group.cancel_scope.cancel()


@asynccontextmanager
async def pooled(
    *servers: McpServer,
    env: dict[str, str] | None = None,
    home: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncGenerator[Pools]:
    """`servers` as an installation uses them, each with its connections. `env` is added to that of tests;
    connections age by `clock`, and whoever gives one calls `sweep` as well."""
    async with open_http() as http, task_group() as group:
        with tempfile.TemporaryDirectory() as temporary:
            launcher = Launcher(sandbox=SANDBOX, home=home or Path(temporary))

            def connect(
                server: McpServer,
                account: str,
                last_era: Era | None,
                continuation: Continuation | None,
                with_apps: bool,
            ) -> Upstream:
                return Upstream(
                    server,
                    http=http,
                    env=ENV | (env or {}),
                    version="1.2.3",
                    account=account,
                    last_era=last_era,
                    continuation=continuation,
                    launcher=launcher,
                    shows_apps=with_apps,
                )

            pools = Pools(servers, connect, sessions=SessionSettings(), clock=clock)
            await group.start(pools.run)
            yield pools
            group.cancel_scope.cancel()


async def until(true: Callable[[], object], *, within_s: float = 30) -> None:
    """Wait for something that only another process can bring about."""
    with anyio.fail_after(within_s):
        while not true():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def use(upstream: Upstream, tool: str, call: Call | None = None, **arguments: Any) -> dict[str, Any]:
    """The result of a tool call."""
    params = Payload.of({"name": tool, "arguments": arguments})
    return (await upstream.request("tools/call", params, call or Call())).object()


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]
