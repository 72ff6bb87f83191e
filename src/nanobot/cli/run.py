"""`nanobot run`: serve everything the configuration publishes."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nanobot.cli.audit_options import audit_options
from nanobot.cli.auth_options import auth_options
from nanobot.cli.main import EXIT_FAILURE
from nanobot.cli.options import ConfigChoice, config_options
from nanobot.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nanobot.config.model import Config
    from nanobot.hub.audit.log import AuditSettings
    from nanobot.upstream.roots import Root

log = logging.getLogger(__name__)

DEFAULT_ADDRESS = "localhost:8080"


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-a", "--listen-address", default=DEFAULT_ADDRESS, show_default=True, metavar="HOST:PORT",
    help="Where to listen; `stdio` speaks MCP on standard input and output.",
)  # fmt: skip
@click.option("--disable-ui", is_flag=True, help="Serve no web page, only the protocols.")
@click.option(
    "--force-fetch-tool-list", is_flag=True,
    help="Ask servers for their tools again before each call of one; for those that tell of no changes.",
)  # fmt: skip
@click.option("--healthz-path", metavar="PATH", help="Tell health at this path too, beside /healthz.")
@click.option("--metrics", is_flag=True, help="Tell numbers for Prometheus at /metrics.")
@click.option(
    "--legacy-sse", is_flag=True, help="Serve MCP clients of 2024 at /sse too (the HTTP+SSE transport)."
)
@click.option(
    "-r", "--roots", multiple=True, metavar="[NAME:]DIRECTORY[:rw]",
    help="Show MCP servers this directory as a root, beside those of the client; may be repeated.",
)  # fmt: skip
@auth_options
@audit_options
@config_options
def command(
    choice: ConfigChoice,
    paths: tuple[str, ...],
    listen_address: str,
    disable_ui: bool,
    force_fetch_tool_list: bool,
    healthz_path: str | None,
    metrics: bool,
    legacy_sse: bool,
    roots: tuple[str, ...],
    audit: AuditSettings | None,
    auth: Mapping[str, str],
) -> int:
    """Serve agents and tools over HTTP or stdio.

    PATH is a configuration file or directory; anything else that --config takes is taken too.
    """
    from dataclasses import replace

    import anyio

    from nanobot import logs
    from nanobot.config.redact import redact
    from nanobot.hub.roots import read_roots

    logs.set_up(level="DEBUG" if choice.debug else "INFO")
    if paths and choice.sources:
        raise UsageError("Give the configuration either as PATH or with --config, not both.")
    overrides = {"auth": auth} if auth else {}
    sources = tuple(map(as_source, paths)) or choice.sources
    config = replace(choice, sources=sources, overrides=overrides).load()
    log.info("configuration", extra={"document": redact(config.document)})
    shown = read_roots(roots, Path.cwd())
    if listen_address == "stdio":
        if audit is not None:
            raise UsageError("The audit log is about HTTP; there is none on standard input and output.")
        anyio.run(_over_stdio, config, shown, force_fetch_tool_list)
        return 0
    host, port = parse_address(listen_address)
    from nanobot.server.health import HEALTH_PATH, health_path

    path = health_path(healthz_path) if healthz_path else HEALTH_PATH
    serving = functools.partial(
        _over_http, config, host, port, not disable_ui, path, metrics, legacy_sse, shown, audit,
        force_fetch_tool_list,
    )  # fmt: skip
    is_finished = anyio.run(serving, backend_options={"use_uvloop": _has_uvloop()})
    return 0 if is_finished else EXIT_FAILURE


def as_source(path: str) -> str:
    """A PATH argument as a source: what exists here is a path, though --config might read a repository."""
    return f"./{path}" if path[0] not in "./~" and Path(path).exists() else path


def parse_address(address: str) -> tuple[str, int]:
    """`[http://]HOST:PORT` taken apart. Raises `UsageError` naming what is wrong."""
    if address.startswith("https://"):
        raise UsageError(f"{address!r}: nanobot serves plain HTTP; put a TLS proxy in front of it.")
    host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise UsageError(
            f"{address!r} is no address to listen on; write HOST:PORT, for example {DEFAULT_ADDRESS}."
        )
    return host.strip("[]") or "localhost", int(port)


async def _over_http(
    config: Config,
    host: str,
    port: int,
    ui: bool,
    health_path: str,
    metrics: bool,
    legacy_sse: bool,
    roots: Sequence[Root],
    audit: AuditSettings | None,
    lists_anew: bool,
) -> bool:
    from nanobot.app import open_app
    from nanobot.hub.audit.log import open_audit
    from nanobot.server.auth.assembly import is_protected
    from nanobot.server.listener import open_listener
    from nanobot.server.security import check_listen_address
    from nanobot.server.serve import serve_on

    check_listen_address(host, is_protected=is_protected(config))
    listener = open_listener(host, port)  # a busy port ends the program before anything is started
    async with (
        open_app(config, own_port=listener.port, roots=roots, lists_anew=lists_anew, shows_apps=ui) as app,
        open_audit(audit, app.http, config.home) as audit_log,
    ):
        app.check_models()
        app.publisher.warm()
        return await serve_on(
            listener,
            app,
            ui=ui,
            health_path=health_path,
            audit=audit_log,
            with_metrics=metrics,
            with_sse=legacy_sse,
            ready=_announce,
            invite=_invite,
        )


def _announce(url: str) -> None:
    click.echo(f"Starting server url={url}", err=True)


def _invite(link: str) -> None:
    click.echo(f"Open {link} (works once; later sign in with the secret in the launch-secret file)", err=True)


async def _over_stdio(config: Config, roots: Sequence[Root], lists_anew: bool) -> None:
    from nanobot.aio import task_group
    from nanobot.app import open_app
    from nanobot.wire.server_duplex import serve_duplex
    from nanobot.wire.stdio import own_stdio

    async with (
        own_stdio(config.server.max_message_bytes) as duplex,
        open_app(config, roots=roots, lists_anew=lists_anew) as app,
    ):
        app.check_models()
        async with task_group() as owner:
            await owner.start(duplex.finish_on_signals)
            await serve_duplex(duplex, app.service, settings=config.server, attendance=app.upstreams)
            owner.cancel_scope.cancel()


def _has_uvloop() -> bool:
    from importlib.util import find_spec

    return find_spec("uvloop") is not None
