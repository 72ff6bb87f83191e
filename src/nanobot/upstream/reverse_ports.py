"""Reverse ports: services of this machine that a server in a container reaches at its own `localhost`.

For each port there is an exit here, at the address by which the container's network knows this machine, and
beside the server a second container in the same network namespace with the entrance (`nanobot proxy`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskStatus

from nanobot.aio import task_group
from nanobot.upstream.certificates import Certified, certify
from nanobot.upstream.container import INSTANCE_LABEL, Engine, user_words
from nanobot.upstream.image import run_to_end
from nanobot.upstream.process import Child, Command, StartFailed, open_process
from nanobot.upstream.tunnel import READY, open_exit
from nanobot.wire.client import ConnectionLost

POLL_S: Final = 0.2
START_S: Final = 60.0
PIDS: Final = 64
MEMORY_BYTES: Final = 256 << 20

_FACTS: Final = "{{.State.Running}} {{range .NetworkSettings.Networks}}{{.Gateway}} {{end}}"


@asynccontextmanager
async def open_reverse_ports(
    ports: Sequence[int],
    child: Child,
    *,
    server: str,
    container: str,
    engine: Engine,
    image: str,
    instance: str,
) -> AsyncGenerator[None]:
    """`ports` of this machine lead into `container`, which `child` runs, for the length of the block.

    `image` holds nanobot. Raises `StartFailed` if that cannot be done, also because the server ended; and
    `ConnectionLost` in the block when one of the ways ends.
    """
    async with task_group() as group:
        async with task_group() as starting:
            starting.start_soon(_fail_with, child)
            with anyio.move_on_after(START_S) as patience:
                gateway = await _gateway(engine, server, container)
                certified, client = certify(gateway)
                for port in ports:
                    way = _Way(engine, server, container, image, instance, port)
                    await group.start(way.run, gateway, certified, client)
            if patience.cancelled_caught:
                raise StartFailed(f"the ways to its reversePorts did not open within {START_S:g} s")
            starting.cancel_scope.cancel()
        yield
        group.cancel_scope.cancel()


async def _fail_with(child: Child) -> None:
    raise StartFailed(await child.ended())


async def _gateway(engine: Engine, server: str, container: str) -> str:
    """How this machine is called in the network of `container`, once that runs."""
    while True:
        ask = engine.command(server, "container", "inspect", "--format", _FACTS, container)
        status, out, _ = await run_to_end(ask)
        facts = out.split()
        if status == 0 and facts and facts[0] == "true":
            if len(facts) == 1:
                raise StartFailed("its container has no network of its own, which reversePorts need")
            return facts[1]
        await anyio.sleep(POLL_S)  # only the engine could tell, and it has no way of telling once


class _Way:
    """The way to one port: the exit here, and the container with the entrance."""

    def __init__(
        self, engine: Engine, server: str, container: str, image: str, instance: str, port: int
    ) -> None:
        self._engine = engine
        self._server = server
        self._container = container
        self._image = image
        self._instance = instance
        self._port = port

    async def run(
        self,
        gateway: str,
        certified: Certified,
        client: Certified,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep it open until cancelled; started once it can be used."""
        try:
            async with open_exit(gateway, self._port, certified) as target:
                command = self._sidecar(
                    {**_variables(client), "TARGET_HOST": gateway, "TARGET_PORT": str(target)}
                )
                async with open_process(command) as child:
                    if await _first_line(child) != READY:
                        raise StartFailed(f"the way to port {self._port} is closed: {await child.explain()}")
                    task_status.started()
                    await child.drain_stdout()
                    reason = f"the way to port {self._port} ended: {await child.explain()}"
                    raise ConnectionLost(reason, maybe_sent=True)
        except OSError as e:
            raise StartFailed(
                f"reversePorts cannot be led from {gateway}, by which its network knows this machine: "
                f"{e.strerror or e}"
            ) from e

    def _sidecar(self, variables: dict[str, str]) -> Command:
        variables["LISTEN_PORT"] = str(self._port)
        name = f"{self._container}-{self._port}"
        words = ["run", "-i", "--rm", "--init", "--name", name]
        words += ["--label", f"{INSTANCE_LABEL}={self._instance}"]
        words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"]
        words += ["--pids-limit", str(PIDS), "--memory", str(MEMORY_BYTES)]
        words += ["--network", f"container:{self._container}", *user_words(self._engine)]
        for variable in sorted(variables):
            words += ["-e", variable]
        words += ["--entrypoint", "nanobot", "--", self._image, "proxy"]
        command = self._engine.command(self._server, *words)
        return replace(
            command,
            env={**command.env, **variables},
            secrets=[variables["CLIENT_KEY"]],
            afterwards=(self._engine.program, "rm", "-f", name),
        )


def _variables(client: Certified) -> dict[str, str]:
    return {"CA_CERT": client.authority, "CLIENT_CERT": client.certificate, "CLIENT_KEY": client.key}


async def _first_line(child: Child) -> str:
    try:
        return (await child.receive()).decode("utf-8", "replace").strip()
    except anyio.EndOfStream:
        return ""
