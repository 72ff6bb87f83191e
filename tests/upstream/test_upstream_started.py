"""Servers that we start and then reach over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.upstream.world import PEERS, running, text_of, until, use

from nanobot.config.model import McpServer, SandboxSettings
from nanobot.errors import UpstreamUnavailable

pytestmark = pytest.mark.anyio

URL = "http://127.0.0.1:${port:mcp}/mcp"


def script(tmp_path: Path, before: str = "") -> McpServer:
    """A server on the port it is given, which first does what `before` says."""
    program = tmp_path / "serve.py"
    program.write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(PEERS)!r})\n"
        f"port = int(sys.argv[1]); marks = {str(tmp_path / 'marks')!r}\n"
        f"{before}\n"
        "import sdk_server\n"
        "import uvicorn\n"
        "uvicorn.run(sdk_server.server.streamable_http_app(), host='127.0.0.1', port=port)\n"
    )
    sandbox = SandboxSettings(readable=(str(PEERS),), writable=(str(tmp_path),))
    return McpServer(
        name="web", command=sys.executable, args=(str(program), "${port:mcp}"), url=URL, sandbox=sandbox
    )


async def test_a_server_is_started_and_reached_on_a_port_of_its_own(tmp_path: Path) -> None:
    async with running(script(tmp_path)) as upstream:
        assert text_of(await use(upstream, "echo", text="over http")) == "over http"
        assert upstream.state.kind == "http"


async def test_two_of_them_do_not_meet(tmp_path: Path) -> None:
    async with running(script(tmp_path)) as one, running(script(tmp_path)) as other:
        assert text_of(await use(one, "echo", text="1")) == "1"
        assert text_of(await use(other, "echo", text="2")) == "2"


async def test_one_that_ends_before_it_answers_is_tried_with_other_ports(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    twice = "open(marks, 'a').write(f'{port}\\n')\nif len(open(marks).readlines()) < 3: sys.exit('taken')"
    async with running(script(tmp_path, twice)) as upstream:
        assert text_of(await use(upstream, "echo", text="third")) == "third"
    ports = marks.read_text().split()
    assert len(ports) == len(set(ports)) == 3


async def test_one_that_never_answers_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    async with running(script(tmp_path, "sys.exit('no licence')")) as upstream:
        with pytest.raises(UpstreamUnavailable, match=r"status 1(?s:.*)no licence"):
            await upstream.ready()


async def test_one_that_dies_later_is_started_again(tmp_path: Path) -> None:
    async with running(script(tmp_path)) as upstream:
        with pytest.raises(UpstreamUnavailable):
            await use(upstream, "die")
        await until(lambda: upstream.state.state != "ready" or upstream.state.restarts)
        assert text_of(await use(upstream, "echo", text="again")) == "again"
        assert upstream.state.restarts == 1
