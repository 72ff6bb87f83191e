"""How a served nanobot ends: what runs is finished, what only watches is let go, nobody waits for ever."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.peers.programs import Running, free_port, nanobot, serving
from tests.server.world import Events

from nanobot.http import Http, open_http
from nanobot.testing.model_server import ModelServer, Reply, model_server

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
STREAM = {**JSON, "Accept": "text/event-stream"}


def write_config(home: Path, model: ModelServer) -> Path:
    path = home / "nanobot.yaml"
    provider = {"dialect": "OpenAIChatCompletions", "baseURL": model.url, "apiKey": "x"}
    config = {"llmProviders": {"script": provider}, "agents": {"main": {"model": "script/m"}}}
    path.write_text(json.dumps(config))
    return path


async def new_thread(http: Http, url: str) -> str:
    made = await http.request("POST", f"{url}/api/threads", headers=JSON, body=b"{}")
    return json.loads(made.body)["id"]


async def ended(server: Running, within_s: float) -> int:
    with anyio.fail_after(within_s):
        return await anyio.to_thread.run_sync(server.process.wait, abandon_on_cancel=True)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_watching_streams_at_once_and_the_program_well(
    sent: signal.Signals, tmp_path: Path
) -> None:
    async with model_server() as model, open_http() as http:
        with serving(str(write_config(tmp_path, model)), home=tmp_path) as server:
            thread = await new_thread(http, server.url)
            async with http.stream("GET", f"{server.url}/api/events/{thread}") as watching:
                stream = Events(watching.status, watching.chunks())
                await stream.until("history-end")
                server.process.send_signal(sent)
                assert await stream.rest() == []
            assert await ended(server, 8) == 0
            assert not any("Traceback" in line for line in server.lines)


async def test_a_turn_under_way_is_finished_before_the_end(tmp_path: Path) -> None:
    async with model_server() as model, open_http() as http:
        with serving(str(write_config(tmp_path, model)), home=tmp_path) as server:
            thread = await new_thread(http, server.url)
            model.queue(Reply(text="a few words that take a moment", pause_ms=60))
            url = f"{server.url}/api/threads/{thread}/messages"
            async with http.stream("POST", url, headers=STREAM, body=b'{"text":"go"}') as turn:
                stream = Events(turn.status, turn.chunks())
                await stream.until("chat-in-progress")
                server.process.terminate()
                done = (await stream.until("chat-done"))[-1]
            assert json.loads(done.data)["stop"] == "completed"
            assert await ended(server, 8) == 0


async def test_a_second_signal_does_not_wait_for_a_turn(tmp_path: Path) -> None:
    async with model_server() as model, open_http() as http:
        with serving(str(write_config(tmp_path, model)), home=tmp_path) as server:
            thread = await new_thread(http, server.url)
            model.queue(Reply(text="endless", pause_ms=60_000))
            url = f"{server.url}/api/threads/{thread}/messages"
            async with http.stream("POST", url, headers=STREAM, body=b'{"text":"go"}') as turn:
                await Events(turn.status, turn.chunks()).until("chat-in-progress")
                server.process.send_signal(signal.SIGTERM)
                server.process.send_signal(signal.SIGINT)
                assert await ended(server, 8) == 1


async def test_a_taken_port_ends_the_start_with_its_owner(tmp_path: Path) -> None:
    async with model_server() as model:
        config = str(write_config(tmp_path, model))
        refused = await anyio.to_thread.run_sync(
            lambda: nanobot("run", config, "-a", f"127.0.0.1:{model.port}", home=tmp_path)
        )
    assert refused.returncode == 1
    assert f"Port {model.port} " in refused.stderr
    assert "(pid " in refused.stderr
    assert not (tmp_path / "nanobot" / "nanobot.db").exists()


def test_r13_the_program_refuses_to_listen_beyond_loopback(tmp_path: Path) -> None:
    refused = nanobot("run", "-a", f"0.0.0.0:{free_port()}", home=tmp_path)
    assert refused.returncode == 2
    assert "without signing in" in refused.stderr
    assert "Traceback" not in refused.stderr
