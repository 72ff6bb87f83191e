"""`/browser` of a real program: a real web server behind it, and tools that write down their calls."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web
from tests.peers.programs import Running, free_port, nanobot, serving

pytestmark = pytest.mark.anyio

KEY = "nb-ann-key-0123456789"
TOOL = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path({here!r})
with open(here / "calls", "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:], os.environ["DISPLAY"]]) + "\\n")
if (here / "broken").exists():
    sys.exit(1)
if sys.argv[1:2] in (["-lx"], ["-l"]):
    print((here / "windows").read_text(), end="")
"""


@contextlib.contextmanager
def view() -> Generator[tuple[str, list[Any]]]:
    """A web server such as that of the view: its address, and the headers of what it was asked."""
    seen: list[Any] = []

    async def page(request: web.Request) -> web.StreamResponse:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        if request.path == "/moved":
            return web.Response(status=302, headers={"Location": "/vnc.html", "Set-Cookie": "theirs=1"})
        body = (await request.read()).decode()
        return web.json_response({"method": request.method, "path": request.raw_path, "body": body})

    async def socket_(request: web.Request) -> web.WebSocketResponse:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        answer = web.WebSocketResponse(protocols=("binary",), max_msg_size=0)
        await answer.prepare(request)
        async for message in answer:
            await answer.send_bytes(message.data[::-1])
            if message.data == b"bye":
                break
        return answer

    async def run(port: int, ready: threading.Event, over: asyncio.Event) -> None:
        application = web.Application()
        application.router.add_get("/websockify", socket_)
        application.router.add_route("*", "/{path:.*}", page)
        runner = web.AppRunner(application, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        ready.set()
        await over.wait()
        await runner.cleanup()

    port, ready, loop, over = free_port(), threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(port, ready, over),))
    thread.start()
    try:
        assert ready.wait(20)
        yield f"http://127.0.0.1:{port}", seen
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("xrandr", "wmctrl"):
        (folder / name).write_text(TOOL.format(python=sys.executable, here=str(tmp_path)))
        (folder / name).chmod(0o755)
    (tmp_path / "windows").write_text("0x1  0 chromium.Chromium  host page\n0x2  0 xterm.XTerm  host shell\n")
    return folder


def running(home: Path, *words: str, target: str = "", path: str = "", **document: Any):
    (home / "nanobot.yaml").write_text(json.dumps(document))
    env = {"BROWSER_WEBSOCKET_TARGET": target, "BROWSER_VIEW_MAX_RESOLUTION": "2000x1500"}
    arguments: dict[str, Any] = {**env, "PATH": path or "/usr/bin"}
    return serving("-c", str(home / "nanobot.yaml"), *words, home=home, **arguments)


