"""`nanobot proxy`: the inner end of a reverse port, run beside a server in a container."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from nanobot.errors import UsageError

if TYPE_CHECKING:
    from nanobot.upstream.certificates import Certified

_HELP = "LISTEN_PORT, TARGET_HOST, TARGET_PORT, CA_CERT, CLIENT_CERT, CLIENT_KEY"


@click.command(epilog=f"Variables: {_HELP}. The last three are PEM text, or the files that hold it.")
def command() -> None:
    """Lead a local port through TLS to another machine.

    nanobot starts this by itself beside servers with `reversePorts`. Everything is read from the environment.
    Prints `ready` once connections are accepted, and ends with a signal.
    """
    import anyio

    anyio.run(_run, os.environ)


async def _run(env: Mapping[str, str]) -> None:
    import signal

    import anyio

    from nanobot.aio import task_group
    from nanobot.upstream.tunnel import READY, run_entrance

    port, target, certified = _read(env)

    async def work() -> None:
        try:
            await run_entrance(port, target, certified, lambda: click.echo(READY))
        except OSError as e:
            raise UsageError(f"Port {port} cannot be listened at: {e.strerror or e}.") from e

    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with task_group() as group:
            group.start_soon(work)
            async for _ in signals:
                group.cancel_scope.cancel()
                return


def _read(env: Mapping[str, str]) -> tuple[int, tuple[str, int], Certified]:
    from nanobot.upstream.certificates import Certified

    pem = (_pem(env, name) for name in ("CA_CERT", "CLIENT_CERT", "CLIENT_KEY"))
    target = (_value(env, "TARGET_HOST"), _port(env, "TARGET_PORT"))
    return _port(env, "LISTEN_PORT"), target, Certified(*pem)


def _value(env: Mapping[str, str], name: str) -> str:
    if not (value := env.get(name, "")):
        raise UsageError(f"{name} is not set; `nanobot proxy` needs {_HELP}.")
    return value


def _port(env: Mapping[str, str], name: str) -> int:
    text = _value(env, name)
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise UsageError(f"{name} must be a port, a number from 1 to 65535, not {text!r}.")
    return int(text)


def _pem(env: Mapping[str, str], name: str) -> str:
    value = _value(env, name)
    if "-----BEGIN" in value:
        return value
    try:
        with open(value, encoding="ascii") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{name} is neither PEM text nor a file that can be read.") from e
