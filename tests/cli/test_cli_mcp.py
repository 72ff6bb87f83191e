"""`nanobot mcp`: a login from a terminal, used by a server that runs already, and its end."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest
import uvicorn
from tests.peers.oauth_server import OAuthPeer
from tests.peers.programs import clean_env, nanobot, serving


@pytest.fixture
def peer() -> Generator[tuple[OAuthPeer, str]]:
    """The protected server in a thread of its own; the programs are processes."""
    app = OAuthPeer()
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield app, f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    server.should_exit = server.force_exit = True
    thread.join()


def configure(home: Path, url: str) -> None:
    (home / "nanobot.yaml").write_text(
        f"publish: {{mcpServers: [far]}}\nmcpServers:\n  far: {{url: '{url}'}}\n  near: {{command: 'true'}}\n"
    )


def log_in(home: Path) -> str:
    """Log in as a person does: read the address, open it."""
    program = subprocess.Popen(
        [sys.executable, "-m", "nanobot", "mcp", "login", "far", "-c", "./nanobot.yaml"],
        env=clean_env(home), cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    said = ""
    while "?" not in said and (line := program.stdout.readline()):
        said += line
    address = re.search(r"http://127\.0\.0\.1\S+", said)
    assert address is not None, said
    with urllib.request.urlopen(address[0]) as page:  # the redirect leads to the program
        assert b"may close this window" in page.read()
    rest, _ = program.communicate(timeout=30)
    assert program.returncode == 0, said + rest
    return said + rest


def run(home: Path, *args: str) -> str:
    done = nanobot("mcp", *args, "-c", "./nanobot.yaml", home=home)
    assert done.returncode == 0, done.stderr
    assert "canary" not in done.stdout + done.stderr
    return done.stdout


def test_a_login_from_a_terminal_is_used_by_the_program_and_ends_with_a_logout(
    tmp_path: Path, peer: tuple[OAuthPeer, str]
) -> None:
    app, url = peer
    configure(tmp_path, url)
    assert re.search(r"far +http +not logged in\nnear +stdio +-", run(tmp_path, "list"))
    said = log_in(tmp_path)
    assert "Logged in to far." in said
    assert "canary" not in said
    assert re.search(r"far +http +logged in\n", run(tmp_path, "list"))

    called = nanobot("call", "-c", "./nanobot.yaml", "far/work", home=tmp_path)
    assert called.stdout.strip() == "done", called.stderr

    assert run(tmp_path, "logout", "far") == "Logged out of far.\n"
    assert len(app.revoked) == 1
    assert run(tmp_path, "logout", "far") == "There was no login for far.\n"
    refused = nanobot("call", "-c", "./nanobot.yaml", "far/work", home=tmp_path)
    assert refused.returncode != 0
    assert "nanobot mcp login far" in refused.stderr


def test_a_running_program_tells_where_to_log_in_and_goes_on_after_it(
    tmp_path: Path, peer: tuple[OAuthPeer, str]
) -> None:
    _, url = peer
    configure(tmp_path, url)
    with serving("./nanobot.yaml", home=tmp_path) as running:

        def state() -> dict[str, str]:
            with urllib.request.urlopen(f"{running.url}/api/servers") as answer:
                servers = json.load(answer)["servers"]
            return next(server for server in servers if server["name"] == "far")

        while (now := state())["state"] != "auth_required":
            pass
        with urllib.request.urlopen(now["authUrl"]) as page:
            assert b"may close this window" in page.read()
        while (now := state())["state"] != "ready":
            pass
        assert now["authUrl"] is None
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"{running.url}/oauth/callback?state=x")
        assert "canary" not in "".join(running.lines)


def test_who_cannot_log_in_is_told_why(tmp_path: Path, peer: tuple[OAuthPeer, str]) -> None:
    configure(tmp_path, peer[1])
    for name, reason in (("nobody", "There is no MCP server 'nobody'"), ("near", "started here")):
        done = nanobot("mcp", "login", name, "-c", "./nanobot.yaml", home=tmp_path)
        assert done.returncode in (1, 2)
        assert reason in done.stderr