def ask(host: Running, path: str, body: bytes | None = None, method: str | None = None, **headers: str):
    """Status, headers and body of the answer; nothing is followed."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(host.url + path, body, sent, method=method)
    opener = urllib.request.build_opener(_Stays)
    try:
        with opener.open(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, dict(e.headers), e.read()


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        return None


async def test_requests_go_on_without_the_prefix_and_without_what_is_between_us_and_the_client(
    tmp_path: Path,
) -> None:
    with view() as (target, seen), running(tmp_path, target=target) as host:
        headers = {"Cookie": "ours=1", "Content_Type": "text/plain", "X_Kept": "yes"}
        status, _, body = ask(host, "/browser/a%20b%2Fc?d=e%26f", b"hello", "PUT", **headers)
        assert (status, json.loads(body)) == (
            200,
            {"method": "PUT", "path": "/a%20b%2Fc?d=e%26f", "body": "hello"},
        )
        assert seen[-1]["x-kept"] == "yes"
        assert seen[-1]["host"] == target.removeprefix("http://")
        assert "cookie" not in seen[-1]
        for path in ("/browser", "/browser/"):
            assert json.loads(ask(host, path)[2])["path"] == "/"
        status, headers, _ = ask(host, "/browser/moved")
        assert (status, headers["location"]) == (302, "/browser/vnc.html")
        assert "set-cookie" not in headers
        assert ask(host, "/browserx")[0] == 404
        assert ask(host, "/browser/healthz")[2] == b"ok"


async def test_a_websocket_goes_through_in_both_directions_until_one_side_ends(tmp_path: Path) -> None:
    with view() as (target, seen), running(tmp_path, target=target) as host:
        async with aiohttp.ClientSession() as session:
            place = host.url + "/browser/websockify?token=x"
            async with session.ws_connect(
                place, protocols=("binary",), headers={"Cookie": "ours=1"}, max_msg_size=0
            ) as client:
                assert client.protocol == "binary"
                for size in (1, 200, 70_000, 3_000_000):
                    data = bytes(range(256)) * (size // 256 + 1)
                    await client.send_bytes(data)
                    assert await client.receive_bytes(timeout=20) == data[::-1]
                await client.send_bytes(b"bye")
                assert await client.receive_bytes(timeout=20) == b"eyb"
                assert (await client.receive(timeout=20)).type is aiohttp.WSMsgType.CLOSE
            assert "cookie" not in seen[-1]
            assert seen[-1]["origin"] == target
            async with session.ws_connect(place) as client:
                await client.send_bytes(b"ab")
                assert await client.receive_bytes(timeout=20) == b"ba"
                host.process.terminate()  # an open one does not keep the program from stopping
                assert (await client.receive(timeout=20)).type in (
                    aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR,
                )  # fmt: skip
                assert host.process.wait(15) == 0


async def refused(url: str, **headers: str) -> int:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as failure:
            await session.ws_connect(url, headers=headers)
        return failure.value.status


async def test_pages_of_other_origins_reach_neither_the_view_nor_its_socket(tmp_path: Path) -> None:
    with view() as (target, seen), running(tmp_path, target=target) as host:
        socket_url = host.url + "/browser/websockify"
        for origin in ("http://evil.example", "null"):
            assert (
                ask(host, "/browser/resize", b"{}", Origin=origin, Content_Type="application/json")[0] == 403
            )
            assert ask(host, "/browser/x", Origin=origin)[0] == 403
            assert await refused(socket_url, Origin=origin) == 403
        assert await refused(socket_url, Host="evil.example") == 421
        assert await refused(host.url + "/mcp") in (400, 406)
        assert await refused(host.url + "/browser/no-socket") == 502
        assert len(seen) == 1, "only the last one went on"


async def test_whoever_has_to_sign_in_has_to_do_so_here(tmp_path: Path) -> None:
    auth = {"apiKeys": [{"name": "ann", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}
    with view() as (target, seen), running(tmp_path, target=target, auth=auth) as host:
        assert ask(host, "/browser/x")[0] == 401
        assert ask(host, "/browser/status")[0] == 401
        assert await refused(host.url + "/browser/websockify") == 401
        assert seen == []
        bearer = f"Bearer {KEY}"
        assert ask(host, "/browser/x", Authorization=bearer)[0] == 200
        async with aiohttp.ClientSession() as session:
            place = host.url + "/browser/websockify"
            async with session.ws_connect(place, headers={"Authorization": bearer}) as client:
                await client.send_bytes(b"ab")
                assert await client.receive_bytes(timeout=20) == b"ba"
        assert all("authorization" not in one for one in seen)


async def test_a_view_that_is_not_there_is_told(tmp_path: Path) -> None:
    with running(tmp_path, target=f"http://127.0.0.1:{free_port()}") as host:
        status, _, body = ask(host, "/browser/x")
        assert status == 502
        assert b"does not answer" in body
        assert await refused(host.url + "/browser/websockify") == 502


async def test_without_pages_there_is_no_browser(tmp_path: Path) -> None:
    with running(tmp_path, "--disable-ui") as host:
        assert ask(host, "/browser/healthz")[0] == 404


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ((1001, 801), (1008, 808)),
        ((1, 1), (640, 480)),
        ((9999, 9999), (2000, 1500)),
        ((1999, 1499), (2000, 1500)),
    ],
)
async def test_the_screen_becomes_as_large_as_it_may(
    tmp_path: Path, tools: Path, asked: tuple[int, int], given: tuple[int, int]
) -> None:
    width, height = asked
    body = json.dumps({"width": width, "height": height}).encode()
    with running(tmp_path, path=f"{tools}:/usr/bin") as host:
        for _ in range(2):
            status, _, answer = ask(host, "/browser/resize", body, Content_Type="application/json")
            assert (status, json.loads(answer)) == (200, {"width": given[0], "height": given[1]})
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    maximised = [
        ["wmctrl", "-i", "-r", w, "-b", "add,maximized_vert,maximized_horz", ":99"] for w in ("0x1", "0x2")
    ]
    fb = ["xrandr", "--fb", f"{given[0]}x{given[1]}", ":99"]
    assert calls == [fb, ["wmctrl", "-l", ":99"], *maximised], "the second request changed nothing"


async def test_sizes_that_cannot_be_meant_and_tools_that_fail(tmp_path: Path, tools: Path) -> None:
    with running(tmp_path, path=f"{tools}:/usr/bin") as host:

        def resize(body: bytes) -> int:
            return ask(host, "/browser/resize", body, Content_Type="application/json")[0]

        assert resize(b'{"width": 0, "height": 800}') == 400
        assert resize(b"{") == 400
        status, headers, _ = ask(host, "/browser/resize")
        assert (status, headers["allow"]) == (405, "POST, OPTIONS")
        status, headers, _ = ask(host, "/browser/status", b"", "POST")
        assert (status, headers["allow"]) == (405, "GET, OPTIONS")
        (tmp_path / "broken").touch()
        assert resize(b'{"width": 800, "height": 800}') == 500


async def test_the_state_is_told_at_once_and_when_it_changes_and_looked_up_once_for_all(
    tmp_path: Path, tools: Path
) -> None:
    async def follow(session: aiohttp.ClientSession, url: str, told: list[Any], until: int) -> None:
        async with session.get(f"{url}/browser/status") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.content:
                if line.startswith(b"data: "):
                    told.append(json.loads(line[6:]))
                    if len(told) == until:
                        return
                    if len(told) == 1:
                        (tmp_path / "windows").write_text("0x1 0 google-chrome.Google-chrome host a\n" * 3)
                    else:
                        (tmp_path / "broken").touch()

    with running(tmp_path, path=f"{tools}:/usr/bin") as host, anyio.fail_after(40):
        async with aiohttp.ClientSession() as session:
            began = time.monotonic()
            async with anyio.create_task_group() as group:
                for _ in range(30):
                    group.start_soon(follow, session, host.url, list[Any](), 1)
            looked = (tmp_path / "calls").read_text().count("-lx")
            assert looked <= time.monotonic() - began + 1, "30 readers, one process a second"
            told: list[Any] = []
            await follow(session, host.url, told, 3)
        assert told == [
            {"available": True, "windowCount": 1},
            {"available": True, "windowCount": 3},
            {"available": False, "windowCount": 0},
        ]


async def test_without_the_tools_the_browser_is_not_available(tmp_path: Path) -> None:
    with (
        running(tmp_path, path="/nowhere") as host,
        socket.create_connection(("127.0.0.1", int(host.url.rpartition(":")[2])), timeout=20) as client,
    ):
        client.sendall(b"GET /browser/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b'"available":false,"windowCount":0' not in received:
            received += client.recv(4096)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BROWSER_WEBSOCKET_TARGET", "127.0.0.1:6080"),
        ("BROWSER_WEBSOCKET_TARGET", "http://127.0.0.1/path"),
        ("BROWSER_VIEW_MAX_RESOLUTION", "large"),
        ("BROWSER_VIEW_MAX_RESOLUTION", "100x100"),
    ],
)
def test_values_that_cannot_be_meant_end_the_start(tmp_path: Path, name: str, value: str) -> None:
    env: dict[str, Any] = {name: value}
    ran = nanobot("run", "-a", f"127.0.0.1:{free_port()}", "--default-model", "demo", home=tmp_path, **env)
    assert ran.returncode == 2
    assert name in ran.stderr
