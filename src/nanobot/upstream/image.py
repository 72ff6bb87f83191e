"""The image of a server in a container: named, or built from an inline Dockerfile and added source code."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio

from nanobot.config.model import ImageSource, McpServer
from nanobot.errors import ConfigError
from nanobot.upstream.container import INSTANCE_LABEL, Engine, is_dead
from nanobot.upstream.process import Command, StartFailed, open_process

log = logging.getLogger(__name__)

IMAGE_VARIABLE: Final = "NANOBOT_IMAGE"
BUILD_S: Final = 15 * 60.0
ASK_S: Final = 30.0

_GIT = ("https://", "http://", "git@", "ssh://")
_PLAIN = re.compile(r"[a-zA-Z0-9@:/._][a-zA-Z0-9@:/._-]*")


async def image_of(server: McpServer, env: Mapping[str, str], engine: Engine) -> str:
    """The image to run `server` from, built if need be (15 minutes at most).

    `check_image` has been called before. Raises `StartFailed` if the build fails.
    """
    image = server.image
    if server.dockerfile:
        text = server.dockerfile
        if f"${{{IMAGE_VARIABLE}}}" in text:
            text = text.replace(f"${{{IMAGE_VARIABLE}}}", env[IMAGE_VARIABLE])
        image = await _built(server, engine, text, is_settled=True)
    if server.source is None:
        return image or env[IMAGE_VARIABLE]
    return await _with_source(server, server.source, image or env[IMAGE_VARIABLE], engine)


def check_image(server: McpServer, env: Mapping[str, str]) -> None:
    """Raise `ConfigError` if `server` needs a default image and there is none that can be used."""
    needs_base = (not server.image and not server.dockerfile) or bool(server.reverse_ports)
    if not needs_base and f"${{{IMAGE_VARIABLE}}}" not in server.dockerfile:
        return
    if not (image := env.get(IMAGE_VARIABLE, "")):
        raise ConfigError(
            f"it runs in a container but says no image; set {IMAGE_VARIABLE} to the one to use by default, "
            "or write `image`"
            if not server.reverse_ports
            else f"its reversePorts need {IMAGE_VARIABLE}, an image with nanobot in it"
        )
    if not _PLAIN.fullmatch(image):
        raise ConfigError(f"{IMAGE_VARIABLE} is not the name of an image")


async def _with_source(server: McpServer, source: ImageSource, base: str, engine: Engine) -> str:
    steps = f"FROM {base}\nUSER {os.getuid()}:{os.getgid()}\nWORKDIR /mcp\n"
    if not source.repo.startswith(_GIT):
        folder = (server.base_dir.absolute() / source.repo / source.sub_path).resolve()
        if not folder.is_dir():
            raise StartFailed(f"its source {str(folder)!r} does not exist")
        return await _built(server, engine, steps + "COPY . /mcp\n", context=folder, is_settled=False)
    repo = _plain("source.repo", source.repo)
    named = source.commit or source.tag or source.branch or source.reference or "HEAD"
    ref = source.commit or await _commit(server, repo, _plain("source", named), engine)
    path = f":{_plain('source.subPath', source.sub_path)}" if source.sub_path else ""
    steps += f"ADD {repo}#{ref or named}{path} /mcp\n"
    return await _built(server, engine, steps, is_settled=bool(ref))


async def _commit(server: McpServer, repo: str, ref: str, engine: Engine) -> str:
    """The commit a branch or tag is at now; "" if that cannot be learnt, and then nothing is reused."""
    env = {**engine.env, "GIT_TERMINAL_PROMPT": "0"}
    try:
        with anyio.fail_after(ASK_S):
            status, out, _ = await run_to_end(
                Command(
                    server=server.name, argv=["git", "ls-remote", "--", repo, ref], env=env, cwd=Path("/")
                )
            )
    except (StartFailed, TimeoutError):
        return ""
    commit = out.split("\t", 1)[0].strip()
    return commit if status == 0 and re.fullmatch(r"[0-9a-f]{40,64}", commit) else ""


async def _built(
    server: McpServer, engine: Engine, dockerfile: str, *, context: Path | None = None, is_settled: bool
) -> str:
    """The tag of the image that `dockerfile` makes. `is_settled`: the same text always makes the same."""
    key = hashlib.sha256(f"{context or ''}\0{dockerfile}".encode()).hexdigest()[:16]
    tag = f"nanobot-build:{key}"
    if is_settled:
        status, _, _ = await run_to_end(engine.command(server.name, "image", "inspect", tag))
        if status == 0:
            return tag
    log.info("building image", extra={"server": server.name, "tag": tag})
    words = ["-f", "-", str(context)] if context else ["-"]
    try:
        with anyio.fail_after(BUILD_S):
            command = engine.command(server.name, "build", "-t", tag, *words)
            status, _, reason = await run_to_end(replace(command, cwd=Path("/")), dockerfile.encode())
    except TimeoutError:
        raise StartFailed(f"its image was not built within {BUILD_S / 60:g} min") from None
    if status != 0:
        raise StartFailed(f"its image could not be built: {reason}")
    return tag


async def run_to_end(command: Command, given: bytes = b"") -> tuple[int | None, str, str]:
    """Run a command to its end: exit status, the end of its output, and how it ended in words."""
    async with open_process(command) as child:
        if given:
            await child.send(given)
        await child.aclose()
        lines: list[str] = []
        try:
            while True:
                lines.append((await child.receive()).decode("utf-8", "replace"))
                log.debug("image", extra={"server": command.server, "line": lines[-1][:1024]})
        except anyio.EndOfStream:
            reason = await child.ended()
            return child.status, "\n".join(lines[-200:]), reason


async def remove_stale(engine: Engine, server: str) -> None:
    """Remove the containers of programs like this one that are no more."""
    form = '{{.ID}} {{.Label "' + INSTANCE_LABEL + '"}}'
    with anyio.move_on_after(ASK_S):
        _, out, _ = await run_to_end(
            engine.command(server, "ps", "-a", "--filter", f"label={INSTANCE_LABEL}", "--format", form)
        )
        pairs = [line.split(" ", 1) for line in out.splitlines() if " " in line]
        if stale := [container for container, instance in pairs if is_dead(instance.strip())]:
            log.info("removing stale containers", extra={"count": len(stale)})
            await run_to_end(engine.command(server, "rm", "-f", *stale))


def _plain(place: str, text: str) -> str:
    if not _PLAIN.fullmatch(text):
        raise StartFailed(
            f"{place} may hold only letters, digits and `@:/._-`, and not begin with `-`, because it goes "
            "onto the container engine's command line"
        )
    return text
